//! What NCCL's own tools tell beside intervals.

use super::layout::{Column, Page, counted};
use crate::analyze::{InputReport, Report};
use crate::nccl::{Inspector, Measure, NcclLog, NcclTests, Place, TestRow};
use crate::units;

/// Members of a communicator that are named as behind, at most.
const NAMED: usize = 8;

/// Whether an input tells such.
pub(super) fn has_facts(report: &Report) -> bool {
    report
        .inputs
        .iter()
        .any(|input| input.nccl_log.is_some() || input.nccl_tests.is_some() || input.inspector.is_some())
}

/// The first lines of a report that has such facts and no intervals; false if it has none.
pub(super) fn headline(page: &mut Page, report: &Report) -> bool {
    if !has_facts(report) {
        return false;
    }
    for input in &report.inputs {
        if let Some(tests) = &input.nccl_tests {
            page.line(&format!("commtrace: nccl-tests {}", title(tests)));
            page.line("");
            tests_reading(page, tests);
        } else if let Some(log) = &input.nccl_log {
            page.line(&format!(
                "commtrace: NCCL debug log, {} of {}",
                counted(log.messages, "message", "messages"),
                counted(log.processes, "process", "processes")
            ));
            page.line("");
            log_reading(page, log);
        }
    }
    if !report.warnings.is_empty() {
        page.entry("Warnings", &format!("{}, at the end of this report", report.warnings.len()));
    }
    true
}

/// The facts of all inputs.
pub(super) fn facts(page: &mut Page, report: &Report) {
    for input in &report.inputs {
        if let Some(inspector) = &input.inspector {
            inspector_table(page, inspector, input);
        }
        if let Some(tests) = &input.nccl_tests {
            if !report.ranks.is_empty() {
                page.heading(&format!("nccl-tests {} ({})", title(tests), input.path));
                tests_reading(page, tests);
            }
            tests_table(page, tests);
        }
        if let Some(log) = &input.nccl_log {
            if !report.ranks.is_empty() {
                page.heading(&format!("NCCL debug log ({})", input.path));
                log_reading(page, log);
            }
            log_tables(page, log);
        }
    }
}

fn title(tests: &NcclTests) -> String {
    let name = tests.program.as_deref().or(tests.op.as_deref()).unwrap_or("table");
    let ranks = match tests.devices.len() {
        0 => String::new(),
        ranks => format!(", {}", counted(ranks as u64, "rank", "ranks")),
    };
    format!("{name}{ranks}, {}", counted(tests.rows.len() as u64, "size", "sizes"))
}

fn gbs(value: f64) -> String {
    format!("{value:.2} GB/s")
}

fn at(row: &TestRow, place: Place) -> String {
    format!("at {}, {}", units::bytes(row.bytes), place.as_str())
}

fn tests_reading(page: &mut Page, tests: &NcclTests) {
    if let Some((row, place, measure)) = tests.best_busbw() {
        let algbw = gbs(measure.algbw_gbs);
        page.entry("Best busbw", &format!("{} (algbw {algbw}) {}", gbs(measure.busbw_gbs), at(row, place)));
    }
    if let Some((row, place, measure)) = tests.latency() {
        page.entry("Latency", &format!("{} {}", units::ms(measure.time_us / 1e3), at(row, place)));
    }
    if let Some(average) = tests.average_busbw_gbs {
        page.entry("Average busbw", &gbs(average));
    }
    let wrong: Vec<_> = tests.wrong().collect();
    if let Some((row, place, measure)) = wrong.first() {
        page.entry(
            "Wrong results",
            &format!(
                "{} with wrong elements, the first {} ({} elements): these figures are of a broken run",
                counted(wrong.len() as u64, "measurement", "measurements"),
                at(row, *place),
                measure.wrong.unwrap_or(0.0)
            ),
        );
    } else if tests.out_of_bounds.is_some_and(|count| count > 0) {
        let count = tests.out_of_bounds.unwrap_or(0);
        page.entry("Wrong results", &format!("{count} out of bounds by the summary"));
    } else if tests.rows.iter().flat_map(TestRow::measures).all(|(_, measure)| measure.wrong.is_none()) {
        page.entry("Wrong results", "not checked");
    } else {
        page.entry("Wrong results", "none");
    }
    for error in tests.errors.iter().take(3) {
        page.entry("Error", error);
    }
    let versions = [("NCCL", &tests.nccl_version), ("nccl-tests", &tests.version)];
    let versions: Vec<String> =
        versions.iter().filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?))).collect();
    if !versions.is_empty() {
        page.entry("Versions", &versions.join(", "));
    }
}

