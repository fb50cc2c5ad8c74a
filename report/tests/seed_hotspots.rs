//! The assertions and branches of "Communication Hotspots and Mitigation" (chapter 48).

use commtrace_report::advise::{
    Decision, HotspotBucket, HotspotEvent, HotspotSummary, PriorityHotspot, Strategy, Thresholds,
    choose_comm_mitigation, choose_comm_mitigation_with, explain, recommend_comm_followup,
    recommend_comm_followup_with, summarize_comm_hotspots,
};

fn events(json: &str) -> Vec<HotspotEvent> {
    serde_json::from_str(json).expect("events of the test")
}

/// `_comm_hotspot_fixture`.
fn fixture() -> Vec<HotspotEvent> {
    events(
        r#"[
        {"collective": "all_reduce", "exposed_comm_ms": 8.0, "payload_bytes": 1024, "overlap_ratio": 0.60, "rank_imbalance_ratio": 0.00},
        {"collective": "all_reduce", "exposed_comm_ms": 6.0, "payload_bytes": 2048, "overlap_ratio": 0.45, "rank_imbalance_ratio": 0.05},
        {"collective": "all_to_all", "exposed_comm_ms": 20.0, "payload_bytes": 65536, "overlap_ratio": 0.60, "rank_imbalance_ratio": 0.05},
        {"collective": "broadcast", "exposed_comm_ms": 5.0, "payload_bytes": 512, "overlap_ratio": 0.90, "rank_imbalance_ratio": 0.00}
    ]"#,
    )
}

/// `_summary_with_priority`; imbalance counts as observed, as in the chapter.
fn with_priority(
    collective: &str,
    exposed_ms: f64,
    bytes: u64,
    overlap: f64,
    imbalance: f64,
) -> HotspotSummary {
    let mut bucket = HotspotBucket::new(exposed_ms, overlap, Some(bytes));
    bucket.rank_imbalance_ratio = imbalance;
    bucket.rank_imbalance_observed = true;
    HotspotSummary {
        by_collective: [(collective.to_string(), bucket.clone())].into_iter().collect(),
        priority: Some(PriorityHotspot { collective: collective.to_string(), evidence: bucket }),
        num_events: 1,
    }
}

#[test]
fn collective_aggregation_and_priority() {
    let summary = summarize_comm_hotspots(&fixture());
    let all_reduce = &summary.by_collective["all_reduce"];
    assert_eq!(all_reduce.count, 2);
    assert_eq!(all_reduce.sync_count, 2);
    assert_eq!(all_reduce.payload_bytes, Some(3072));
    assert_eq!(all_reduce.exposed_comm_ms, 14.0);
    // The worst overlap and the largest imbalance are kept, not means.
    assert_eq!(all_reduce.overlap_ratio, 0.45);
    assert_eq!(all_reduce.rank_imbalance_ratio, 0.05);
    let priority = summary.priority.expect("there are events");
    assert_eq!(priority.collective, "all_to_all");
    assert_eq!(priority.evidence.exposed_comm_ms, 20.0);
    assert_eq!(summary.num_events, 4);

    let exported = summarize_comm_hotspots(&events(
        r#"[{"collective": "all_reduce", "sync_count": 3, "total_comm_ms": 12.0, "exposed_comm_ms": 5.0,
             "payload_bytes": 4096, "overlap_ratio": 0.5833333333333334, "rank_imbalance_ratio": 0.0}]"#,
    ));
    let priority = exported.priority.expect("there is an event");
    assert_eq!(priority.evidence.sync_count, 3);
    assert_eq!(priority.evidence.total_comm_ms, 12.0);
}

