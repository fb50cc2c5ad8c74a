//! What single messages say.

use crate::classify::{Dtype, Op, payload_bytes};

/// The word after `key`.
pub(super) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut words = text.split_ascii_whitespace();
    words.find(|word| *word == key)?;
    // `key 0- Init START` is how some versions write it.
    words.next().map(|word| word.trim_end_matches(['-', ',']))
}

pub(super) fn number<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    value(text, key)?.parse().ok()
}

/// A version that NCCL or RCCL says of itself.
pub(super) fn version(text: &str) -> Option<String> {
    let at = text.find("NCCL version ").or_else(|| text.find("RCCL version "))?;
    let name = text.get(at..at + 4)?;
    let version = text.get(at + 13..)?.split_ascii_whitespace().next()?;
    let plausible =
        version.starts_with(|c: char| c.is_ascii_digit()) && version.contains('.') && version.len() < 64;
    let prefix = if name == "RCCL" { "RCCL " } else { "" };
    plausible.then(|| format!("{prefix}{version}"))
}

/// A variable and its value, of `NCCL_X set by environment to Y.`
pub(super) fn variable(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(" set by environment to ")?;
    let name = name.rsplit(' ').next()?;
    let value = value.strip_suffix('.').unwrap_or(value);
    (name.starts_with("NCCL_") || name.starts_with("RCCL_")).then_some((name, value.trim()))
}

/// A call of a collective or of a send or receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call<'a> {
    pub op: Op,
    pub op_count: u64,
    pub address: &'a str,
    pub nranks: Option<u32>,
    pub dtype: Option<Dtype>,
    /// Bytes of one rank's count.
    pub share: Option<u64>,
    /// Payload as nccl-tests counts it.
    pub payload: Option<u64>,
}

/// The call that a message of the subsystem COLL is.
pub(super) fn call(text: &str) -> Option<Call<'_>> {
    let (name, rest) = text.split_once(": opCount ")?;
    let op = Op::in_name(name.trim()).unwrap_or(Op::Unknown);
    let op_count = u64::from_str_radix(rest.split_ascii_whitespace().next()?, 16).ok()?;
    let address = value(rest, "comm")?;
    let nranks = rest.split_once("[nranks=").and_then(|(_, tail)| tail.split(']').next()?.parse().ok());
    let dtype = number::<u32>(rest, "datatype").and_then(datatype);
    let count: Option<u64> = number(rest, "count");
    let size = dtype.map(|dtype| dtype.size);
    let share = count.zip(size).and_then(|(count, size)| count.checked_mul(size));
    let payload = share.and_then(|share| whole(op, name.trim(), share, nranks));
    Some(Call { op, op_count, address, nranks, dtype, share, payload })
}

/// The payload of an operation whose arguments count `share` bytes, as nccl-tests counts it. In NCCL's
/// interface, gathering and scattering operations count one rank's share.
fn whole(op: Op, name: &str, share: u64, nranks: Option<u32>) -> Option<u64> {
    match op {
        Op::ReduceScatter => payload_bytes(op, None, Some(share), 1, nranks),
        Op::AllToAll => share.checked_mul(nranks?.into()),
        // Gather and scatter are of this kind, sends and receives are not.
        Op::SendRecv if !name.eq_ignore_ascii_case("SendRecv") => share.checked_mul(nranks?.into()),
        _ => payload_bytes(op, Some(share), None, 1, nranks),
    }
}

/// Whether the bytes in the newer form of what the subsystem TUNING writes are one rank's share.
pub(super) fn is_share(op: Op) -> bool {
    matches!(op, Op::AllGather | Op::ReduceScatter | Op::AllToAll)
}

/// `ncclDataType_t`.
fn datatype(number: u32) -> Option<Dtype> {
    const NAMES: [&str; 12] =
        ["i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"];
    Dtype::named(NAMES.get(usize::try_from(number).ok()?)?)
}

/// A choice of algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub op: Option<Op>,
    pub bytes: u64,
    /// Whether `bytes` may be one rank's share: the newer, textual form.
    pub may_be_share: bool,
    pub algorithm: String,
    pub protocol: Option<String>,
    pub channels: Option<u32>,
}