fn tests_table(page: &mut Page, tests: &NcclTests) {
    if tests.rows.is_empty() {
        return;
    }
    page.heading("Sizes (time, bus bandwidth and wrong elements: out-of-place, then in-place)");
    let columns = [
        Column::Figures("size"),
        Column::Words("type"),
        Column::Figures("time"),
        Column::Figures("busbw"),
        Column::Figures("wrong"),
        Column::Figures("time"),
        Column::Figures("busbw"),
        Column::Figures("wrong"),
    ];
    let cells = |measure: Option<Measure>| {
        let measure = measure.as_ref();
        [
            measure.map_or_else(String::new, |measure| units::ms(measure.time_us / 1e3)),
            measure.map_or_else(String::new, |measure| gbs(measure.busbw_gbs)),
            match measure.map(|measure| measure.wrong) {
                Some(Some(wrong)) => wrong.to_string(),
                Some(None) => "N/A".to_owned(),
                None => String::new(),
            },
        ]
    };
    let rows = tests.rows.iter().map(|row| {
        let mut cell = vec![units::bytes(row.bytes), row.dtype.clone()];
        cell.extend(cells(row.out_of_place));
        cell.extend(cells(row.in_place));
        cell
    });
    page.table_in_full(&columns, rows.collect());
}

fn log_reading(page: &mut Page, log: &NcclLog) {
    let or_none = |list: &[String]| if list.is_empty() { "not said".to_owned() } else { list.join(", ") };
    page.entry("NCCL", &or_none(&log.versions));
    let sizes: Vec<String> = log
        .communicators
        .iter()
        .take(NAMED)
        .map(|communicator| format!("{} of {}", communicator.members.len(), communicator.nranks))
        .collect();
    let more = log.communicators.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    page.entry(
        "Communicators",
        &match log.communicators.len() {
            0 => "none said to be made".to_owned(),
            count => format!("{count}; ranks in this log: {}{more}", sizes.join(", ")),
        },
    );
    page.entry("Networks", &or_none(&log.networks));
    for communicator in &log.communicators {
        let behind = communicator.stragglers();
        let Some(first) = behind.first() else { continue };
        let ranks: Vec<String> = behind.iter().take(NAMED).map(|member| member.rank.to_string()).collect();
        let last = first
            .last_call
            .as_ref()
            .map_or_else(|| "none".to_owned(), |call| format!("{}, number {}", call.op, call.op_count));
        page.entry(
            "Behind",
            &format!(
                "rank {}{} of {} stopped earlier in its calls than others; the first one's last call: {last}",
                ranks.join(", "),
                if behind.len() > NAMED {
                    format!(" and {} more", behind.len() - NAMED)
                } else {
                    String::new()
                },
                communicator.comm_id.as_deref().unwrap_or("a communicator without an id"),
            ),
        );
    }
    if log.warning_count > 0 {
        page.entry("NCCL warns", &counted(log.warning_count, "time", "times"));
    }
    if log.algorithms.is_empty() {
        page.entry(
            "Algorithms",
            "unconfirmed: the log does not say; NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING makes it",
        );
    }
}

fn log_tables(page: &mut Page, log: &NcclLog) {
    communicators(page, log);
    if !log.transports.is_empty() {
        page.heading("Transports");
        let columns =
            [Column::Words("via"), Column::Figures("connections"), Column::Figures("pairs of ranks")];
        let rows = log.transports.iter().map(|transport| {
            vec![transport.via.clone(), transport.connections.to_string(), transport.pairs.to_string()]
        });
        page.table(&columns, rows.collect(), "transports");
    }
    algorithms(page, log);
    if !log.environment.is_empty() {
        page.heading("Environment");
        for (name, value) in &log.environment {
            page.bullet(&format!("{name}={value}"));
        }
    }
    if !log.warnings.is_empty() {
        page.heading("What NCCL warned of");
        for warning in &log.warnings {
            let source = warning.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
            let count = if warning.count > 1 { format!(", {} times", warning.count) } else { String::new() };
            let host = if warning.host.is_empty() { "unknown host" } else { &warning.host };
            page.bullet(&format!("{}{source}, {host}{count}", warning.message));
        }
    }
}

