//! The partition beside a model: it may forget, and may not lie.

use std::collections::HashMap;

use erpc_test_tools::random::Random;

use super::log::POSITIONS;
use super::model::{Model, key, read};
use super::*;

/// A partition beside a model, driven by random numbers.
fn beside_a_model(cache: Partition, seed: u64, longest: u64) -> Model<impl FnMut(u64) -> u64> {
    let mut random = Random::new(seed);
    Model::new(cache, longest, move |bound| random.below(bound))
}

#[test]
fn a_cache_that_forgets_never_lies() {
    for (seed, buckets, keys, longest) in [
        (1, 64, 300, 40),
        (2, 1, 100, 40),
        (3, 4096, 1000, MAX_VALUE as u64),
        (4, 8, 50, 0),
        (5, 16, 10_000, 200),
    ] {
        let config = Config::new(MIN_LOG).buckets(buckets);
        let mut model = beside_a_model(Partition::new(config).expect("valid sizes"), seed, longest);
        (0..50_000).for_each(|_| model.step(keys));
        model.settle();
        let counts = model.counts();
        assert!(counts.overwritten > 0 || buckets < 16, "the log is small: {counts:?}");
        assert!(counts.displaced > 0 || buckets > 1, "the one bucket is small: {counts:?}");
        assert!(counts.displaced == 0 || buckets < 4096, "the index is large: {counts:?}");
    }
}

#[test]
fn positions_may_wrap_around() {
    // The last value before the wrap, and the first after it, come early.
    for before in [0, 1, 2, 3, 100, 5000] {
        let config = Config::new(MIN_LOG).buckets(64);
        let cache = Partition::starting_at(config, POSITIONS - before).expect("valid sizes");
        let mut model = beside_a_model(cache, before, 40);
        (0..20_000).for_each(|_| model.step(300));
        model.settle();
    }
}

#[test]
fn a_slot_of_long_ago_is_freed_before_its_position_returns() {
    let cache = Partition::new(Config::new(MIN_LOG).buckets(4)).expect("valid sizes");
    cache.put(&key(1), b"old", None).expect("it is short");
    let words = 3 + MAX_VALUE as u64 / 8;
    let others =
        (2..).map(key).filter(|other| Hash::of(other).bucket(4) != Hash::of(&key(1)).bucket(4));
    // One sweep of a bucket per 2^14 words.
    for other in others.take(4 * (1 << 14) / words as usize + 1) {
        cache.put(&other, &[7; MAX_VALUE], None).expect("it is not too long");
    }
    assert_eq!(cache.locate(Hash::of(&key(1))), None, "the slot is free");
}

#[test]
fn nothing_is_forgotten_while_there_is_room() {
    let cache = Partition::new(Config::new(1 << 20)).expect("valid sizes");
    // A quarter of the slots.
    for number in 0..8_000 {
        assert_eq!(cache.put(&key(number), &number.to_le_bytes(), None), Ok(0));
    }
    for number in 0..8_000 {
        assert_eq!(read(&cache, &key(number), 0), Some(number.to_le_bytes().to_vec()));
    }
    let Counts { values, hits, misses, puts, .. } = cache.counts();
    assert_eq!((values, hits, misses, puts), (8_000, 8_000, 0, 8_000));
}

#[test]
fn a_full_bucket_forgets_its_oldest_value() {
    let cache = Partition::new(Config::new(MIN_LOG).buckets(1)).expect("valid sizes");
    for number in 0..8 {
        assert_eq!(cache.put(&key(number), b"value", None), Ok(0));
    }
    // A longer value has a new place, so it is the newest.
    assert_eq!(cache.put(&key(0), b"a longer value", None), Ok(0));
    assert_eq!(cache.put(&key(8), b"value", None), Ok(1));
    assert_eq!(read(&cache, &key(1), 0), None);
    assert!((0..9).filter(|&number| number != 1).all(|of| read(&cache, &key(of), 0).is_some()));
}

