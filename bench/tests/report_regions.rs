//! Latency region, knee and plateau, and what is said where they were not measured.

mod report;

use commtrace_bench::report::{Basis, Knee, Region, Shape, render};
use report::{PAYLOADS, of, record, rows};

fn shape(payloads: &[u64], latency_ms: f64, gbps: f64) -> Shape {
    let report = of(vec![("a.json", record("Auto", &[], rows("all_reduce", payloads, latency_ms, gbps)))]);
    report.groups[0].curves[0].shape.clone()
}

fn powers(from: u32, to: u32) -> Vec<u64> {
    (from..=to).map(|power| 1 << power).collect()
}

/// 20 us and 100 GB/s: half of the bandwidth at 2 MB, 90 % at 18 MB.
#[test]
fn sizes_on_both_sides_of_the_knee() {
    let shape = shape(&powers(10, 26), 0.02, 100.0);
    assert_eq!(shape.one_line_fits, Some(true));
    let Knee::At(knee) = shape.knee else { panic!("{shape:?}") };
    assert!(knee.abs_diff(2_000_000) < 10, "{knee}");
    assert!((shape.startup_latency_ms.unwrap() - 0.02).abs() < 1e-9);
    assert!((shape.plateau_payload_gbps.unwrap() - 100.0).abs() < 1e-6);
    assert!((shape.plateau_busbw_gbps.unwrap() - 100.0).abs() < 1e-6);
    assert_eq!(shape.plateau_reached, Some(true));
    let enough = shape.enough.unwrap();
    assert!(enough.bytes.abs_diff(18_000_000) < 100 && enough.basis == Basis::Fit, "{enough:?}");
    assert_eq!(shape.best_busbw_at_bytes, Some(1 << 26));
    assert_eq!(shape.notes, Vec::<String>::new());

    let report = of(vec![("a.json", record("Auto", &[], rows("all_reduce", &powers(10, 26), 0.02, 100.0)))]);
    let points = &report.groups[0].curves[0].points;
    let region_of =
        |bytes: u64| points.iter().find(|point| point.payload_bytes_per_rank == bytes).unwrap().region;
    // 222 KB and 18 MB are the bounds.
    assert_eq!(region_of(1 << 17), Some(Region::Latency));
    assert_eq!(region_of(1 << 18), Some(Region::Transition));
    assert_eq!(region_of(1 << 24), Some(Region::Transition));
    assert_eq!(region_of(1 << 25), Some(Region::Bandwidth));
}

#[test]
fn the_bus_bandwidth_of_the_plateau_has_the_collectives_factor() {
    let report = of(vec![("a.json", record("Auto", &[], rows("all_gather", &powers(10, 26), 0.02, 100.0)))]);
    let shape = &report.groups[0].curves[0].shape;
    // Twice the payload comes out, half of it crosses the link.
    assert!((shape.plateau_busbw_gbps.unwrap() - 100.0).abs() < 1e-6, "{shape:?}");
    let report = of(vec![("a.json", record("Auto", &[], rows("all_to_all", &powers(10, 26), 0.02, 100.0)))]);
    assert!((report.groups[0].curves[0].shape.plateau_busbw_gbps.unwrap() - 50.0).abs() < 1e-6);
}

/// The knee of 20 us and 10 GB/s is 200 kB, below the smallest of the default payloads.
#[test]
fn sizes_above_the_knee_do_not_give_a_latency() {
    let shape = shape(&PAYLOADS, 0.02, 10.0);
    assert_eq!((shape.startup_latency_ms, shape.knee), (None, Knee::Below(1 << 20)));
    assert_eq!(shape.plateau_reached, Some(true));
    let notes = shape.notes.join(" ");
    assert!(notes.contains("rests on three payloads"), "{notes}");
    assert!(
        notes.contains("No size in the latency region was measured: the startup latency is an extrapolation"),
        "{notes}"
    );
    let report = of(vec![("a.json", record("Auto", &[], rows("all_reduce", &PAYLOADS, 0.02, 10.0)))]);
    let text = render::text(&report);
    assert!(text.contains("startup latency not measured"), "{text}");
}

#[test]
fn sizes_below_the_knee_do_not_give_a_bandwidth() {
    let shape = shape(&powers(10, 18), 0.02, 100.0);
    assert_eq!((shape.plateau_payload_gbps, shape.plateau_reached, shape.enough), (None, None, None));
    assert_eq!(shape.knee, Knee::Above(1 << 18));
    assert!(shape.startup_latency_ms.is_some());
    assert!(shape.notes.join(" ").contains("No size at or above the knee"), "{:?}", shape.notes);
    // Of times that do not grow at all likewise.
    let flat = of(vec![(
        "a.json",
        record(
            "Auto",
            &[],
            powers(10, 14).iter().map(|&bytes| report::row("all_reduce", bytes, 0.01, 0.01)).collect(),
        ),
    )]);
    let shape = &flat.groups[0].curves[0].shape;
    assert_eq!((shape.knee, shape.plateau_payload_gbps), (Knee::Above(1 << 14), None));
}

/// 20 us and 100 GB/s up to 4 MiB: the knee was passed, 90 % were not reached.
#[test]
fn a_plateau_that_was_not_reached_is_extrapolated() {
    let shape = shape(&powers(10, 22), 0.02, 100.0);
    assert_eq!(shape.plateau_reached, Some(false));
    assert_eq!(shape.enough.unwrap().basis, Basis::Extrapolated);
    assert!(shape.notes.join(" ").contains("reaches 67.7 % of the plateau"), "{:?}", shape.notes);
}

#[test]
fn a_fit_says_what_it_rests_on() {
    let one = shape(&[1 << 20], 0.02, 10.0);
    assert_eq!((one.fit, one.knee), (None, Knee::Unknown));
    assert!(one.notes[0].contains("One payload"), "{:?}", one.notes);
    let two = shape(&[1 << 10, 1 << 24], 0.02, 10.0);
    assert_eq!((two.one_line_fits, two.fit.unwrap().max_relative_error), (None, None));
    assert!(two.notes[0].contains("through both payloads"), "{:?}", two.notes);
}

#[test]
fn a_change_of_protocol_is_said_and_takes_the_knee_with_it() {
    let mut all = rows("all_reduce", &powers(10, 17), 0.01, 2.0);
    all.extend(rows("all_reduce", &powers(18, 26), 0.6, 50.0));
    let report = of(vec![("a.json", record("Auto", &[], all))]);
    let shape = &report.groups[0].curves[0].shape;
    assert_eq!(shape.one_line_fits, Some(false));
    let step = shape.step.as_ref().unwrap();
    assert_eq!((step.below_bytes, step.above_bytes), (1 << 17, 1 << 18));
    assert_eq!(
        (shape.knee, shape.startup_latency_ms, shape.plateau_payload_gbps),
        (Knee::Unknown, None, None)
    );
    assert!(report.groups[0].curves[0].points.iter().all(|point| point.region.is_none()));
    let text = render::text(&report);
    for words in ["One line does not fit", "a step between 128 KiB and 256 KiB", "LL128"] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
}
