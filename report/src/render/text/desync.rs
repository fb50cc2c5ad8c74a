//! What is out of step, and the state of a run, for people.

use super::layout::{Column, Page, counted};
use crate::analyze::Report;
use crate::analyze::desync::{
    CallDiagnosis, Desync, DesyncKind, DesyncSide, Diagnosis, RankDiagnosis, RankRuns, RunVerdict,
};
use crate::read::ranges;
use crate::units;

/// The section of a report; nothing if all is in step.
pub(super) fn section(page: &mut Page, report: &Report) {
    let Some(desync) = report.cross_rank.as_ref().map(|across| &across.desync).filter(|all| !all.is_empty())
    else {
        return;
    };
    page.heading("Out of step (causes first; `commtrace doctor` says more)");
    for finding in desync.iter().take(page.max_rows) {
        page.bullet(&sentence(finding));
    }
    if desync.len() > page.max_rows {
        page.note(&format!("({} more not shown)", desync.len() - page.max_rows));
    }
}

/// The diagnosis of a run, in the order in which it is asked for.
pub(super) fn diagnosis(page: &mut Page, diagnosis: &Diagnosis) {
    page.line(&format!("commtrace doctor: {}", verdict(diagnosis)));
    page.line("");
    let ranks = match diagnosis.world_size {
        Some(size) => format!("{} of {} read", diagnosis.ranks.len(), counted(size.into(), "rank", "ranks")),
        None => format!("{} read", counted(diagnosis.ranks.len() as u64, "rank", "ranks")),
    };
    page.entry("Ranks", &format!("{ranks}{}", states(&diagnosis.ranks)));

    let those = |wanted: fn(&Desync) -> bool| -> Vec<&Desync> {
        diagnosis.desync.iter().filter(|one| wanted(one)).collect()
    };
    let stuck = those(Desync::is_stuck);
    findings(page, "Stuck: who, in what, since when, who is missing (causes first)", &stuck);
    findings(page, "Ranks that stopped or have no record", &those(Desync::is_of_ranks));
    findings(page, "Disagreements that the run went past", &those(Desync::was_passed));

    rank_table(page, diagnosis);
    if !diagnosis.next.is_empty() {
        page.heading("What to do next");
        diagnosis.next.iter().for_each(|next| page.bullet(next));
    }
    if !diagnosis.warnings.is_empty() {
        page.heading("What the records say of themselves");
        diagnosis.warnings.iter().take(page.max_rows).for_each(|warning| page.bullet(warning));
        if diagnosis.warnings.len() > page.max_rows {
            page.note(&format!("({} more not shown)", diagnosis.warnings.len() - page.max_rows));
        }
    }
}

fn verdict(diagnosis: &Diagnosis) -> String {
    let first = || diagnosis.desync.first().map(headline).unwrap_or_default();
    match diagnosis.verdict {
        RunVerdict::Stuck => format!("stuck: {}", first()),
        RunVerdict::Disagreeing => format!("ranks disagree: {}", first()),
        RunVerdict::Stopped => format!("nothing is stuck, and the run did not end regularly: {}", first()),
        RunVerdict::Running => "nothing is stuck: the run goes on".to_owned(),
        RunVerdict::Ended => "nothing is stuck: the run ended regularly".to_owned(),
        RunVerdict::Unknown => "nothing is stuck as far as the inputs tell".to_owned(),
    }
}

/// `: 3 running, 1 stopped`.
fn states(ranks: &[RankDiagnosis]) -> String {
    let all = [RankRuns::Running, RankRuns::Stopped, RankRuns::Cut, RankRuns::Ended, RankRuns::Unknown];
    let counts: Vec<String> = all
        .into_iter()
        .map(|state| (state, ranks.iter().filter(|rank| rank.state == state).count()))
        .filter(|&(_, count)| count > 0)
        .map(|(state, count)| format!("{count} {}", in_words(state)))
        .collect();
    if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) }
}

fn in_words(state: RankRuns) -> &'static str {
    match state {
        RankRuns::Running => "running",
        RankRuns::Stopped => "stopped",
        RankRuns::Cut => "without an end",
        RankRuns::Ended => "ended regularly",
        RankRuns::Unknown => "of unknown end",
    }
}

