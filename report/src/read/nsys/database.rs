//! An SQLite database that is only read, and not trusted: neither what its tables are nor what is in them.

use super::content::Content;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Rows};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;

/// The longest text or blob that is taken into memory, in bytes.
const LONGEST_VALUE: i32 = 16 << 20;
/// A row takes at least this many bytes of a file.
const SHORTEST_ROW: u64 = 4;

/// A database.
pub(super) struct Database {
    connection: Connection,
    /// Columns of each table.
    tables: HashMap<String, Vec<String>>,
    /// Rows that a table of this file can have at most: a damaged file may claim more without an end.
    most_rows: u64,
    /// What could not be read, in words.
    pub faults: Vec<String>,
}

impl Database {
    /// Opens `content`. The error says why that cannot be done.
    pub fn open(content: &Content) -> Result<Self, String> {
        let mut database = Self {
            connection: connect(content).map_err(|error| words(&error))?,
            tables: HashMap::new(),
            most_rows: content.length / SHORTEST_ROW,
            faults: Vec::new(),
        };
        let names = match database.table_names() {
            Ok(names) => names,
            Err(error) if is_damage(&error) => {
                // SQLite does not open a file that is shorter than its header says, nor one whose schema is
                // damaged in part, unless it is told that the schema may be wrong.
                database.pragma("writable_schema", "ON").map_err(|error| words(&error))?;
                database.table_names().map_err(|error| words(&error))?
            }
            Err(error) => return Err(words(&error)),
        };
        for name in names {
            match database.columns_of(&name) {
                Ok(columns) => {
                    database.tables.insert(name, columns);
                }
                Err(error) => {
                    database.faults.push(format!("table {name} cannot be read ({})", words(&error)))
                }
            }
        }
        Ok(database)
    }

    fn pragma(&self, name: &str, value: &str) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(&format!("PRAGMA {name} = {value}"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    /// Tables that are stored in the file: no views and no virtual tables, which may compute without end.
    fn table_names(&self) -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut names = Vec::new();
        while let Some(row) = rows.next()? {
            if let ValueRef::Text(name) = row.get_ref(0)? {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(names)
    }

    fn columns_of(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let mut statement = self.connection.prepare(&format!("PRAGMA table_info({})", quoted(table)))?;
        let mut rows = statement.query([])?;
        let mut columns = Vec::new();
        while let Some(row) = rows.next()? {
            if let ValueRef::Text(name) = row.get_ref(1)? {
                columns.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(columns)
    }

    /// Names of all tables, in order.
    pub fn tables(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.tables.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Whether there is such a table.
    pub fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether there is such a column.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.iter().any(|one| one == column))
    }

    /// Gives all rows of `table` to `each`, in the order in which they are stored, with the values of
    /// `columns`; a column that is not there has none. Of a table that is not there, there are no rows. What
    /// cannot be read is noted in [`faults`](Self::faults).
    pub fn scan(&mut self, table: &str, columns: &[&str], each: impl FnMut(&Cells<'_>)) {
        if !self.has(table) {
            return;
        }
        let mut read = 0;
        if let Err(why) = self.try_scan(table, columns, &mut read, each) {
            let fault = match read {
                0 => format!("table {table} cannot be read ({why})"),
                _ => format!("table {table} cannot be read beyond its first {read} rows ({why})"),
            };
            self.faults.push(fault);
        }
    }

    fn try_scan(
        &self,
        table: &str,
        columns: &[&str],
        read: &mut u64,
        mut each: impl FnMut(&Cells<'_>),
    ) -> Result<(), String> {
        let mut list = String::new();
        for &column in columns {
            let separator = if list.is_empty() { "" } else { ", " };
            let value = if self.has_column(table, column) { quoted(column) } else { "NULL".to_owned() };
            // Writing to a string does not fail.
            let _ = write!(list, "{separator}{value}");
        }
        // An index, which may be damaged or tampered with, is of no use to a scan.
        let sql = format!("SELECT {list} FROM {} NOT INDEXED", quoted(table));
        let mut statement = self.connection.prepare(&sql).map_err(|error| words(&error))?;
        let mut rows: Rows<'_> = statement.query([]).map_err(|error| words(&error))?;
        while let Some(row) = rows.next().map_err(|error| words(&error))? {
            if *read >= self.most_rows {
                return Err("it has more rows than the file has room for".to_owned());
            }
            *read += 1;
            each(&Cells(row));
        }
        Ok(())
    }
}

/// The values of a row.
pub(super) struct Cells<'a>(&'a Row<'a>);

impl Cells<'_> {
    fn get(&self, index: usize) -> ValueRef<'_> {
        self.0.get_ref(index).unwrap_or(ValueRef::Null)
    }

    /// A whole number, also one that is stored as text or as a floating-point number.
    pub fn integer(&self, index: usize) -> Option<i64> {
        match self.get(index) {
            ValueRef::Integer(value) => Some(value),
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            ValueRef::Real(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(value as i64),
            _ => None,
        }
    }

    /// A whole number that is not negative and fits.
    pub fn number(&self, index: usize) -> Option<u32> {
        u32::try_from(self.integer(index)?).ok()
    }

    /// A text, bytes that are not UTF-8 replaced.
    pub fn text(&self, index: usize) -> Option<Cow<'_, str>> {
        match self.get(index) {
            ValueRef::Text(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    /// Bytes: a blob, or a text of hexadecimal digits.
    pub fn bytes(&self, index: usize) -> Option<Cow<'_, [u8]>> {
        match self.get(index) {
            ValueRef::Blob(bytes) => Some(Cow::Borrowed(bytes)),
            ValueRef::Text(text) => hexadecimal(text).map(Cow::Owned),
            _ => None,
        }
    }
}

fn hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

fn connect(content: &Content) -> rusqlite::Result<Connection> {
    // Immutable: nothing is locked, and nothing is written beside the user's file.
    let uri = format!("file:{}?mode=ro&immutable=1", escaped(content.path().as_os_str()));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // A file that is cut while it is mapped ends the process.
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(connection)
}

/// A path as part of a URI.
fn escaped(path: &OsStr) -> String {
    let mut uri = String::new();
    for &byte in path.as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(byte)),
            _ => {
                // Writing to a string does not fail.
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    // `//` at the start of a path would be the beginning of a host's name.
    if uri.starts_with("//") { format!("//{uri}") } else { uri }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure))
}

fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}
