//! The collector as it takes a document: its events, and what its other members say of the job.

use super::call::numbers;
use super::category::Category;
use super::collect::Collector;
use super::document::Sink;
use super::event::{Args, Event};
use super::json::{Value, elements};

impl Sink for Collector {
    fn event(&mut self, event: &Event<'_>) {
        match event.phase {
            b'X' => self.complete(event, Category::of(event.category)),
            b'B' | b'b' => self.begin(event, Category::of(event.category)),
            b'E' | b'e' => self.end(event),
            b'M' => self.label(event),
            0 if event.duration.is_some() => self.complete(event, Category::of(event.category)),
            _ => self.skip("not_an_interval"),
        }
    }

    fn wants(&self, key: &[u8]) -> bool {
        matches!(key, b"distributedInfo" | b"baseTimeNanoseconds" | b"schemaVersion" | b"deviceProperties")
    }

    fn is_done(&self) -> bool {
        let unwanted = |rank| self.only_ranks.as_ref().is_some_and(|ranks| !ranks.contains(&rank));
        self.distributed.rank.is_some_and(unwanted)
    }

    fn member(&mut self, key: &[u8], value: Value<'_>) {
        match key {
            // Whole nanoseconds since the epoch, to which all times of the file are relative.
            b"baseTimeNanoseconds" => {
                self.base_ns = value.integer().and_then(|ns| i64::try_from(ns).ok());
            }
            b"distributedInfo" => {
                self.profiler = true;
                self.distributed_info(value);
            }
            _ => self.profiler = true,
        }
    }
}

impl Collector {
    fn distributed_info(&mut self, value: Value<'_>) {
        let Value::Nested(object) = value else { return };
        let small = |value: Value<'_>| value.integer().and_then(|number| u32::try_from(number).ok());
        for (key, value) in Args::new(object) {
            match key {
                b"rank" => self.distributed.rank = small(value),
                b"world_size" => self.distributed.world_size = small(value).filter(|&size| size > 0),
                b"pg_config" => {
                    if let Value::Nested(array) = value {
                        elements(array).for_each(|group| self.group(group));
                    }
                }
                _ => {}
            }
        }
    }

    /// A process group of `pg_config`.
    fn group(&mut self, value: Value<'_>) {
        let Value::Nested(object) = value else { return };
        let (mut name, mut ranks) = (None, (Vec::new(), false));
        for (key, value) in Args::new(object) {
            match key {
                b"pg_name" => name = Some(self.names.intern(&value.text())),
                b"ranks" => ranks = numbers(value),
                _ => {}
            }
        }
        let Some(name) = name else { return };
        self.distributed.groups.push(name);
        if let (ranks, true) = ranks
            && !ranks.is_empty()
        {
            self.groups.insert(name, ranks);
        }
    }
}
