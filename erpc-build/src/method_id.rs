//! Method ids, to find collisions at build time, when a method can still be renamed.

/// The id of the method with the name `full_name`. A copy of `erpc_core::service::method_id`, so
/// that build scripts do not compile the runtime. A test checks that both functions agree.
pub(crate) fn method_id(full_name: &str) -> u32 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = full_name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    u32::try_from(hash >> 32).unwrap_or_default().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_copies_of_the_function_agree() {
        for n in 0..1_000 {
            let name = format!("package.v{n}.Service/Method{n}");
            assert_eq!(method_id(&name), erpc_core::service::method_id(&name), "{name}");
        }
        assert_eq!(method_id(""), erpc_core::service::method_id(""));
    }
}
