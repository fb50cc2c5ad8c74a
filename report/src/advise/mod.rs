//! What to do about a hotspot: which one comes first, what to try, what to measure next.
//!
//! Nothing here knows of timelines: events in, advice out. The functions, their thresholds and the
//! names of strategies and measurements are those of the chapter "Communication Hotspots and
//! Mitigation". Any producer of [`HotspotEvent`]s can be used, also JSON from elsewhere:
//!
//! ```
//! use commtrace_report::advise::{
//!     HotspotEvent, Strategy, choose_comm_mitigation, recommend_comm_followup, summarize_comm_hotspots,
//! };
//!
//! let events: Vec<HotspotEvent> = serde_json::from_str(
//!     r#"[{"collective": "all_reduce", "exposed_comm_ms": 16.0, "payload_bytes": 4096,
//!          "overlap_ratio": 0.1, "rank_imbalance_ratio": 0.0}]"#,
//! )?;
//! let summary = summarize_comm_hotspots(&events);
//! let mitigation = choose_comm_mitigation(&summary);
//! assert_eq!(mitigation.strategy, Strategy::IncreaseOverlapOrDelaySync);
//! let followup = recommend_comm_followup(&summary, &mitigation);
//! assert_eq!(followup.next_measurements, ["exposed_comm_ms", "overlap_ratio", "step_time_ms"]);
//! # Ok::<(), serde_json::Error>(())
//! ```

mod event;
mod explain;
mod followup;
mod hotspots;
mod mitigation;
mod thresholds;

pub use event::HotspotEvent;
pub(crate) use explain::experts_are_even;
pub use explain::{Explanation, explain, explain_durations, explain_expert_load};
pub use followup::{Decision, Followup, recommend_comm_followup, recommend_comm_followup_with};
pub use hotspots::{HotspotBucket, HotspotSummary, PriorityHotspot, summarize_comm_hotspots};
pub(crate) use mitigation::is_all_to_all;
pub use mitigation::{Mitigation, Strategy, choose_comm_mitigation, choose_comm_mitigation_with};
pub use thresholds::Thresholds;
