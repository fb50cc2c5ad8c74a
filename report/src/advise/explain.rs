//! Why a strategy was chosen and how to try it, in words.

use super::Strategy;
use crate::analyze::ExpertRouting;

/// The pattern behind a strategy: how it shows, what to try, what to look at again, what it may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// The pattern's name.
    pub mode: &'static str,
    /// How it shows in a trace.
    pub evidence: &'static str,
    /// Candidates for the next experiment, one change at a time and the workload kept as it is.
    pub actions: &'static [&'static str],
    /// What to measure again.
    pub remeasure: &'static [&'static str],
    /// What the change may cost.
    pub costs: &'static str,
    /// A neighbouring pattern that looks alike and has its own cure.
    pub related: Option<&'static Explanation>,
}

/// The pattern behind `strategy`.
pub fn explain(strategy: Strategy) -> &'static Explanation {
    match strategy {
        Strategy::CollectTrace => &NOTHING_RECORDED,
        Strategy::RebalanceRanksOrExperts => &RANK_IMBALANCE,
        Strategy::IncreaseOverlapOrDelaySync => &EXPOSED,
        Strategy::ReduceRoutingTraffic => &ROUTING,
        Strategy::InspectCollectivePayloadAndSchedule => &NO_PATTERN,
    }
}

/// A load this close to the mean is even.
const EVEN: f64 = 1.05;

/// Whether every rank's experts get about as many tokens; `None` if the load is not known.
pub(crate) fn experts_are_even(routing: &ExpertRouting) -> Option<bool> {
    routing.expert_load_skew.map(|skew| skew <= EVEN)
}

/// What the experts' load says about an imbalance of the ranks: who gets the most tokens, or that it is not
/// the experts. `None` if the load is not known.
pub fn explain_expert_load(routing: &ExpertRouting) -> Option<String> {
    let (skew, rank) = routing.expert_load_skew.zip(routing.hottest_rank)?;
    Some(if experts_are_even(routing) == Some(false) {
        format!(
            "Experts are unevenly loaded: rank {rank} gets {skew:.2} times the mean number of tokens of a rank \
             (expert_load_skew)."
        )
    } else {
        format!(
            "Experts are evenly loaded (expert_load_skew {skew:.2}), so that is not what makes ranks late."
        )
    })
}

static NOTHING_RECORDED: Explanation = Explanation {
    mode: "no communication recorded",
    evidence: "The trace holds no communication interval with a time.",
    actions: &[
        "run at least a few steps with collectives through a traced communicator or `comm_span!`",
        "check that filters (steps, ranks, log level) do not drop them",
    ],
    remeasure: &["elapsed time per rank", "payload bytes"],
    costs: "Recording costs well under a microsecond per span.",
    related: None,
};

/// What stands for [`Strategy::CollectTrace`] where communication was recorded and is only known to have
/// taken its time, not when.
pub fn explain_durations() -> &'static Explanation {
    &DURATIONS_ONLY
}

static DURATIONS_ONLY: Explanation = Explanation {
    mode: "durations without places in time",
    evidence: "The input says how long communication took; what ran beside it, and so what was exposed, is not \
               in it.",
    actions: &[
        "record the same run with a profiler or with traced spans",
        "compare the bandwidth per operation with that of a benchmark of the same size",
    ],
    remeasure: &["elapsed time per rank", "payload bytes"],
    costs: "A profiler slows the run down and fills disks; a few steps are enough.",
    related: None,
};

static RANK_IMBALANCE: Explanation = Explanation {
    mode: "rank imbalance",
    evidence: "The same ranks reach the collective clearly later than the others, which wait for them: \
               much of the collective's time is waiting, not moving bytes.",
    actions: &[
        "compare the late rank's compute, input and host with the others'",
        "split stages, layers or the batch differently",
        "with experts: change capacity, placement or load balancing",
    ],
    remeasure: &["elapsed time of the slowest rank", "load skew", "P95 of the step time"],
    costs: "Rebalancing may add routing and communication of its own.",
    related: None,
};

static EXPOSED: Explanation = Explanation {
    mode: "exposed communication",
    evidence: "Much of the op's time has no compute beside it: it starts late, is waited for at once, or \
               is split into many small synchronizations.",
    actions: &[
        "start the collective as soon as its input exists and wait for it where the result is used",
        "change the bucket size: fewer, larger messages, or smaller ones that start earlier",
        "move independent compute next to it; synchronize less often",
    ],
    remeasure: &["number of synchronizations", "exposed time", "overlap ratio", "step time"],
    costs: "Buffers live longer, and scheduling becomes harder to follow.",
    related: Some(&SERVING),
};

static SERVING: Explanation = Explanation {
    mode: "inference serving: batch preparation holds up execution",
    evidence: "The device idles between batches while the host prepares the next one, and communication \
               sits alone in the gaps.",
    actions: &["split a batch into two that alternate, one computing while the other communicates \
                (dual batch overlap)"],
    remeasure: &["scheduling gaps", "exposed time", "throughput", "tail latency"],
    costs: "Batches that become too small pay more for scheduling and synchronization than they hide.",
    related: None,
};

static ROUTING: Explanation = Explanation {
    mode: "payload and routing pressure",
    evidence: "All-to-all moves large payloads or is called very often; many tokens leave their rank.",
    actions: &[
        "route fewer tokens to other ranks; drop or deduplicate before sending",
        "merge messages",
        "group experts and data so that most traffic stays near",
    ],
    remeasure: &["payload", "share of tokens that cross ranks", "throughput"],
    costs: "Routing quality, overflowing expert capacity, or a new load skew.",
    related: None,
};

static NO_PATTERN: Explanation = Explanation {
    mode: "no clear pattern",
    evidence: "Ranks are not known to be uneven, a fair share is hidden, and the op is not all-to-all \
               traffic.",
    actions: &[
        "look at the op's payloads and how often it is called",
        "look at where in the step it starts and what waits for it",
    ],
    remeasure: &["payload bytes", "exposed time", "elapsed time per rank"],
    costs: "None; this only gathers evidence.",
    related: None,
};
