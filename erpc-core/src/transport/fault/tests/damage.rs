use proptest::prelude::*;

use super::*;

fn damage(seed: u64, [corrupt, truncate, extend]: [bool; 3]) -> Damage {
    Damage::new(seed, corrupt, truncate, extend).expect("a kind is selected")
}

fn inflicted(damage: Damage, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    damage.inflict(&mut bytes);
    bytes
}

/// Number of bits in which two packets of one length differ.
fn distance(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

fn bytes(least: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), least..200)
}

proptest! {
    #[test]
    fn corruption_flips_one_to_eight_bits(seed: u64, bytes in bytes(1)) {
        let after = inflicted(damage(seed, [true, false, false]), &bytes);
        prop_assert!((1..=8).contains(&distance(&bytes, &after)));
    }

    #[test]
    fn truncation_leaves_less_of_the_front(seed: u64, bytes in bytes(1)) {
        let after = inflicted(damage(seed, [false, true, false]), &bytes);
        prop_assert!(after.len() < bytes.len());
        prop_assert!(bytes.starts_with(&after));
    }

    #[test]
    fn extension_appends_up_to_64_bytes(seed: u64, bytes in bytes(0)) {
        let after = inflicted(damage(seed, [false, false, true]), &bytes);
        prop_assert!((1..=64).contains(&(after.len() - bytes.len())));
        prop_assert!(after.starts_with(&bytes));
    }

    #[test]
    fn the_same_damage_changes_equal_bytes_equally(seed: u64, kinds: [bool; 3], bytes: Vec<u8>) {
        prop_assume!(kinds != [false; 3]);
        let damage = damage(seed, kinds);
        prop_assert_eq!(inflicted(damage, &bytes), inflicted(damage, &bytes));
    }
}

#[test]
fn all_amounts_of_damage_occur() {
    let bytes = [0x5a; 1_000];
    let (mut flips, mut more, mut left) = ([0; 9], [0; 65], [0; 10]);
    for seed in 0..4_000 {
        // Seeds differ above the bits that select the kinds of damage.
        let after = |kinds| inflicted(damage(seed << 3, kinds), &bytes);
        flips[distance(&bytes, &after([true, false, false])) as usize] += 1;
        left[after([false, true, false]).len() / 100] += 1;
        more[after([false, false, true]).len() - bytes.len()] += 1;
    }
    assert!(flips[1..].iter().all(|&n| (400..600).contains(&n)), "{flips:?}");
    assert!(left.iter().all(|&n| (320..480).contains(&n)), "{left:?}");
    assert!(more[1..].iter().all(|&n| (30..100).contains(&n)), "{more:?}");
}

#[test]
fn a_bit_is_flipped_at_most_once() {
    // Each number of flipped bits, from 1 to all 8, must occur equally often. If a bit were flipped
    // twice, smaller numbers, also 0, would occur more often.
    let mut flips = [0; 9];
    for seed in 0..8_000 {
        flips
            [distance(&[0], &inflicted(damage(seed << 3, [true, false, false]), &[0])) as usize] +=
            1;
    }
    assert!(flips[0] == 0 && flips[1..].iter().all(|&n| (850..1_150).contains(&n)), "{flips:?}");
}

#[test]
fn a_packet_may_suffer_all_kinds_of_damage() {
    let bytes = [0; 100];
    let after: Vec<_> =
        (0..200).map(|seed| inflicted(damage(seed << 3, [true; 3]), &bytes)).collect();
    assert!(after.iter().all(|after| *after != bytes), "a damaged packet is unchanged");
    assert!(after.iter().any(|after| after.len() > 100) && after.iter().any(|a| a.len() < 100));
}

#[test]
fn an_empty_packet_can_only_be_extended() {
    assert_eq!(Damage::new(7, false, false, false), None);
    assert_eq!(inflicted(damage(7, [true, true, false]), &[]), []);
    assert!(!inflicted(damage(7, [false, false, true]), &[]).is_empty());
}
