//! Text, HTML and JSON of a report, and the JSON's schema.

mod report;

use commtrace_bench::report::{BenchReport, render, report_schema};
use report::{PAYLOADS, failed, local, of, overlap, record, rows};
use serde_json::Value;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/bench-report.schema.json");
const HOSTILE: &str = "<script>alert('x')</script>\u{1b}[31m\u{202e}\"&";

/// Everything that a report can hold, with names that try to be markup.
fn full() -> BenchReport {
    let wide: Vec<u64> = (10..=26).map(|power| 1 << power).collect();
    let mut ring = record("Ring", &["Ring"], rows("all_reduce", &wide, 0.02, 100.0));
    ring.metrics.rows.extend(rows("reduce_scatter_all_gather", &wide, 0.04, 80.0));
    let mut tree = record("Tree", &[], rows("all_reduce", &wide, 0.01, 60.0));
    let mut hostile = local(rows("broadcast", &PAYLOADS, 0.1, 5.0));
    for text in [
        &mut hostile.workload.run_label,
        &mut hostile.workload.dtype,
        &mut hostile.workload.algorithm_requested,
        &mut hostile.hardware.hosts[0].name,
        &mut hostile.metrics.rows[0].collective,
        &mut tree.workload.run_label,
    ] {
        *text = HOSTILE.to_owned();
    }
    of(vec![
        ("ring.json", ring),
        ("tree.json", tree),
        (HOSTILE, hostile),
        ("failed.json", failed("Auto", HOSTILE)),
        ("overlap.json", overlap((10.0, 11.0), (8.0, 9.0), &[1])),
        ("nothing.json", local(Vec::new())),
    ])
}

#[test]
fn the_page_is_self_contained_and_names_are_text() {
    let page = render::html(&full());
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</body></html>\n"));
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
    for absent in [
        "<script", "\u{1b}", "\u{202e}", "http:", "https:", "src=", "href=", "url(", "@import", "NaN",
        "inf\"",
    ] {
        assert!(!page.contains(absent), "{absent:?} is in the page");
    }
    assert!(page.contains("prefers-color-scheme:dark"));
}

/// Every element that is opened is closed, in order: what a browser would otherwise mend by guessing.
#[test]
fn the_page_is_well_formed_and_its_plots_have_names() {
    let page = render::html(&full());
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!doctype html>\n").unwrap();
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before {:?}", &rest[..rest.len().min(80)]);
        } else {
            let name = tag.split([' ', '/']).next().unwrap();
            if !tag.ends_with('/') && !["meta", "br"].contains(&name) {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");

    let plots = page.matches("<svg viewBox=\"0 0 640 320\"").count();
    // Three collectives in two groups, of which one has a name that is markup and stands for itself: time and busbw.
    assert_eq!(plots, 8, "all_reduce, in two steps, broadcast and the one with the odd name");
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|part| part.split('"').next()).collect();
    assert_eq!(ids.len(), 2 * plots, "a title and a description each");
    for id in
        page.split("aria-labelledby=\"").skip(1).flat_map(|part| part.split('"').next().unwrap().split(' '))
    {
        assert!(ids.contains(&id), "{id}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2 * plots, "ids are the page's own");
    assert!(page.contains("class=\"knee\"") && page.contains("<polyline class=\"line\""));
}

/// Marks lie within the plot, larger payloads further right and longer times further up.
#[test]
fn marks_are_where_the_figures_are() {
    let payloads = [1 << 10, 1 << 15, 1 << 20, 1 << 25];
    let report = of(vec![("a.json", record("Auto", &[], rows("all_reduce", &payloads, 0.02, 100.0)))]);
    let page = render::html(&report);
    let svg = page.split("<svg viewBox=\"0 0 640 320\"").nth(1).unwrap();
    let marks: Vec<(f64, f64)> = svg
        .split("<path class=\"mark\" d=\"M")
        .skip(1)
        .filter_map(|part| {
            let (x, rest) = part.split_once(' ')?;
            Some((x.parse().ok()?, rest.split('m').next()?.parse().ok()?))
        })
        .collect();
    assert_eq!(marks.len(), 4, "{svg}");
    assert!(marks.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 >= pair[1].1), "{marks:?}");
    assert!(marks.iter().all(|(x, y)| (72.0..=628.0).contains(x) && (10.0..=280.0).contains(y)), "{marks:?}");
    // Equal ratios are equal lengths.
    let steps: Vec<f64> = marks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(steps.iter().all(|step| (step - steps[0]).abs() < 0.2), "{steps:?}");
}

#[test]
fn text_does_not_steer_the_terminal_and_keeps_to_its_width() {
    let text = render::text(&full());
    assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text:?}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains("NaN") && !text.contains(" inf"), "{text}");
}

#[test]
fn the_schema_in_the_repository_is_that_of_the_types() {
    let generated = report_schema();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(FILE, &generated).expect("the folder of schemas can be written");
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        committed == generated,
        "schemas/bench-report.schema.json is not that of the types any more. Write it again with:\n\
         UPDATE_EXPECT=1 cargo test -p commtrace-bench --test report_render"
    );
}

#[test]
fn reports_satisfy_the_schema_and_come_back() {
    let schema: Value = serde_json::from_str(&report_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for report in [full(), of(Vec::new())] {
        let text = render::json(&report);
        let document: Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
        let back: BenchReport = serde_json::from_str(&text).unwrap();
        assert_eq!(render::json(&back), text);
    }
    let mut broken: Value = serde_json::from_str(&render::json(&full())).unwrap();
    broken["groups"][0]["curves"][0]["points"][0]["median_max_rank_ms"] = Value::from("long");
    assert!(!validator.is_valid(&broken));
}
