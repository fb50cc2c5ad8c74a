//! The page: escaping, tables, style.

use crate::render::steers;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1c2024;--soft:#60646c;--line:#d9d9e0;--back:#fff;\
--compute:#8bb4e8;--overlap:#3fa46a;--exposed:#d9534f;--idle:#e8e8ec}\
@media(prefers-color-scheme:dark){:root{--text:#edeef0;--soft:#b0b4ba;--line:#43484e;--back:#18191b;\
--compute:#3b6ea8;--overlap:#2f8555;--exposed:#c94743;--idle:#2e3135}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:68rem;\
margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem;margin-bottom:0}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);text-align:right}\
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dt{color:var(--soft)}dd{margin:0}\
.wide{overflow-x:auto}svg{max-width:100%;height:auto}svg text{fill:var(--text);font:12px system-ui,sans-serif}\
.compute{fill:var(--compute)}.overlap{fill:var(--overlap)}.exposed{fill:var(--exposed)}.idle{fill:var(--idle)}\
.axis{stroke:var(--line)}.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}\
.key.compute{background:var(--compute)}.key.overlap{background:var(--overlap)}\
.key.exposed{background:var(--exposed)}.key.idle{background:var(--idle)}";

/// A self-contained HTML page under construction: no script, no network, readable in light and dark.
///
/// Texts are escaped.
///
/// ```
/// use commtrace_report::render::HtmlPage;
/// let mut page = HtmlPage::new("run <1>");
/// page.paragraph("a < b");
/// assert!(page.finish().contains("<p>a &lt; b</p>"));
/// ```
#[derive(Debug)]
pub struct Page {
    html: String,
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Self::with_style(title, "")
    }

    /// An empty page with more rules (CSS) than those of [`new`](Self::new). They are not escaped.
    pub fn with_style(title: &str, more: &str) -> Self {
        let title = escape(title);
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
                 <style>{STYLE}{more}</style></head><body>\n"
            ),
        }
    }

    /// A heading of level 1 to 6.
    pub fn heading(&mut self, level: u8, text: &str) {
        self.line(&format!("<h{level}>{}</h{level}>", escape(text)));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.line(&format!("<p>{}</p>", escape(text)));
    }

    /// A list.
    pub fn list(&mut self, items: &[impl AsRef<str>]) {
        self.line("<ul>");
        for item in items {
            self.line(&format!("<li>{}</li>", escape(item.as_ref())));
        }
        self.line("</ul>");
    }

    /// Names with their values.
    pub fn facts(&mut self, facts: &[(&str, String)]) {
        self.line("<dl>");
        for (name, value) in facts {
            self.line(&format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
        }
        self.line("</dl>");
    }

    /// A table of at most `max_rows` rows.
    pub fn table(&mut self, columns: &[&str], rows: Vec<Vec<String>>, max_rows: usize) {
        self.html.push_str("<div class=\"wide\"><table><thead><tr>");
        for column in columns {
            let _ = write!(self.html, "<th>{}</th>", escape(column));
        }
        self.line("</tr></thead><tbody>");
        for row in rows.iter().take(max_rows) {
            self.html.push_str("<tr>");
            for cell in row {
                let _ = write!(self.html, "<td>{}</td>", escape(cell));
            }
            self.line("</tr>");
        }
        self.line("</tbody></table></div>");
        if rows.len() > max_rows {
            self.paragraph(&format!("{} more rows are in the JSON report.", rows.len() - max_rows));
        }
    }

    /// Markup as it is: made of numbers and of texts that went through [`escape`].
    pub fn markup(&mut self, markup: &str) {
        self.line(markup);
    }

    /// The page.
    pub fn finish(mut self) -> String {
        self.line("</body></html>");
        self.html
    }

    fn line(&mut self, markup: &str) {
        self.html.push_str(markup);
        self.html.push('\n');
    }
}

/// Text for element content and quoted attributes. Characters that would steer what shows it become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(c),
            // HTML has no place for them, and what stands between them would be shown out of order.
            _ if steers(c) => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_nothing_else() {
        assert_eq!(escape("<b title='\"'>&"), "&lt;b title=&#39;&quot;&#39;&gt;&amp;");
        assert_eq!(
            escape("a\0b\u{1b}[31m\u{9b}\u{202e}\tc\nd"),
            "a\u{fffd}b\u{fffd}[31m\u{fffd}\u{fffd}\tc\nd"
        );
    }
}