fn communicators(page: &mut Page, log: &NcclLog) {
    if log.communicators.is_empty() {
        return;
    }
    page.heading("Ranks of communicators");
    let columns = [
        Column::Words("communicator"),
        Column::Figures("rank"),
        Column::Figures("of"),
        Column::Words("host:pid"),
        Column::Figures("device"),
        Column::Words("bus"),
        Column::Figures("calls"),
        Column::Words("last call"),
    ];
    let rows = log.communicators.iter().flat_map(|communicator| {
        communicator.members.iter().map(move |member| {
            let last = member.last_call.as_ref();
            vec![
                communicator.comm_id.clone().unwrap_or_default(),
                member.rank.to_string(),
                communicator.nranks.to_string(),
                format!("{}:{}", member.host, member.pid),
                member.cuda_dev.map_or_else(String::new, |device| device.to_string()),
                member.bus_id.clone().unwrap_or_default(),
                member.calls.to_string(),
                last.map_or_else(String::new, |call| format!("{} #{}", call.op, call.op_count)),
            ]
        })
    });
    page.table(&columns, rows.collect(), "ranks");
}

fn algorithms(page: &mut Page, log: &NcclLog) {
    if log.algorithms.is_empty() && log.calls.is_empty() {
        return;
    }
    page.heading("Algorithms per operation and size");
    let columns = [
        Column::Words("op"),
        Column::Figures("payload"),
        Column::Figures("ranks"),
        Column::Words("algorithm"),
        Column::Words("protocol"),
        Column::Figures("channels"),
        Column::Figures("lines"),
    ];
    let ranks = |ranks: Option<u32>| ranks.map_or_else(String::new, |ranks| ranks.to_string());
    let mut rows: Vec<(String, u64, Vec<String>)> = Vec::new();
    for choice in &log.algorithms {
        let op = choice.op.clone().unwrap_or_else(|| "unknown".to_owned());
        let payload = match choice.bytes {
            Some(bytes) => units::bytes(bytes),
            None => format!("{} a rank", units::bytes(choice.logged_bytes)),
        };
        let cells = vec![
            op.clone(),
            payload,
            ranks(choice.nranks),
            choice.algorithm.clone(),
            choice.protocol.clone().unwrap_or_default(),
            ranks(choice.channels),
            choice.lines.to_string(),
        ];
        rows.push((op, choice.bytes.unwrap_or(choice.logged_bytes), cells));
    }
    for call in &log.calls {
        let told = log
            .algorithms
            .iter()
            .any(|choice| choice.op.as_deref() == Some(call.op.as_str()) && choice.bytes == call.bytes);
        if told {
            continue;
        }
        let cells = vec![
            call.op.clone(),
            call.bytes.map_or_else(|| "unknown".to_owned(), units::bytes),
            ranks(call.nranks),
            "unconfirmed".to_owned(),
            String::new(),
            String::new(),
            counted(call.calls, "call", "calls"),
        ];
        rows.push((call.op.clone(), call.bytes.unwrap_or(0), cells));
    }
    rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    page.table_in_full(&columns, rows.into_iter().map(|(_, _, cells)| cells).collect());
}

fn inspector_table(page: &mut Page, inspector: &Inspector, input: &InputReport) {
    page.heading(&format!("Bandwidth per communicator, by the NCCL Inspector ({})", input.path));
    let columns = [
        Column::Words("communicator"),
        Column::Figures("rank"),
        Column::Figures("of"),
        Column::Words("op"),
        Column::Figures("calls"),
        Column::Figures("bytes"),
        Column::Figures("time"),
        Column::Figures("algbw"),
        Column::Figures("busbw"),
        Column::Figures("slowest"),
    ];
    let rows = inspector.communicators.iter().flat_map(|communicator| {
        communicator.by_op.iter().map(move |(op, figures)| {
            vec![
                communicator.name.clone().unwrap_or_else(|| communicator.id.clone()),
                communicator.comm_rank.to_string(),
                communicator.nranks.to_string(),
                op.clone(),
                figures.count.to_string(),
                units::bytes(figures.bytes),
                units::ms(figures.time_ms),
                units::known(figures.algbw_gbs, gbs),
                units::known(figures.busbw_gbs, gbs),
                units::known(figures.min_busbw_gbs, gbs),
            ]
        })
    });
    page.table(&columns, rows.collect(), "communicators");
    let host = inspector.timing_sources.iter().filter(|(source, _)| *source != "kernel_gpu");
    let host: Vec<String> = host.map(|(source, count)| format!("{count} by {source}")).collect();
    if !host.is_empty() {
        page.note(&format!("Times that contain delays of the host: {}.", host.join(", ")));
    }
}
