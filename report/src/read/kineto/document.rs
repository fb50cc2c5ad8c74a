//! The document around the events: an object with `traceEvents`, or a bare array of events.

use super::event::Event;
use super::json::{Escapes, Members, Stop, Value, ends_word, value};
use super::window::{LONGEST, More, Window};
use memchr::{memchr, memchr2};
use std::io::{self, Read};

/// Content that is skipped may be longer than what is taken into memory, but not without limit.
const LIMITS: Limits = Limits { taken: LONGEST, skipped: 1 << 30 };
/// Bytes that are enough to see how an object begins.
const LOOK_AHEAD: usize = 256;
/// Keys that events begin with, until one was seen.
const EVENT_KEYS: [&[u8]; 6] = [b"\"ph\"", b"\"name\"", b"\"cat\"", b"\"ts\"", b"\"pid\"", b"\"tid\""];

/// Takes what a document holds, in its order.
pub(super) trait Sink {
    /// An event.
    fn event(&mut self, event: &Event<'_>);

    /// Whether the value of a member of the document's object is wanted.
    fn wants(&self, key: &[u8]) -> bool;

    /// A member that is wanted.
    fn member(&mut self, key: &[u8], value: Value<'_>);

    /// Whether nothing that follows is wanted.
    fn is_done(&self) -> bool {
        false
    }
}

/// How long a value may be, in bytes.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// One that is taken into memory.
    taken: usize,
    /// One that is skipped.
    skipped: u64,
}

/// How a document was read.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Events that are no JSON objects that could be read.
    pub malformed: u64,
    /// Elements between the events that are no objects.
    pub not_objects: u64,
    /// The first of the malformed, by its position in the content.
    pub first_malformed: Option<u64>,
    /// Where the content ends although the document does not, and the error that ended it, if one did.
    pub cut: Option<Cut>,
    /// What is wrong with the content behind the document: compressed files end with a checksum.
    pub behind: Option<io::Error>,
    /// Whether there was a list of events at all.
    pub has_events: bool,
    /// Whether the list was the whole document.
    pub bare_array: bool,
    /// Events that were read.
    pub events: u64,
}

/// Where the content ends before the document does.
#[derive(Debug)]
pub(super) struct Cut {
    /// Position in the content.
    pub at: u64,
    /// Why it could not be read on; `None` if the file simply ends.
    pub fault: Option<io::Error>,
}

/// Why a document cannot be read at all.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is something else: no JSON, or a document without events.
    NotATrace,
    /// A value is too long to be one of a trace.
    TooLong {
        /// Where it begins.
        at: u64,
        /// The limit in MiB.
        mib: u64,
    },
}

/// What ends the reading of a part.
enum Break {
    /// The content ends.
    End,
    /// Behind a malformed event, no other was found.
    Lost,
    Fault(Fault),
}

type Part<T> = Result<T, Break>;

/// Reads the whole of `input` into `sink`.
pub(super) fn read(input: impl Read, sink: &mut impl Sink) -> Result<Outcome, Fault> {
    read_within(LIMITS, input, sink)
}

fn read_within(limits: Limits, input: impl Read, sink: &mut impl Sink) -> Result<Outcome, Fault> {
    let window = Window::new(input, limits.taken);
    let mut reader = Reader { window, limits, outcome: Outcome::default(), first_key: Vec::new() };
    let result = reader.document(sink);
    let Reader { mut window, mut outcome, .. } = reader;
    match result {
        Ok(()) if sink.is_done() => {}
        Ok(()) | Err(Break::Lost) => outcome.behind = window.drain(),
        Err(Break::End) => outcome.cut = Some(Cut { at: window.position(), fault: window.fault.take() }),
        Err(Break::Fault(fault)) => return Err(fault),
    }
    Ok(outcome)
}

struct Reader<R> {
    window: Window<R>,
    limits: Limits,
    outcome: Outcome,
    /// The key that events begin with, in quotes: where to go on behind a malformed one.
    first_key: Vec<u8>,
}