fn findings(page: &mut Page, heading: &str, findings: &[&Desync]) {
    if findings.is_empty() {
        return;
    }
    page.heading(heading);
    for (number, finding) in findings.iter().take(page.max_rows).enumerate() {
        if number > 0 {
            page.line("");
        }
        finding_in_full(page, finding);
    }
    if findings.len() > page.max_rows {
        page.note(&format!("({} more not shown)", findings.len() - page.max_rows));
    }
}

fn finding_in_full(page: &mut Page, finding: &Desync) {
    page.note(&format!("{}.", capital(&headline(finding))));
    if !finding.waiting.is_empty() {
        page.entry("In it", &format!("{}{}", ranks(&finding.waiting), since(finding)));
    } else if finding.since_ms.is_some() && finding.kind == DesyncKind::Stopped {
        page.entry("Last sign", &moment(finding));
    } else if !finding.entered.is_empty() {
        page.entry("Entered by", &format!("{}, {}", ranks(&finding.entered), moment(finding)));
    }
    if !finding.missing.is_empty() {
        page.entry("Missing", &ranks(&finding.missing));
    }
    if !finding.not_read.is_empty() && finding.kind != DesyncKind::NoRecord {
        page.entry("Not read", &ranks(&finding.not_read));
    }
    for side in &finding.sides {
        page.entry("Says", &side_in_words(side));
    }
    if let Some(blocked) = &finding.blocked_by {
        let what = call(blocked.op.as_deref(), blocked.seq, blocked.comm.as_deref());
        page.entry("Held up by", &format!("{what}, which {} is in", ranks(&blocked.ranks)));
    }
    if finding.in_cycle {
        page.entry("Cycle", "who is missing here waits for somebody who waits here");
    }
    for weakened in &finding.weakened {
        page.entry("Weakened", weakened);
    }
}

/// A finding in one sentence.
pub(crate) fn sentence(finding: &Desync) -> String {
    let mut text = headline(finding);
    if let Some(waited) = finding.waited_ms {
        text += &format!(", for {} at least", units::ms(waited));
    }
    if let Some(blocked) = &finding.blocked_by {
        let what = call(blocked.op.as_deref(), blocked.seq, blocked.comm.as_deref());
        text += &format!(" (held up by {what})");
    }
    text.push('.');
    for weakened in &finding.weakened {
        text += &format!(" {weakened}");
    }
    capital(&text)
}

/// What is wrong, without when.
fn headline(finding: &Desync) -> String {
    let few = numbered(finding);
    let what = called(finding);
    match finding.kind {
        DesyncKind::Missing if finding.missing.is_empty() => {
            format!("{few} without a record may be missing in {what}")
        }
        DesyncKind::Missing => format!("{few} did not enter {what}"),
        DesyncKind::Extra => format!("only {few} entered {what}"),
        DesyncKind::Stalled if finding.ranks.is_empty() => {
            format!("all ranks that were read are in {what}, and it does not end")
        }
        DesyncKind::Stalled => format!("{few} does not leave {what}"),
        DesyncKind::Op => format!("{few} called another op than the others in {what}"),
        DesyncKind::Bytes => format!("{few} gave another payload than the others in {what}"),
        DesyncKind::Dtype => format!("{few} gave another element type than the others in {what}"),
        DesyncKind::SendWithoutRecv => {
            format!("{few} did not receive what {} sent in {what}", ranks(&finding.entered))
        }
        DesyncKind::RecvWithoutSend => {
            format!("{few} did not send what {} waits for in {what}", ranks(&finding.entered))
        }
        DesyncKind::Stopped => format!("the record of {few} breaks off"),
        DesyncKind::NoRecord => format!("there is no record of {few}"),
    }
}

fn called(finding: &Desync) -> String {
    let mut text = call(finding.op.as_deref(), finding.seq, finding.comm.as_deref());
    let mut facts = Vec::new();
    facts.extend(finding.comm_size.map(|size| counted(size.into(), "rank", "ranks")));
    facts.extend(finding.bytes.map(units::bytes));
    if !facts.is_empty() {
        text += &format!(" ({})", facts.join(", "));
    }
    text
}

fn call(op: Option<&str>, seq: Option<u64>, comm: Option<&str>) -> String {
    let mut text = op.unwrap_or("a call").to_owned();
    if let Some(seq) = seq {
        text += &format!(" number {seq}");
    }
    if let Some(comm) = comm {
        text += &format!(" of {comm}");
    }
    text
}

