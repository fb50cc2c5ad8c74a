//! Names of communicators, equal on all ranks without any exchange.

use std::sync::Arc;

use cudarc::nccl::Id;

/// `0x` and the number that NCCL's own log calls `commId` (`NCCL_DEBUG=INFO`), so that a record can be
/// laid beside a log.
///
/// NCCL computes it (`getHash` in its `utils.h`) as Bernstein's hash in the form with exclusive or:
/// h = 33 h ^ byte from h = 5381, where a byte counts as signed.
pub(super) fn name(id: &Id) -> Arc<str> {
    let hash = id.internal().iter().fold(5381_u64, |hash, &byte| {
        // c_char is unsigned on some platforms; x86-64 Linux, where NCCL's logs are compared, has it signed.
        #[expect(clippy::unnecessary_cast, reason = "c_char is u8 on some platforms")]
        let signed = byte as i8;
        hash.wrapping_mul(33) ^ i64::from(signed) as u64
    });
    format!("{hash:#x}").into()
}

/// The name of a communicator that was split off, as [`LocalComm`](crate::LocalComm)'s: `0xab/1` for color 1
/// of the first split, `0xab/1.2` for the third.
pub(super) fn split_name(parent: &str, color: u32, count: u64) -> Arc<str> {
    if count == 0 { format!("{parent}/{color}").into() } else { format!("{parent}/{color}.{count}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_char;

    /// The hash by its definition, digit by digit in arbitrary precision.
    fn slow_name(bytes: &[i8; 128]) -> String {
        let mut hash: u128 = 5381;
        for &byte in bytes {
            let extended =
                if byte < 0 { u128::from(u64::MAX - (-i32::from(byte) as u64 - 1)) } else { byte as u128 };
            hash = ((hash * 33) % (1 << 64)) ^ extended;
        }
        format!("0x{hash:x}")
    }

    #[test]
    fn the_name_is_the_hash_of_all_bytes() {
        let mut seen = std::collections::BTreeSet::new();
        for position in 0..128 {
            for value in [0, 1, 127, -128, -1_i8] {
                let mut bytes = [7_i8; 128];
                bytes[position] = value;
                let id = Id::uninit(bytes.map(|byte| byte as c_char));
                assert_eq!(*name(&id), slow_name(&bytes));
                seen.insert(name(&id));
            }
        }
        assert_eq!(seen.len(), 128 * 5, "every byte counts");
    }

    #[test]
    fn splits_are_told_apart() {
        assert_eq!(&*split_name("0xab", 1, 0), "0xab/1");
        assert_eq!(&*split_name("0xab", 1, 2), "0xab/1.2");
    }
}