#[test]
fn a_value_of_the_same_length_replaces_the_old_one_in_its_place() {
    // Room for three values of this length.
    let cache = Partition::new(Config::new(MIN_LOG).buckets(4)).expect("valid sizes");
    cache.put(&key(1), b"value", None).expect("it is short");
    for round in 0..1000_u64 {
        assert_eq!(cache.put(&key(2), &[round as u8; MAX_VALUE], None), Ok(0));
        assert_eq!(read(&cache, &key(2), 0), Some(vec![round as u8; MAX_VALUE]));
    }
    assert_eq!(read(&cache, &key(1), 0), Some(b"value".to_vec()));
    // The number of words counts, and the new value may expire.
    assert_eq!(cache.put(&key(1), b"other", Some(10)), Ok(0));
    assert_eq!(read(&cache, &key(1), 9), Some(b"other".to_vec()));
    assert_eq!(cache.put(&key(1), b"eight by", None), Ok(0));
    assert_eq!(read(&cache, &key(1), 99), Some(b"eight by".to_vec()));
    assert_eq!(cache.put(&key(1), b"", None), Ok(0));
    assert_eq!(read(&cache, &key(1), 0), Some(Vec::new()));
}

#[test]
fn a_value_that_is_written_again_and_again_is_never_the_oldest() {
    // The log is full long before a bucket is.
    let cache = Partition::new(Config::new(MIN_LOG).buckets(1024)).expect("valid sizes");
    for number in 1..10_000_u64 {
        cache.put(&key(0), &number.to_le_bytes(), None).expect("it is short");
        cache.put(&key(number), b"once", None).expect("it is short");
        assert_eq!(read(&cache, &key(0), 0), Some(number.to_le_bytes().to_vec()));
    }
    let Counts { values, overwritten, displaced, .. } = cache.counts();
    assert_eq!((values + overwritten, displaced), (10_000, 0), "the first key counts once");
}

#[test]
fn keys_with_the_same_tag_and_bucket_are_told_apart() {
    let mut seen = HashMap::new();
    let (one, other) = (0..)
        .find_map(|number| {
            let hash = Hash::of(&key(number));
            seen.insert((hash.tag(), hash.bucket(16)), number).map(|other| (number, other))
        })
        .expect("23 bits repeat");
    let cache = Partition::new(Config::new(MIN_LOG).buckets(16)).expect("valid sizes");
    cache.put(&key(one), b"one", None).expect("it is short");
    assert_eq!(read(&cache, &key(other), 0), None);
    let hint = cache.locate(Hash::of(&key(other))).expect("the tag is there");
    assert!(!cache.get_at(hint, &key(other), || 0, &mut Vec::new()), "it is another key's");
    cache.put(&key(other), b"other", None).expect("it is short");
    for (number, value) in [(one, "one"), (other, "other")] {
        assert_eq!(read(&cache, &key(number), 0), Some(value.into()));
        let hint = cache.locate(Hash::of(&key(number))).expect("the tag is there");
        let mut got = Vec::new();
        assert!(cache.get_at(hint, &key(number), || 0, &mut got));
        assert_eq!(got, value.as_bytes());
    }
}

#[test]
fn a_value_expires_at_its_time() {
    let cache = Partition::new(Config::new(MIN_LOG)).expect("valid sizes");
    cache.put(&key(1), b"value", Some(100)).expect("it is short");
    cache.put(&key(2), b"value", Some(u64::MAX)).expect("it is short");
    assert_eq!(read(&cache, &key(1), 99), Some(b"value".to_vec()));
    assert_eq!(read(&cache, &key(1), 100), None);
    // It is forgotten, and not only hidden.
    assert_eq!(read(&cache, &key(1), 99), None);
    assert_eq!(read(&cache, &key(2), 1 << 46), Some(b"value".to_vec()));
    let Counts { values, expired, .. } = cache.counts();
    assert_eq!((values, expired), (1, 1));
}

#[test]
fn sizes_are_checked() {
    for log in [0, 1, MIN_LOG - 1, MIN_LOG + 1, 3 << 20, MAX_LOG * 2, usize::MAX] {
        let error = Partition::new(Config::new(log)).expect_err("the log has a wrong size");
        assert_eq!(error, ConfigError::Log(log));
    }
    for buckets in [0, 3, 1 << 25] {
        let config = Config::new(MIN_LOG).buckets(buckets);
        let error = Partition::new(config).expect_err("the number of buckets is wrong");
        assert_eq!(error, ConfigError::Buckets(buckets));
    }
    let cache = Partition::new(Config::new(MIN_LOG)).expect("valid sizes");
    assert_eq!(cache.put(&key(1), &[0; MAX_VALUE + 1], None), Err(ValueTooLong(MAX_VALUE + 1)));
    assert_eq!(cache.put(&key(1), &[0; MAX_VALUE], None), Ok(0));
    assert_eq!(read(&cache, &key(1), 0), Some(vec![0; MAX_VALUE]));
}
