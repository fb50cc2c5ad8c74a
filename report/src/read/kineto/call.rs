//! What the arguments of a kernel or a host call say about a collective.

use super::collect::Times;
use super::json::{Value, elements};
use crate::classify::{Dtype, HostLayer, Op};
use crate::timeline::{Names, Sym};
use indexmap::IndexMap;

/// A collective by its arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// The operation that is named; `None` if none is.
    pub op: Option<Op>,
    /// Something is named that is no operation, such as `wait`.
    pub other: bool,
    /// Elements of the input.
    pub sent: Option<u64>,
    /// Elements of the output.
    pub received: Option<u64>,
    pub dtype: Option<Dtype>,
    pub group: Option<Sym>,
    pub size: Option<u32>,
    pub seq: Option<u64>,
    pub source: Option<u32>,
    pub destination: Option<u32>,
}

impl Call {
    /// Whether anything is known beyond the name.
    pub fn has_details(&self) -> bool {
        self.sent.is_some() || self.received.is_some() || self.group.is_some()
    }
}

/// Process groups by name, with the global ranks of their members where known.
pub(super) type Groups = IndexMap<Sym, Vec<u32>>;

/// Arguments as they stand, until all of them were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallArgs<'a> {
    collective: Option<Value<'a>>,
    sent: Option<u64>,
    received: Option<u64>,
    dtype: Option<Value<'a>>,
    group: Option<Value<'a>>,
    ranks: Option<Value<'a>>,
    first_rank: Option<u32>,
    stride: Option<u32>,
    size: Option<u32>,
    seq: Option<u64>,
    source: Option<u32>,
    destination: Option<u32>,
    shares_sent: Option<Value<'a>>,
    shares_received: Option<Value<'a>>,
    dims: Option<Value<'a>>,
    types: Option<Value<'a>>,
}

impl<'a> CallArgs<'a> {
    /// Notes an argument.
    pub fn add(&mut self, key: &[u8], value: Value<'a>) {
        let small = || value.integer().and_then(|number| u32::try_from(number).ok());
        match key {
            b"Collective name" => self.collective = Some(value),
            b"In msg nelems" | b"In msg size" => self.sent = count(value),
            b"Out msg nelems" | b"Out msg size" => self.received = count(value),
            b"dtype" => self.dtype = Some(value),
            b"Process Group Name" => self.group = Some(value),
            b"Process Group Ranks" => self.ranks = Some(value),
            b"Global rank start" => self.first_rank = small(),
            b"Global rank stride" => self.stride = small(),
            b"Group size" => self.size = small().filter(|&size| size > 0),
            b"Seq" => self.seq = count(value),
            b"Src Rank" => self.source = small(),
            b"Dst Rank" => self.destination = small(),
            b"In split size" => self.shares_sent = Some(value),
            b"Out split size" => self.shares_received = Some(value),
            b"Input Dims" => self.dims = Some(value),
            b"Input type" => self.types = Some(value),
            _ => {}
        }
    }

    /// What they say. The members of a process group that is new are added to `groups`.
    pub fn finish(&self, names: &mut Names, groups: &mut Groups) -> Call {
        let name = self.collective.map(Value::text).unwrap_or_default();
        let mut op = Op::in_name(&name);
        let uneven = |shares: Option<Value<'_>>| {
            let (shares, _) = shares.map(numbers).unwrap_or_default();
            shares.windows(2).any(|pair| pair[0] != pair[1])
        };
        if op == Some(Op::AllToAll) && (uneven(self.shares_sent) || uneven(self.shares_received)) {
            op = Some(Op::AllToAllV);
        }
        let dtype = self.dtype.and_then(|value| Dtype::named(&value.text()));
        let text = self.group.map(Value::text).filter(|name| !name.trim().is_empty());
        let group = text.map(|name| names.intern(&name));
        if let Some(group) = group
            && !groups.contains_key(&group)
            && let Some(ranks) = self.ranks()
        {
            groups.insert(group, ranks);
        }
        let mut call = Call {
            op,
            other: op.is_none() && !name.is_empty(),
            sent: self.sent,
            received: self.received,
            dtype,
            group,
            size: self.size,
            seq: self.seq,
            source: self.source,
            destination: self.destination,
        };
        if !call.has_details()
            && let Some((elements, dtype)) = self.tensors()
        {
            (call.sent, call.dtype) = (Some(elements), Some(dtype));
        }
        call
    }

    /// The group's ranks: as they are listed, or by their rule where the list was shortened.
    fn ranks(&self) -> Option<Vec<u32>> {
        let (listed, whole) = self.ranks.map(numbers).unwrap_or_default();
        if whole && !listed.is_empty() && self.size.is_none_or(|size| size as usize == listed.len()) {
            return Some(listed);
        }
        let (first, stride, size) = (self.first_rank?, self.stride?, self.size?);
        // A list of ranks is worth its memory only for a job that could exist.
        if size > 1 << 20 || (stride == 0 && size > 1) {
            return None;
        }
        (0..size).map(|index| first.checked_add(stride.checked_mul(index)?)).collect()
    }

    /// Elements and type of the tensors in `Input Dims`, which shape recording adds.
    fn tensors(&self) -> Option<(u64, Dtype)> {
        let (dims, types) = (nested(self.dims?), nested(self.types?));
        let mut total: Option<(u64, Dtype)> = None;
        for (shape, of) in elements(dims).zip(elements(types)) {
            let Some(dtype) = Dtype::named(&of.text()) else { continue };
            let count = shape_elements(shape)?;
            match &mut total {
                None => total = Some((count, dtype)),
                Some((sum, first)) if *first == dtype => *sum = sum.checked_add(count)?,
                Some(_) => return None,
            }
        }
        total
    }
}

