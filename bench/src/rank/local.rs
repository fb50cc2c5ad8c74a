//! Ranks as threads of this process.

use super::{About, Orders};
use crate::hardware::this_host;
use crate::overlap::HostSite;
use commtrace_collectives::{Communicator, LocalComm};
use std::io;

pub fn run(orders: &Orders) -> io::Result<bool> {
    let ranks = usize::try_from(orders.plan.world_size).unwrap_or(usize::MAX);
    let results = LocalComm::builder(ranks).timeout(orders.plan.call_timeout()).run(|comm| {
        let rank = u32::try_from(comm.rank()).unwrap_or(u32::MAX);
        let about = About { host: this_host(rank), ..About::default() };
        orders.rank(&comm, &mut HostSite::default(), about)
    });
    results.into_iter().try_fold(true, |all, rank| Ok(rank? && all))
}
