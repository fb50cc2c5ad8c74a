//! Processes and threads as an export numbers them.

/// A thread of a process (`globalTid`): from the highest, 8 bits of hardware, 8 of virtual machine, 24 of
/// process, 24 of thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Thread(u64);

/// A process (`globalPid`, whose lowest 24 bits are zero).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process(u64);

const THREAD_BITS: u32 = 24;
const PID: u64 = (1 << 24) - 1;

impl Thread {
    /// Not after any other.
    pub const MIN: Self = Self(0);

    /// The thread with this `globalTid`; exports without one have a single nameless thread.
    pub fn new(global_tid: Option<i64>) -> Self {
        Self(global_tid.unwrap_or(0).cast_unsigned())
    }

    pub fn process(self) -> Process {
        Process(self.0 >> THREAD_BITS)
    }
}

impl Process {
    /// Stands for the process of events that name none.
    pub const UNKNOWN: Self = Self(0);

    /// The process with this `globalPid`.
    pub fn new(global_pid: Option<i64>) -> Self {
        Self(global_pid.unwrap_or(0).cast_unsigned() >> THREAD_BITS)
    }

    /// The number that the operating system gave it.
    pub fn pid(self) -> u64 {
        self.0 & PID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_of_its_process() {
        let process = Process::new(Some(281_477_392_629_760));
        assert_eq!(process.pid(), 144);
        assert_eq!(Thread::new(Some(281_477_392_629_904)).process(), process);
        assert_eq!(Thread::new(None).process(), Process::UNKNOWN);
    }
}