/// A number of elements; negative ones stand for "unknown".
fn count(value: Value<'_>) -> Option<u64> {
    value.integer().filter(|&number| number <= i64::MAX as u64)
}

fn nested(value: Value<'_>) -> &[u8] {
    match value {
        Value::Nested(raw) | Value::Text(raw) => raw,
        Value::Word(_) => b"",
    }
}

/// Elements of a tensor of this shape; the shape `[]` is that of one number.
fn shape_elements(shape: Value<'_>) -> Option<u64> {
    elements(nested(shape)).try_fold(1_u64, |product, dim| product.checked_mul(count(dim)?))
}

/// The numbers in a list, which may be a JSON array or a text like `[0, 1, ...]`, and whether the list
/// is whole.
pub(super) fn numbers(list: Value<'_>) -> (Vec<u32>, bool) {
    let raw = nested(list);
    let numbers = raw
        .split(|byte| !byte.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map_while(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .collect();
    (numbers, !raw.windows(2).any(|pair| pair == b".."))
}

/// A collective among the calls of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostEvent {
    /// Its thread, by the collector's numbers.
    pub thread: Sym,
    pub times: Times,
    /// PyTorch's number of the operator, which the kernels that it launches refer to.
    pub external_id: Option<u64>,
    pub layer: HostLayer,
    pub name: Sym,
    pub call: Call,
}

#[cfg(test)]
mod tests {
    use super::super::event::Args;
    use super::*;

    fn call(args: &str) -> (Call, Vec<(String, Vec<u32>)>) {
        let (mut names, mut groups) = (Names::default(), Groups::default());
        let mut found = CallArgs::default();
        Args::new(args.as_bytes()).for_each(|(key, value)| found.add(key, value));
        let call = found.finish(&mut names, &mut groups);
        (call, groups.into_iter().map(|(name, ranks)| (names.get(name).to_owned(), ranks)).collect())
    }

    #[test]
    fn as_pytorch_writes_them() {
        let (call, groups) = call(
            r#"{"External id": 2099, "Process Group Name": "0", "Global rank stride": 1, "Out msg nelems": 2049000,
                "Process Group Ranks": "[0, 1]", "Group size": 2, "Global rank start": 0, "In msg nelems": "1024500",
                "In split size": "[]", "dtype": "Float", "Collective name": "_allgather_base", "Seq": 7,
                "Src Rank": -1, "Dst Rank": 3}"#,
        );
        assert_eq!(call.op, Some(Op::AllGather));
        assert_eq!((call.sent, call.received), (Some(1_024_500), Some(2_049_000)));
        assert_eq!((call.size, call.seq), (Some(2), Some(7)));
        assert_eq!((call.source, call.destination), (None, Some(3)));
        assert_eq!(call.dtype.map(|dtype| dtype.size), Some(4));
        assert_eq!(groups, [("0".to_owned(), vec![0, 1])]);
    }

    #[test]
    fn shortened_lists_of_ranks_follow_their_rule() {
        let (_, groups) = call(
            r#"{"Process Group Name": "3", "Process Group Ranks": "[1, 3, ..., 7]", "Group size": 4,
                "Global rank start": 1, "Global rank stride": 2}"#,
        );
        assert_eq!(groups, [("3".to_owned(), vec![1, 3, 5, 7])]);
        let (found, groups) = call(
            r#"{"Process Group Name": "3", "Process Group Ranks": [0, 1], "Group size": 4294967295,
                "Global rank start": 0, "Global rank stride": 1}"#,
        );
        assert!(found.group.is_some() && groups.is_empty());
    }

    #[test]
    fn unequal_shares() {
        let op = |args| call(args).0.op;
        assert_eq!(op(r#"{"Collective name": "all_to_all", "In split size": "[]"}"#), Some(Op::AllToAll));
        assert_eq!(op(r#"{"Collective name": "all_to_all", "In split size": [4, 4]}"#), Some(Op::AllToAll));
        assert_eq!(
            op(r#"{"Collective name": "all_to_all", "Out split size": "[4, 5]"}"#),
            Some(Op::AllToAllV)
        );
        assert_eq!(op(r#"{"Collective name": "all_to_allv"}"#), Some(Op::AllToAllV));
        assert!(call(r#"{"Collective name": "wait"}"#).0.other);
    }

    #[test]
    fn shapes_tell_the_size_where_nothing_else_does() {
        let sent = |args| call(args).0.sent;
        assert_eq!(
            sent(r#"{"Input Dims": [[3, 4], [], [2]], "Input type": ["float", "Scalar", "float"]}"#),
            Some(14)
        );
        assert_eq!(sent(r#"{"Input Dims": [[]], "Input type": ["TensorList"]}"#), None);
        assert_eq!(sent(r#"{"Input Dims": [[2], [2]], "Input type": ["float", "double"]}"#), None);
        assert_eq!(sent(r#"{"In msg nelems": 5, "Input Dims": [[3]], "Input type": ["float"]}"#), Some(5));
    }
}