/// The choice that a message of the subsystem TUNING is, in any of its forms:
///
/// | since | form |
/// | --- | --- |
/// | 2.19 | `N Bytes -> Algo 1 proto 2 time T` |
/// | 2.23 | `AllReduce: N Bytes -> Algo 1 proto 2 time T` |
/// | 2.24 | `AllReduce: N Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}` |
/// | 2.27 | `AllReduce [Symmetric]: N Bytes -> Kernel NAME nchannels 8 nthreads 512` |
pub(super) fn choice(text: &str) -> Option<Choice> {
    let (before, after) = text.split_once(" Bytes -> ")?;
    let (name, bytes) = match before.rsplit_once([':', ' ']) {
        Some((name, bytes)) => (name.trim_end_matches(':').trim(), bytes.trim()),
        None => ("", before.trim()),
    };
    let bytes = bytes.parse().ok()?;
    let op = Op::in_name(name.split(['[', ':']).next().unwrap_or(name));
    if let Some(kernel) = value(after, "Kernel") {
        let protocol = ["LL128", "LL"].into_iter().find(|protocol| kernel.contains(protocol));
        return Some(Choice {
            op,
            bytes,
            may_be_share: true,
            algorithm: "symmetric".to_owned(),
            protocol: protocol.map(str::to_ascii_lowercase),
            channels: number(after, "nchannels"),
        });
    }
    let algorithm = value(after, "Algo")?;
    let protocol = value(after, "proto")?;
    let numeric = algorithm.parse::<usize>().ok();
    let channels = after.split_once("channel{Lo..Hi}={").and_then(|(_, range)| {
        let (low, high) = range.split_once('}')?.0.split_once("..")?;
        high.parse::<u32>().ok()?.checked_sub(low.parse().ok()?)?.checked_add(1)
    });
    Some(Choice {
        op,
        bytes,
        may_be_share: numeric.is_none(),
        algorithm: named(algorithm, &ALGORITHMS),
        protocol: Some(named(protocol, &PROTOCOLS)),
        channels,
    })
}

const ALGORITHMS: [&str; 7] = ["tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"];
const PROTOCOLS: [&str; 3] = ["ll", "ll128", "simple"];

/// The name of a number in NCCL's tables, or a name as the vocabulary has it.
fn named(text: &str, names: &[&str]) -> String {
    match text.parse::<usize>() {
        Ok(number) => names.get(number).map_or_else(|| format!("number {number}"), |name| (*name).to_owned()),
        Err(_) => text.chars().take(32).collect::<String>().to_ascii_lowercase(),
    }
}

/// A connection between ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connection {
    /// Without numbers of devices and channels.
    pub via: String,
    /// From rank, to rank.
    pub pair: Option<(u32, u32)>,
}