impl<R: Read> Reader<R> {
    fn document(&mut self, sink: &mut impl Sink) -> Part<()> {
        while self.window.data().len() < 3 && self.window.more() == More::Data {}
        if self.window.data().starts_with(b"\xef\xbb\xbf") {
            self.window.consume(3);
        }
        match self.window.peek() {
            Some(b'[') => {
                self.outcome.bare_array = true;
                self.events(sink)
            }
            Some(b'{') => self.object(sink),
            Some(_) => Err(Break::Fault(Fault::NotATrace)),
            None => Err(Break::End),
        }
    }

    fn object(&mut self, sink: &mut impl Sink) -> Part<()> {
        self.window.consume(1);
        loop {
            match self.window.peek().ok_or(Break::End)? {
                b'}' => return Ok(()),
                b',' => self.window.consume(1),
                b'"' => {
                    let key = self.take(|value| value.raw().to_owned())?;
                    if self.window.peek().ok_or(Break::End)? != b':' {
                        return Err(self.broken());
                    }
                    self.window.consume(1);
                    let first = self.window.peek().ok_or(Break::End)?;
                    match &key[..] {
                        b"traceEvents" if first == b'[' => self.events(sink)?,
                        b"ranks" | b"compute" | b"comm" if !self.outcome.has_events => {
                            return Err(Break::Fault(Fault::NotATrace));
                        }
                        _ if sink.wants(&key) => {
                            self.take(|value| sink.member(&key, value))?;
                            if sink.is_done() {
                                return Ok(());
                            }
                        }
                        _ => self.skip()?,
                    }
                }
                _ => return Err(self.broken()),
            }
        }
    }

    /// What is not JSON around the events ends the reading; if events were read, as a cut would.
    fn broken(&mut self) -> Break {
        if self.outcome.has_events {
            self.window.fault = Some(io::Error::new(io::ErrorKind::InvalidData, "what follows is not JSON"));
            return Break::End;
        }
        Break::Fault(Fault::NotATrace)
    }

    fn events(&mut self, sink: &mut impl Sink) -> Part<()> {
        self.window.consume(1);
        self.outcome.has_events = true;
        loop {
            match self.window.peek().ok_or(Break::End)? {
                b']' => {
                    self.window.consume(1);
                    return Ok(());
                }
                b',' => self.window.consume(1),
                b'{' => self.next_event(sink)?,
                _ => {
                    self.outcome.not_objects += 1;
                    self.skip()?;
                }
            }
        }
    }

    fn next_event(&mut self, sink: &mut impl Sink) -> Part<()> {
        loop {
            let data = self.window.data();
            let mut parsed = Event::parse(data, Escapes::Strict);
            if matches!(parsed, Err(Stop::Malformed)) {
                // Only what cannot be read as JSON is read as what a writer may have meant.
                parsed = Event::parse(data, Escapes::Lenient);
            }
            match parsed {
                Ok((event, length)) => {
                    sink.event(&event);
                    self.outcome.events += 1;
                    if self.first_key.is_empty()
                        && let Ok(Some((key, _))) = Members::new(data, Escapes::Strict).next()
                    {
                        self.first_key = [b"\"", key, b"\""].concat();
                    }
                    self.window.consume(length);
                    return Ok(());
                }
                Err(Stop::More) => self.more()?,
                Err(Stop::Malformed) => {
                    self.outcome.malformed += 1;
                    self.outcome.first_malformed.get_or_insert(self.window.position());
                    return self.next_beginning();
                }
            }
        }
    }

    /// Moves to where the next event seems to begin, behind one that cannot be read.
    fn next_beginning(&mut self) -> Part<()> {
        self.window.consume(1);
        loop {
            let Some(at) = memchr(b'{', self.window.data()) else {
                self.window.consume(usize::MAX);
                match self.window.more() {
                    More::Data => continue,
                    More::End if self.window.fault.is_none() => return Err(Break::Lost),
                    _ => return Err(Break::End),
                }
            };
            self.window.consume(at);
            while self.window.data().len() < LOOK_AHEAD && self.window.more() == More::Data {}
            if self.begins_event() {
                return Ok(());
            }
            self.window.consume(1);
        }
    }

