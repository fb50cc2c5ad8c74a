//! This process as one rank of an MPI job.

use super::{About, Orders, gave_up};
use crate::event::{GaveUp, RankEvent};
use crate::hardware::this_host;
use crate::overlap::HostSite;
use crate::record::FailureKind;
use commtrace_collectives::{Communicator, MpiComm};
use std::io;

pub fn run(orders: &Orders) -> io::Result<bool> {
    // What MPI takes is wanted, not what comparing the ranks' calls adds. They are alike here, and a candidate
    // that hangs is ended by whoever watches its processes.
    let comm = match MpiComm::builder().checks(false).world() {
        Ok(comm) => comm,
        Err(error) => {
            let event = RankEvent::GaveUp(gave_up(&error));
            return orders.events.append(orders.rank.unwrap_or(0))?.say(&event).map(|()| false);
        }
    };
    let rank = u32::try_from(comm.rank()).unwrap_or(u32::MAX);
    if comm.size() != orders.plan.world_size as usize {
        let message = format!(
            "MPI says rank {rank} of {} where {} ranks were started: the launcher belongs to another MPI library \
             than {}. Start it with the launcher of that library.",
            comm.size(),
            orders.plan.world_size,
            MpiComm::library_version().unwrap_or_else(|| "that of this build".to_owned()),
        );
        let gave_up = GaveUp { kind: FailureKind::NotStarted, message, because_of: None };
        let rank = orders.rank.unwrap_or(rank);
        return orders.events.append(rank)?.say(&RankEvent::GaveUp(gave_up)).map(|()| false);
    }
    let about = About { host: this_host(rank), library: MpiComm::library_version(), ..About::default() };
    orders.rank(&comm, &mut HostSite::default(), about)
}
