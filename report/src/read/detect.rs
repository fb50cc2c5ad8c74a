//! Which format a file has, by its first bytes.

/// Bytes of a file's start that [`detect`] looks at, at most.
pub(super) const SNIFF_BYTES: usize = 512;

/// What the first bytes of a file say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Format {
    /// An Arrow IPC stream; its schema metadata tells whether it is a record file.
    ArrowStream,
    /// A JSON document; its keys tell which one.
    Json,
    /// Something that cannot be read, in words.
    Other(String),
}

/// The format of a file that begins with `start` (which is not empty).
pub(super) fn detect(start: &[u8]) -> Format {
    const KNOWN: [(&[u8], &str); 9] = [
        (b"ARROW1", "this is an Arrow IPC file (Feather), record files are Arrow IPC streams"),
        (b"\x1f\x8b", "this is gzip data that cannot be read as it is, decompress it first (gunzip)"),
        (b"\x28\xb5\x2f\xfd", "this is zstd data that cannot be read as it is, decompress it first (unzstd)"),
        (b"SQLite format 3\0", "this is an SQLite database"),
        (b"PK\x03\x04", "this is a zip archive"),
        (b"PAR1", "this is a Parquet file"),
        (b"\x89PNG", "this is a PNG image"),
        (b"%PDF", "this is a PDF document"),
        (b"\x7fELF", "this is a program"),
    ];
    // An encapsulated message begins with the continuation marker; a torn file may hold less of it.
    if start[..start.len().min(4)] == [0xff; 4][..start.len().min(4)] {
        return Format::ArrowStream;
    }
    if let Some((_, found)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Format::Other((*found).to_owned());
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => Format::Json,
        _ => Format::Other(format!("its first bytes ({}) are of no known format", excerpt(start))),
    }
}

fn excerpt(start: &[u8]) -> String {
    let head = &start[..start.len().min(16)];
    match std::str::from_utf8(head) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !c.is_whitespace()) => format!("{text:?}"),
        _ => head.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_content() {
        assert_eq!(detect(b"\xff\xff\xff\xff\x10\0\0\0"), Format::ArrowStream);
        assert_eq!(detect(b"\xff\xff"), Format::ArrowStream);
        assert_eq!(detect(b" \n\t{\"ranks\""), Format::Json);
        assert_eq!(detect(b"\xef\xbb\xbf{}"), Format::Json);
        assert_eq!(detect(b"[1"), Format::Json);
    }

    #[test]
    fn others_are_named() {
        for (start, word) in [
            (&b"\x89PNG\r\n\x1a\n"[..], "PNG"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"SQLite format 3\0", "SQLite"),
            (b"hello world", "hello"),
            (b"\0\x01", "00 01"),
            (b"   ", "\"   \""),
        ] {
            let Format::Other(found) = detect(start) else { panic!("{start:?} was taken for a trace") };
            assert!(found.contains(word), "{found}");
        }
    }
}