    /// Whether the object at the window's start begins as events do.
    fn begins_event(&self) -> bool {
        let members = self.window.data().get(1..).unwrap_or_default().trim_ascii_start();
        if self.first_key.is_empty() {
            return EVENT_KEYS.iter().any(|key| members.starts_with(key));
        }
        members.starts_with(&self.first_key)
    }

    /// Takes the value at the window's start into memory.
    fn take<T>(&mut self, mut with: impl FnMut(Value<'_>) -> T) -> Part<T> {
        loop {
            let (result, length) = match value(self.window.data(), 0, Escapes::Strict) {
                Ok((value, length)) => (with(value), length),
                Err(Stop::More) => {
                    self.more()?;
                    continue;
                }
                Err(Stop::Malformed) => return Err(self.broken()),
            };
            self.window.consume(length);
            return Ok(result);
        }
    }

    /// Passes over the value at the window's start without keeping it. A byte that cannot begin a value
    /// is passed over alone.
    fn skip(&mut self) -> Part<()> {
        let begin = self.window.position();
        if !matches!(self.window.data().first(), Some(b'"' | b'{' | b'[')) {
            return self.skip_word(begin);
        }
        let mut depth = 0_u64;
        loop {
            match self.window.data().first() {
                None => self.more()?,
                Some(b'"') => {
                    self.window.consume(1);
                    self.skip_string(begin)?;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.window.consume(1);
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    self.window.consume(1);
                }
                Some(_) => {
                    let plain = |byte: &&u8| !matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
                    let count = self.window.data().iter().take_while(plain).count();
                    self.window.consume(count);
                }
            }
            self.check_length(begin)?;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn skip_word(&mut self, begin: u64) -> Part<()> {
        loop {
            match self.window.data().iter().position(|&byte| ends_word(byte)) {
                Some(length) => {
                    let nothing = length == 0 && self.window.position() == begin;
                    self.window.consume(length + usize::from(nothing));
                    return Ok(());
                }
                None => self.window.consume(usize::MAX),
            }
            self.more()?;
            self.check_length(begin)?;
        }
    }

    /// Passes over a string whose opening quote was consumed.
    fn skip_string(&mut self, begin: u64) -> Part<()> {
        loop {
            let data = self.window.data();
            match memchr2(b'"', b'\\', data) {
                Some(at) if data.get(at) == Some(&b'"') => {
                    self.window.consume(at + 1);
                    return Ok(());
                }
                // Escaped is what follows the backslash, which may not have been read yet.
                Some(at) if at + 1 < data.len() => self.window.consume(at + 2),
                Some(at) => {
                    self.window.consume(at);
                    self.more()?;
                }
                None => {
                    self.window.consume(usize::MAX);
                    self.more()?;
                }
            }
            self.check_length(begin)?;
        }
    }

    fn check_length(&self, begin: u64) -> Part<()> {
        if self.window.position() - begin > self.limits.skipped {
            return Err(Break::Fault(Fault::TooLong { at: begin, mib: self.limits.skipped >> 20 }));
        }
        Ok(())
    }

    fn more(&mut self) -> Part<()> {
        match self.window.more() {
            More::Data => Ok(()),
            More::End => Err(Break::End),
            More::TooLong => {
                let (at, mib) = (self.window.position(), (self.limits.taken >> 20) as u64);
                Err(Break::Fault(Fault::TooLong { at, mib }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the names of events and the members.
    #[derive(Default)]
    struct Names(Vec<String>);

    impl Sink for Names {
        fn event(&mut self, event: &Event<'_>) {
            self.0.push(event.name.map_or("?".into(), |name| name.text().into_owned()));
        }

        fn wants(&self, key: &[u8]) -> bool {
            key == b"wanted"
        }

        fn member(&mut self, _: &[u8], value: Value<'_>) {
            self.0.push(format!("={}", value.text()));
        }
    }

    fn names(text: &[u8]) -> (String, Outcome) {
        let mut sink = Names::default();
        let outcome = read(text, &mut sink).unwrap();
        (sink.0.join(" "), outcome)
    }

    /// Gives one byte at a time.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = 1.min(self.0.len()).min(out.len());
            let (now, later) = self.0.split_at(length);
            out[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }

    const TEXT: &str = "\u{feff} {\"skipped\": {\"a\": [\"x\\\"]\", 1]}, \"wanted\": [1, 2], \"traceEvents\": [\n{\"ph\":\"X\",\"name\":\"a\"},\n{\"ph\":\"X\",\"name\":\"b\",\"args\":{\"q\":\"\\\"}\"}} , 7, \"seven\", {}], \"s\": \"later\", \"n\": NaN, \"wanted\": 3}";

    #[test]
    fn in_pieces_of_any_size() {
        let (found, outcome) = names(TEXT.as_bytes());
        assert_eq!(found, "=[1, 2] a b ? =3");
        assert_eq!((outcome.not_objects, outcome.malformed), (2, 0));
        assert!(outcome.cut.is_none());
        let mut sink = Names::default();
        read(Drip(TEXT.as_bytes()), &mut sink).unwrap();
        assert_eq!(sink.0.join(" "), found);
    }

    #[test]
    fn every_cut_keeps_the_events_before_it() {
        // Not within the mark of byte order, which makes it text at all.
        for length in 3..TEXT.len() {
            let mut sink = Names::default();
            let outcome = read(&TEXT.as_bytes()[..length], &mut sink).unwrap();
            let cut = outcome.cut.unwrap_or_else(|| panic!("no cut at {length}"));
            assert!(cut.at <= length as u64 && cut.fault.is_none());
            assert!("=[1, 2] a b ? =3".starts_with(&sink.0.join(" ")), "{length}");
        }
    }

    #[test]
    fn a_bare_array_need_not_be_closed() {
        let (found, outcome) = names(br#"[{"name":"a"},{"name":"b"},"#);
        assert_eq!(found, "a b");
        assert!(outcome.cut.is_some());
        let (found, outcome) = names(br#"[{"name":"a"}] trailing"#);
        assert_eq!(found, "a");
        assert!(outcome.cut.is_none());
    }

    #[test]
    fn reading_goes_on_behind_what_is_malformed() {
        let text = br#"{"traceEvents":[{"ph":"X","name":"a"},{"ph":"X","name":"b""c","args":{"k":{}}},
            {"ph": broken "X"}, {"ph":"X","name":"C:\dir\","ts":1}, {"ph":"X","name":"d"}]}"#;
        let (found, outcome) = names(text);
        assert_eq!(found, r"a C:\dir\ d");
        assert_eq!(outcome.malformed, 2);
        assert_eq!(outcome.first_malformed, Some(38));
        let (found, outcome) = names(br#"[{"name":"a"},{"name"!}]"#);
        assert_eq!((found.as_str(), outcome.malformed), ("a", 1));
        assert!(outcome.cut.is_none());
    }

    #[test]
    fn other_documents() {
        for text in [&br#"{"ranks": []}"#[..], br#"{"x": 1, "comm": []}"#, br#"{"x" 1}"#, b"hello"] {
            assert!(matches!(read(text, &mut Names::default()), Err(Fault::NotATrace)));
        }
    }

    /// Endless content behind a beginning.
    fn endless(beginning: &'static [u8], byte: u8) -> impl Read {
        beginning.chain(io::repeat(byte))
    }

    #[test]
    fn endless_values_are_given_up() {
        for (beginning, byte) in [
            (&br#"{"skipped": ""#[..], b'x'),
            (br#"{"skipped": "#, b'1'),
            (br#"{"skipped": "#, b'['),
            (br#"{"wanted": ["#, b'1'),
            (br#"{"traceEvents": [{"name": ""#, b'x'),
            (br#"{"traceEvents": [{"args": "#, b'['),
            (br#"{"traceEvents": ["#, b'['),
            (br#"[""#, b'\\'),
            (br#"{"traceEvents": [{"name": "a"}, "#, b'1'),
        ] {
            let limits = Limits { taken: 1 << 20, skipped: 1 << 21 };
            match read_within(limits, endless(beginning, byte), &mut Names::default()) {
                Err(Fault::TooLong { at, .. }) => assert!(at <= beginning.len() as u64),
                other => panic!("{other:?} for {}", String::from_utf8_lossy(beginning)),
            }
        }
    }
}