/// The connection that a message says was made.
pub(super) fn connection(text: &str) -> Option<Connection> {
    const FIRST: [&str; 6] = ["Channel ", "Ring ", "Coll ", "CollNet ", "Tree ", "P2P "];
    if !FIRST.iter().any(|first| text.starts_with(first)) {
        return None;
    }
    let (ends, via) = text.split_once(" via ")?;
    let device =
        |part: &str| part.is_empty() || part.starts_with(|c: char| c.is_ascii_digit()) || part.contains('[');
    let parts: Vec<&str> =
        via.trim().split('/').map(str::trim).filter(|part| !device(part)).take(6).collect();
    let via: String = parts.join("/").chars().take(64).collect();
    if via.is_empty() {
        return None;
    }
    let pair = ends.split_once(" -> ").and_then(|(from, to)| {
        let rank = |word: &str| word.split('[').next()?.parse().ok();
        let from = from.rsplit(' ').next().and_then(rank)?;
        Some((from, to.split_ascii_whitespace().next().and_then(rank)?))
    });
    Some(Connection { via, pair })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_shares() {
        let line = |op: &str, datatype: u32| {
            format!(
                "{op}: opCount 1a sendbuff 0x1 recvbuff 0x2 count 1000 datatype {datatype} op 0 root 0 comm 0xab \
                 [nranks=8] stream 0xcd"
            )
        };
        for (op, datatype, share, payload) in [
            ("AllReduce", 7, 4000, 4000),
            ("AllGather", 9, 2000, 16_000),
            ("ReduceScatter", 6, 2000, 16_000),
            ("Broadcast", 0, 1000, 1000),
            ("AlltoAll", 0, 1000, 8000),
            ("Gather", 0, 1000, 8000),
            ("Send", 8, 8000, 8000),
        ] {
            let line = line(op, datatype);
            let call = call(&line).unwrap();
            assert_eq!((call.share, call.payload), (Some(share), Some(payload)), "{op}");
            assert_eq!((call.op_count, call.address, call.nranks), (26, "0xab", Some(8)));
        }
        assert_eq!(call(&line("AllReduce", 99)).unwrap().payload, None);
        assert_eq!(call("AllReduce: opCount"), None);
    }

    #[test]
    fn choices_of_all_versions() {
        let found = |text: &str| {
            let choice = choice(text).unwrap();
            let protocol = choice.protocol.unwrap_or_default();
            (choice.op, choice.bytes, choice.algorithm, protocol, choice.channels)
        };
        let expected = |op, bytes, algorithm: &str, protocol: &str, channels| {
            (op, bytes, algorithm.into(), protocol.into(), channels)
        };
        assert_eq!(found("4096 Bytes -> Algo 1 proto 0 time 12.5"), expected(None, 4096, "ring", "ll", None));
        assert_eq!(
            found("AllReduce: 65536 Bytes -> Algo 0 proto 1 time 12.500000"),
            expected(Some(Op::AllReduce), 65_536, "tree", "ll128", None)
        );
        assert_eq!(
            found("AllGather: 1024 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
            expected(Some(Op::AllGather), 1024, "nvls", "simple", Some(16))
        );
        assert_eq!(
            found(
                "AllReduce [Symmetric]: 512 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1"
            ),
            expected(Some(Op::AllReduce), 512, "symmetric", "ll", Some(4))
        );
        assert_eq!(found("8 Bytes -> Algo 12 proto 7 time 1").2, "number 12");
        for bad in
            ["", " Bytes -> ", "x Bytes -> Algo 1 proto 2", "5 Bytes -> Algo", "-1 Bytes -> Algo 1 proto 1"]
        {
            assert_eq!(choice(bad), None, "{bad}");
        }
    }

    #[test]
    fn connections_without_device_numbers() {
        for (text, via, pair) in [
            ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM/read", Some((0, 1))),
            ("Channel 02 : 3[1b000] -> 4[1c000] via P2P/IPC", "P2P/IPC", Some((3, 4))),
            (
                "Channel 02 : 3[1b000] -> 4[1c000] via direct shared memory",
                "direct shared memory",
                Some((3, 4)),
            ),
            ("Channel 01/0 : 7[7] -> 8[0] [send] via NET/IB/3(2)/GDRDMA", "NET/IB/GDRDMA", Some((7, 8))),
            ("Channel 01/0 : 7[7] -> 8[0] [receive] via NET/Socket/0", "NET/Socket", Some((7, 8))),
            ("Channel 00 : 1[1] -> 0[0] via SHM/direct/direct", "SHM/direct/direct", Some((1, 0))),
            ("Channel 00/1 : 1[1] -> 0[0] via P2P/indirect/2[2]", "P2P/indirect", Some((1, 0))),
            ("CollNet 00/0 : 4 [send] via COLLNET/SHARP/0", "COLLNET/SHARP", None),
        ] {
            assert_eq!(connection(text), Some(Connection { via: via.into(), pair }), "{text}");
        }
        assert_eq!(connection("comm 0x1 via nothing"), None);
    }

    #[test]
    fn versions_and_variables() {
        assert_eq!(version("NCCL version 2.21.5+cuda12.4"), Some("2.21.5+cuda12.4".into()));
        assert_eq!(version("RCCL version 2.18.3+hip6.0 HEAD:abc"), Some("RCCL 2.18.3+hip6.0".into()));
        assert_eq!(version("NCCL version unknown"), None);
        assert_eq!(
            variable("NCCL_IB_HCA set by environment to mlx5_0,mlx5_1."),
            Some(("NCCL_IB_HCA", "mlx5_0,mlx5_1"))
        );
        assert_eq!(variable("HOME set by environment to x"), None);
    }
}