/// The few, with their numbers inside the communicator where these differ.
fn numbered(finding: &Desync) -> String {
    let inside: Option<Vec<u32>> = finding.comm_ranks.iter().copied().collect();
    let mut text = ranks(&finding.ranks);
    if let (Some(inside), Some(comm)) = (inside, &finding.comm)
        && inside != finding.ranks
        && !inside.is_empty()
        && inside.len() <= 8
    {
        let inside: Vec<String> = inside.iter().map(u32::to_string).collect();
        text += &format!(" (in {comm} number {})", inside.join(", "));
    }
    text
}

fn ranks(ranks: &[u32]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", ranges(ranks.iter().copied(), 8))
}

fn since(finding: &Desync) -> String {
    let waited = finding.waited_ms.map_or_else(String::new, |ms| format!(", for {} at least", units::ms(ms)));
    match (finding.since_ms, finding.since_unix_ms) {
        (None, None) => waited,
        _ => format!(", since {}{waited}", moment(finding)),
    }
}

/// When: the time of day where it is known, and how far into the run.
fn moment(finding: &Desync) -> String {
    let into = finding.since_ms.map(|ms| format!("{} into the run", units::ms(ms)));
    match (finding.since_unix_ms, into) {
        (Some(unix), Some(into)) => format!("{} ({into})", units::utc(unix)),
        (Some(unix), None) => units::utc(unix),
        (None, into) => into.unwrap_or_else(|| "at a time that was not recorded".to_owned()),
    }
}

fn side_in_words(side: &DesyncSide) -> String {
    let mut text = side.op.clone();
    if let Some(bytes) = side.bytes {
        // Two payloads that differ in a byte look alike in larger units.
        text += &format!(", {bytes} bytes");
    }
    if let Some(dtype) = &side.dtype {
        text += &format!(", {dtype}");
    }
    format!("{text}: {}", ranks(&side.ranks))
}

/// Where each rank is: those that stopped or are in a call first.
fn rank_table(page: &mut Page, diagnosis: &Diagnosis) {
    if diagnosis.ranks.is_empty() {
        return;
    }
    page.heading("Where the ranks are");
    let columns = [
        Column::Figures("rank"),
        Column::Words("host"),
        Column::Figures("process"),
        Column::Words("state"),
        Column::Words("last sign"),
        Column::Words("is in"),
        Column::Words("left last"),
    ];
    let mut ranks: Vec<&RankDiagnosis> = diagnosis.ranks.iter().collect();
    if ranks.len() > page.max_rows {
        let few = |rank: &RankDiagnosis| diagnosis.desync.iter().any(|one| one.ranks.contains(&rank.rank));
        ranks.sort_by_key(|rank| (!few(rank), rank.state != RankRuns::Stopped, rank.inside.is_empty()));
    }
    let unknown = || "unknown".to_owned();
    let rows = ranks
        .into_iter()
        .map(|rank| {
            vec![
                rank.rank.to_string(),
                rank.host.clone().unwrap_or_else(unknown),
                rank.pid.map_or_else(unknown, |pid| pid.to_string()),
                in_words(rank.state).to_owned(),
                sign(rank),
                rank.inside.first().map_or_else(|| "no call".to_owned(), |call| inside(call, rank)),
                rank.last.as_ref().map_or_else(|| "no call".to_owned(), one_call),
            ]
        })
        .collect();
    page.table(&columns, rows, "ranks");
}

fn sign(rank: &RankDiagnosis) -> String {
    match (rank.silent_ms, rank.seen_unix_ms) {
        (Some(silent), _) if rank.state != RankRuns::Ended => format!("{} ago", units::ms(silent)),
        (_, Some(seen)) => units::utc(seen),
        _ => "unknown".to_owned(),
    }
}

fn inside(call: &CallDiagnosis, rank: &RankDiagnosis) -> String {
    let mut text = one_call(call);
    if let Some(ms) = call.for_ms {
        text += &format!(", for {}", units::ms(ms));
    }
    if rank.inside.len() > 1 {
        text += &format!(" and {} more", rank.inside.len() - 1);
    }
    text
}

fn one_call(call: &CallDiagnosis) -> String {
    self::call(Some(&call.op), call.seq, call.comm.as_deref())
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