#[test]
fn mitigation_matches_hotspot_pattern() {
    let routing = choose_comm_mitigation(&summarize_comm_hotspots(&fixture()));
    assert_eq!(routing.strategy.as_str(), "reduce_routing_traffic");
    assert_eq!(routing.target.as_deref(), Some("all_to_all"));
    assert_eq!(
        routing.next_measurements,
        ["dispatch_payload_bytes", "cross_rank_token_ratio", "throughput_tokens_per_s"]
    );

    let exposed = choose_comm_mitigation(&with_priority("all_reduce", 16.0, 4096, 0.10, 0.00));
    assert_eq!(exposed.strategy.as_str(), "increase_overlap_or_delay_sync");
    assert_eq!(exposed.next_measurements, ["exposed_comm_ms", "overlap_ratio", "step_time_ms"]);

    let imbalanced = choose_comm_mitigation(&with_priority("all_to_all", 12.0, 8192, 0.60, 0.35));
    assert_eq!(imbalanced.strategy.as_str(), "rebalance_ranks_or_experts");
    assert_eq!(
        imbalanced.next_measurements,
        ["rank_elapsed_ms", "expert_load_skew", "cross_rank_token_ratio"]
    );

    let other = choose_comm_mitigation(&with_priority("all_reduce", 12.0, 8192, 0.60, 0.10));
    assert_eq!(other.strategy.as_str(), "inspect_collective_payload_and_schedule");
    assert_eq!(other.next_measurements, ["payload_bytes", "exposed_comm_ms", "rank_elapsed_ms"]);
}

#[test]
fn followup_decision() {
    let empty = summarize_comm_hotspots(&[]);
    let nothing = choose_comm_mitigation(&empty);
    assert_eq!(nothing.strategy.as_str(), "collect_trace");
    assert_eq!(nothing.target, None);
    assert_eq!(nothing.next_measurements, ["rank_elapsed_ms", "payload_bytes"]);
    assert_eq!(recommend_comm_followup(&empty, &nothing).decision, Decision::CollectMoreEvidence);

    let low = with_priority("broadcast", 2.0, 512, 0.90, 0.00);
    assert_eq!(recommend_comm_followup(&low, &choose_comm_mitigation(&low)).decision, Decision::Accept);

    let high = summarize_comm_hotspots(&fixture());
    let decision = recommend_comm_followup(&high, &choose_comm_mitigation(&high));
    assert_eq!(decision.decision, Decision::Tune);
    assert!(decision.next_measurements.iter().any(|name| name == "dispatch_payload_bytes"));
    assert!(
        decision.reason.contains("all_to_all") && decision.reason.contains("20.0 ms"),
        "{}",
        decision.reason
    );
}

#[test]
fn limits_are_strict_as_in_the_chapter() {
    let strategy = |overlap, imbalance| {
        choose_comm_mitigation(&with_priority("all_reduce", 16.0, 1, overlap, imbalance)).strategy
    };
    assert_eq!(strategy(0.30, 0.20), Strategy::InspectCollectivePayloadAndSchedule);
    assert_eq!(strategy(0.2999, 0.20), Strategy::IncreaseOverlapOrDelaySync);
    assert_eq!(strategy(0.30, 0.2001), Strategy::RebalanceRanksOrExperts);
    // Nothing exposed, nothing to overlap.
    let hidden = with_priority("all_reduce", 0.0, 1, 0.0, 0.0);
    assert_eq!(choose_comm_mitigation(&hidden).strategy, Strategy::InspectCollectivePayloadAndSchedule);
    // Routing needs bytes.
    let silent = with_priority("all_to_all", 9.0, 0, 0.5, 0.0);
    assert_eq!(choose_comm_mitigation(&silent).strategy, Strategy::InspectCollectivePayloadAndSchedule);

    let decision = |exposed_ms| {
        let summary = with_priority("all_reduce", exposed_ms, 1, 0.5, 0.0);
        recommend_comm_followup(&summary, &choose_comm_mitigation(&summary)).decision
    };
    assert_eq!(decision(5.0), Decision::Accept);
    assert_eq!(decision(5.0001), Decision::Tune);
}

#[test]
fn limits_can_be_set() {
    let summary = with_priority("all_reduce", 16.0, 1, 0.5, 0.3);
    let lenient =
        Thresholds { imbalance: 0.4, overlap: 0.6, accept_exposed_ms: 20.0, ..Thresholds::default() };
    let mitigation = choose_comm_mitigation_with(&summary, &lenient);
    assert_eq!(mitigation.strategy, Strategy::IncreaseOverlapOrDelaySync);
    assert_eq!(recommend_comm_followup_with(&summary, &mitigation, &lenient).decision, Decision::Accept);
}

