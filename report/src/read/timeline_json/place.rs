//! Where in the document the reader is, for error messages.

use std::fmt;

/// Where in the document the reader is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// Index in `ranks`.
    pub entry: Option<usize>,
    /// The rank, once its number was read.
    pub rank: Option<u32>,
    /// The list of intervals.
    pub list: Option<&'static str>,
    /// Index in it.
    pub record: Option<usize>,
    /// The key whose value is read.
    pub key: Option<&'static str>,
}

impl Place {
    /// Whether the place is the document itself.
    pub fn is_empty(&self) -> bool {
        self.entry.is_none() && self.rank.is_none() && self.list.is_none() && self.key.is_none()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(entry) = self.entry {
            write!(f, "ranks[{entry}]")?;
            separator = ", ";
        }
        if let Some(rank) = self.rank {
            match self.entry {
                Some(_) => write!(f, " (rank {rank})")?,
                None => write!(f, "rank {rank}")?,
            }
            separator = ", ";
        }
        if let Some(list) = self.list {
            write!(f, "{separator}{list}")?;
            if let Some(record) = self.record {
                write!(f, "[{record}]")?;
            }
            separator = ", ";
        }
        if let Some(key) = self.key {
            write!(f, "{separator}`{key}`")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_outside_in() {
        let mut place = Place::default();
        assert!(place.is_empty());
        place.list = Some("comm");
        place.record = Some(3);
        assert_eq!(place.to_string(), "comm[3]");
        place.entry = Some(1);
        place.key = Some("end");
        assert_eq!(place.to_string(), "ranks[1], comm[3], `end`");
        place.rank = Some(7);
        assert_eq!(place.to_string(), "ranks[1] (rank 7), comm[3], `end`");
    }
}
