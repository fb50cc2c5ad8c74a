//! Lines that fit the width: headings, wrapped sentences, tables.
//!
//! What comes from inputs is cleaned here of what would steer a terminal.

use super::TextOptions;
use crate::render::steers;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};
use std::borrow::Cow;

/// Characters of a table's cell, at most: names of kernels may have thousands.
const LONGEST_CELL: usize = 120;
/// Characters of a word in a sentence, at most. Paths count as words, and are to be whole.
const LONGEST_WORD: usize = 480;

/// A report as text under construction.
///
/// Lines are wrapped, long cells are shortened, and characters that would steer a terminal are replaced.
///
/// ```
/// use commtrace_report::render::{TextOptions, TextPage};
/// let mut page = TextPage::new(&TextOptions::default());
/// page.note("all\u{1b}[31m_reduce");
/// assert_eq!(page.finish(), "  all [31m_reduce\n");
/// ```
#[derive(Debug)]
pub struct Page {
    out: String,
    width: usize,
    pub(super) max_rows: usize,
}

/// What a column of a [`TextPage`](Page) holds, with its heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Left-aligned.
    Words(&'static str),
    /// Right-aligned.
    Figures(&'static str),
}

impl Page {
    /// An empty page.
    pub fn new(options: &TextOptions) -> Self {
        let width = usize::from(options.width.max(60));
        Self { out: String::new(), width, max_rows: options.max_rows.max(1) }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.out
    }

    /// A line of its own at the left margin.
    pub fn line(&mut self, text: &str) {
        self.wrapped("", "", text);
    }

    /// A heading, after an empty line.
    pub fn heading(&mut self, text: &str) {
        self.out.push('\n');
        self.line(text);
    }

    /// A sentence below a heading.
    pub fn note(&mut self, text: &str) {
        self.wrapped("  ", "  ", text);
    }

    /// One item of a list below a heading.
    pub fn bullet(&mut self, text: &str) {
        self.wrapped("  - ", "    ", text);
    }

    /// A named value; names stand in a column of their own.
    pub fn entry(&mut self, name: &str, text: &str) {
        self.wrapped(&format!("  {name:<15}"), &" ".repeat(17), text);
    }

    /// A table of at most [`TextOptions::max_rows`] rows; `what` names the rows in what is said about
    /// those left out.
    pub fn table(&mut self, columns: &[Column], mut rows: Vec<Vec<String>>, what: &str) {
        let left_out = rows.len().saturating_sub(self.max_rows);
        rows.truncate(self.max_rows);
        self.table_in_full(columns, rows);
        if left_out > 0 {
            self.note(&format!("({left_out} more {what} not shown)"));
        }
    }

    /// A table of all `rows`.
    pub fn table_in_full(&mut self, columns: &[Column], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('-').junction('-')));
        // Two columns are the indent.
        let width = u16::try_from(self.width - 2).unwrap_or(u16::MAX);
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(columns.iter().map(|column| match column {
            Column::Words(name) | Column::Figures(name) => *name,
        }));
        for row in rows {
            table.add_row(row.iter().map(|cell| clean(&shortened(cell, LONGEST_CELL))));
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
    /// than a line goes on in the next.
    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        let mut line = first.to_string();
        let mut used = first.chars().count();
        let mut empty = true;
        for word in clean(text).split_whitespace() {
            let word = shortened(word, LONGEST_WORD);
            let mut word = word.as_ref();
            loop {
                let gap = usize::from(!empty);
                let length = word.chars().count();
                if used + gap + length <= self.width {
                    if !empty {
                        line.push(' ');
                    }
                    line.push_str(word);
                    used += gap + length;
                    empty = false;
                    break;
                }
                if empty {
                    let room = self.width.saturating_sub(used).max(1);
                    let end = word.char_indices().nth(room).map_or(word.len(), |(end, _)| end);
                    let (piece, left) = word.split_at(end);
                    line.push_str(piece);
                    word = left;
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

/// Names come from inputs and must not steer the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// `text`, or its beginning and end where it is longer than `most` characters.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most || text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let head = most / 2;
    let tail = most.saturating_sub(head + 1);
    let mut end: Vec<char> = text.chars().rev().take(tail).collect();
    end.reverse();
    Cow::Owned(text.chars().take(head).chain(['…']).chain(end).collect())
}

/// `one` or `many` with its number: `1 rank`, `2 ranks`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
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
    fn very_long_names_show_their_beginning_and_end() {
        assert_eq!(shortened("abcdefg", 7), "abcdefg");
        assert_eq!(shortened("äbcdefgh", 7), "äbc…fgh");
        let mut page = Page::new(&TextOptions { width: 60, max_rows: 3 });
        let name = format!("first{}last", "ü".repeat(1 << 20));
        page.note(&name);
        page.table(&[Column::Words("name")], vec![vec![name]], "rows");
        let out = page.finish();
        assert!(out.chars().count() < 2 * (LONGEST_WORD + LONGEST_CELL), "{}", out.len());
        for part in ["first", "…", "last"] {
            assert_eq!(out.matches(part).count(), 2, "{part}: {out}");
        }
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let mut page = Page::new(&TextOptions::default());
        page.note("all\u{1b}[31mreduce\u{202e}ecuder\u{2066}");
        page.table(&[Column::Words("op")], vec![vec!["\u{9b}31m\u{202b}\u{2069}".into()]], "ops");
        let out = page.finish();
        assert!(!out.chars().any(|c| c != '\n' && steers(c)), "{out:?}");
    }
}