#[test]
fn unobserved_imbalance_is_not_judged() {
    let mut observed = fixture();
    observed[2].rank_imbalance_ratio = Some(0.9);
    let mitigation = choose_comm_mitigation(&summarize_comm_hotspots(&observed));
    assert_eq!(mitigation.strategy, Strategy::RebalanceRanksOrExperts);
    observed[2].rank_imbalance_observed = false;
    let summary = summarize_comm_hotspots(&observed);
    assert_eq!(summary.by_collective["all_to_all"].rank_imbalance_ratio, 0.0);
    assert!(!summary.by_collective["all_to_all"].rank_imbalance_observed);
    assert_eq!(choose_comm_mitigation(&summary).strategy, Strategy::ReduceRoutingTraffic);
}

#[test]
fn a_lower_bound_is_judged_instead_of_the_ratio() {
    let mut noisy = fixture();
    noisy[2].rank_imbalance_ratio = Some(0.9);
    noisy[2].rank_imbalance_lower = Some(0.1);
    let summary = summarize_comm_hotspots(&noisy);
    assert_eq!(summary.by_collective["all_to_all"].rank_imbalance_ratio, 0.9);
    assert_eq!(choose_comm_mitigation(&summary).strategy, Strategy::ReduceRoutingTraffic);
    noisy[2].rank_imbalance_lower = Some(0.21);
    let mitigation = choose_comm_mitigation(&summarize_comm_hotspots(&noisy));
    assert_eq!(mitigation.strategy, Strategy::RebalanceRanksOrExperts);
}

/// An event without a bound is judged by its ratio also beside one that has a bound, in either order.
#[test]
fn bounds_and_ratios_mix() {
    let mut with_bound = fixture().remove(2);
    with_bound.rank_imbalance_ratio = Some(0.5);
    with_bound.rank_imbalance_lower = Some(0.0);
    let mut with_ratio = with_bound.clone();
    with_ratio.rank_imbalance_ratio = Some(0.3);
    with_ratio.rank_imbalance_lower = None;
    for pair in [[with_bound.clone(), with_ratio.clone()], [with_ratio, with_bound]] {
        let summary = summarize_comm_hotspots(&pair);
        assert_eq!(summary.by_collective["all_to_all"].judged_imbalance(), Some(0.3));
        assert_eq!(summary.by_collective["all_to_all"].rank_imbalance_ratio, 0.5);
    }
}

#[test]
fn unknown_payload_stays_unknown() {
    let mut unknown = fixture();
    for event in &mut unknown {
        event.payload_bytes = None;
    }
    let summary = summarize_comm_hotspots(&unknown);
    assert_eq!(summary.by_collective["all_to_all"].payload_bytes, None);
    assert_eq!(choose_comm_mitigation(&summary).strategy, Strategy::InspectCollectivePayloadAndSchedule);
    unknown[0].payload_bytes = Some(7);
    assert_eq!(summarize_comm_hotspots(&unknown).by_collective["all_reduce"].payload_bytes, Some(7));
}

#[test]
fn ties_go_to_the_first() {
    let tied = events(
        r#"[{"collective": "b", "exposed_comm_ms": 3.0, "payload_bytes": 1, "overlap_ratio": 0.5},
            {"collective": "a", "exposed_comm_ms": 3.0, "payload_bytes": 1, "overlap_ratio": 0.5}]"#,
    );
    let summary = summarize_comm_hotspots(&tied);
    assert_eq!(summary.priority.map(|priority| priority.collective).as_deref(), Some("b"));
    assert_eq!(summary.by_collective.keys().collect::<Vec<_>>(), ["b", "a"]);
}

/// Names in JSON and in text are one.
#[test]
fn names_round_trip_and_every_strategy_is_explained() {
    for strategy in [
        Strategy::CollectTrace,
        Strategy::RebalanceRanksOrExperts,
        Strategy::IncreaseOverlapOrDelaySync,
        Strategy::ReduceRoutingTraffic,
        Strategy::InspectCollectivePayloadAndSchedule,
    ] {
        let json = serde_json::to_value(strategy).expect("a name");
        assert_eq!(json, strategy.as_str());
        assert_eq!(serde_json::from_value::<Strategy>(json).expect("a strategy"), strategy);
        let explanation = explain(strategy);
        assert!(!explanation.actions.is_empty() && !explanation.remeasure.is_empty());
    }
    let serving = explain(Strategy::IncreaseOverlapOrDelaySync).related.expect("the serving case");
    assert!(serving.actions.iter().any(|action| action.contains("dual batch overlap")));
}
