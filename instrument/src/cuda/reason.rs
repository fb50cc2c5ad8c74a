//! Why a span on a GPU stream has no time.

use super::driver::{Code, NOT_READY};
use std::borrow::Cow;

/// Why a span on a GPU stream has no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its stream was being captured into a graph.
    Captured,
    /// All `COMMTRACE_EVENTS` events of the context were in use.
    PoolExhausted,
    /// The stream was destroyed before the span was entered.
    StreamDestroyed,
    /// More streams than are followed.
    TooManyStreams,
    /// Its events had not happened when recording ended.
    NotFinished,
    /// Device time could not be tied to the host clock.
    NoClock,
    /// What the driver said.
    Driver(Code),
}

/// [`Reason::Driver`] in packed form begins here.
const DRIVER_CODES: u64 = 1 << 32;

impl Reason {
    /// As a number, to travel in a record.
    pub fn pack(self) -> u64 {
        match self {
            Self::Captured => 0,
            Self::PoolExhausted => 1,
            Self::StreamDestroyed => 2,
            Self::TooManyStreams => 3,
            Self::NotFinished => 4,
            Self::NoClock => 5,
            Self::Driver(code) => DRIVER_CODES | u64::from(code),
        }
    }

    /// What [`pack`](Self::pack) made.
    pub fn unpack(packed: u64) -> Self {
        match packed {
            0 => Self::Captured,
            1 => Self::PoolExhausted,
            2 => Self::StreamDestroyed,
            3 => Self::TooManyStreams,
            4 => Self::NotFinished,
            5 => Self::NoClock,
            code => Self::Driver(code as Code),
        }
    }

    /// From a code that a driver function returned. Everything around graph capture is
    /// [`Captured`](Self::Captured): the stream's capture, one that the application broke, an event
    /// that was recorded into a graph.
    pub fn of_code(code: Code) -> Self {
        match code {
            900..=908 => Self::Captured,
            NOT_READY => Self::NotFinished,
            code => Self::Driver(code),
        }
    }

    /// Whether nothing in the context will work any more, so that the driver need not be asked again: the codes
    /// of which cuda.h says that the process has to be ended, and those of a context that is gone.
    pub fn is_sticky(self) -> bool {
        let Self::Driver(code) = self else { return false };
        matches!(code, 4 | 46 | 201 | 214 | 220 | 226 | 700 | 702 | 709..=710 | 714..=719 | 721 | 999)
    }

    /// The text in records and reports.
    pub fn text(self) -> Cow<'static, str> {
        let text = match self {
            Self::Captured => "captured",
            Self::PoolExhausted => "pool exhausted",
            Self::StreamDestroyed => "stream destroyed",
            Self::TooManyStreams => "too many streams",
            Self::NotFinished => "not finished",
            Self::NoClock => "no device clock",
            Self::Driver(code) => match code {
                4 => "driver shut down",
                46 | 101 | 214 | 220 | 226 => "device lost",
                // A context that is not one (any more).
                201 | 709 => "context destroyed",
                400 => "destroyed or of another context",
                700 => "illegal address",
                702 => "launch timeout",
                710 => "device assertion",
                715 => "illegal instruction",
                716 => "misaligned address",
                719 => "launch failed",
                800 => "not permitted in a host function",
                code => return format!("driver error {code}").into(),
            },
        };
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_the_packing() {
        let reasons = [
            Reason::Captured,
            Reason::PoolExhausted,
            Reason::StreamDestroyed,
            Reason::TooManyStreams,
            Reason::NotFinished,
            Reason::NoClock,
        ];
        for reason in reasons.into_iter().chain([1, 4, 700, u32::MAX].map(Reason::Driver)) {
            assert_eq!(Reason::unpack(reason.pack()), reason);
        }
    }

    #[test]
    fn errors_around_capture_are_captured_and_leave_the_context_usable() {
        for code in 900..=908 {
            assert_eq!(Reason::of_code(code), Reason::Captured);
            assert!(!Reason::of_code(code).is_sticky());
        }
        assert!(Reason::of_code(700).is_sticky());
        assert!(Reason::of_code(721).is_sticky());
        // A launch that was refused breaks nothing.
        for code in [400, 701, 720] {
            assert!(!Reason::of_code(code).is_sticky());
        }
        assert_eq!(Reason::of_code(12345).text(), "driver error 12345");
    }
}
