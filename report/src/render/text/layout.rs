//! Lines that fit the width: headings, wrapped sentences, tables.

use super::TextOptions;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};

/// The text so far.
pub(super) struct Page {
    out: String,
    width: usize,
    pub(super) max_rows: usize,
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Words(&'static str),
    Figures(&'static str),
}

impl Page {
    pub(super) fn new(options: &TextOptions) -> Self {
        let width = usize::from(options.width.max(60));
        Self { out: String::new(), width, max_rows: options.max_rows.max(1) }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// A line of its own at the left margin.
    pub(super) fn line(&mut self, text: &str) {
        self.wrapped("", "", text);
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.out.push('\n');
        self.line(text);
    }

    /// A sentence below a heading.
    pub(super) fn note(&mut self, text: &str) {
        self.wrapped("  ", "  ", text);
    }

    pub(super) fn bullet(&mut self, text: &str) {
        self.wrapped("  - ", "    ", text);
    }

    /// A named value; names stand in a column of their own.
    pub(super) fn entry(&mut self, name: &str, text: &str) {
        self.wrapped(&format!("  {name:<15}"), &" ".repeat(17), text);
    }

    /// A table of at most [`max_rows`](Self::max_rows) rows; `what` names the rows in what is said about
    /// those left out.
    pub(super) fn table(&mut self, columns: &[Column], mut rows: Vec<Vec<String>>, what: &str) {
        let left_out = rows.len().saturating_sub(self.max_rows);
        rows.truncate(self.max_rows);
        self.table_in_full(columns, rows);
        if left_out > 0 {
            self.note(&format!("({left_out} more {what} not shown)"));
        }
    }

    /// A table of all `rows`.
    pub(super) fn table_in_full(&mut self, columns: &[Column], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('-').junction('-')));
        // Two columns are the indent.
        let width = u16::try_from(self.width - 2).unwrap_or(u16::MAX);
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(columns.iter().map(|column| match column {
            Column::Words(name) | Column::Figures(name) => *name,
        }));
        for row in rows {
            table.add_row(row.iter().map(|cell| clean(cell)));
        }
        for (index, kind) in columns.iter().enumerate() {
            let Some(column) = table.column_mut(index) else { continue };
            column.set_padding((0, 1));
            if matches!(kind, Column::Figures(_)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.lines() {
            self.push(&format!("  {line}"));
        }
    }

    /// `text` in lines of the width, the first after `first`, the others after `rest`. A word longer
    /// than a line is cut.
    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        let mut line = first.to_string();
        let mut used = first.chars().count();
        let mut empty = true;
        for word in clean(text).split_whitespace() {
            let mut word: Vec<char> = word.chars().collect();
            loop {
                let gap = usize::from(!empty);
                if used + gap + word.len() <= self.width {
                    if !empty {
                        line.push(' ');
                    }
                    line.extend(&word);
                    used += gap + word.len();
                    empty = false;
                    break;
                }
                if empty {
                    let piece: String = word.drain(..self.width.saturating_sub(used).max(1)).collect();
                    line.push_str(&piece);
                }
                self.push(&line);
                line = rest.to_string();
                used = rest.chars().count();
                empty = true;
            }
        }
        self.push(&line);
    }

    fn push(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }
}

/// Without control characters: names come from inputs and must not steer the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `one` or `many` with its number.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_and_long_words_stay_within_the_width() {
        let mut page = Page::new(&TextOptions { width: 60, max_rows: 3 });
        page.entry("name", &format!("{} {}", "word ".repeat(40), "x".repeat(200)));
        page.table(
            &[Column::Words("path"), Column::Figures("n")],
            (0..5).map(|n| vec!["/a/very/long".repeat(20), n.to_string()]).collect(),
            "rows",
        );
        let out = page.finish();
        assert!(out.lines().all(|line| line.chars().count() <= 60), "{out}");
        assert!(out.contains("(2 more rows not shown)"));
        assert_eq!(out.matches('x').count(), 200);
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let mut page = Page::new(&TextOptions::default());
        page.note("all\u{1b}[31mreduce");
        assert!(!page.finish().contains('\u{1b}'));
    }
}
