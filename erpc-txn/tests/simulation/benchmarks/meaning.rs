//! What single transactions of the benchmarks do.

use erpc_txn::codec::{Key, Value};
use erpc_txn::workloads::objects::{self, OBJECTS, Objects};
use erpc_txn::workloads::smallbank::{self, CHECKING, SAVING, SmallBank};
use erpc_txn::workloads::tatp::{
    ACCESS_INFO, CALL_FORWARDING, CallForwarding, Choice, MAGIC, SEC_SUBSCRIBER, SPECIAL_FACILITY,
    SUBSCRIBER, SecSubscriber, SpecialFacility, Start, SubNbr, Subscriber, Tatp, Typed,
};
use erpc_txn::workloads::ycsb::{self, Mix, RECORDS, Size, Ycsb};
use erpc_txn::workloads::{Outcome, Workload};

use super::Loaded;

fn succeeds<W: Workload>(loaded: &Loaded<W>, choice: W::Choice) -> i64 {
    match loaded.one(choice.clone()) {
        Outcome::Succeeded(added) => added,
        other => panic!("{choice:?}: {other:?}"),
    }
}

fn fails<W: Workload>(loaded: &Loaded<W>, choice: W::Choice) {
    let outcome = loaded.one(choice.clone());
    assert!(matches!(outcome, Outcome::Failed), "{choice:?}: {outcome:?}");
}

fn row<V: Value, W: Workload>(loaded: &Loaded<W>, table: u16, key: impl Key) -> Option<V> {
    let bytes = loaded.stored(table, key.number())?;
    Some(V::decode(&bytes).unwrap_or_else(|error| panic!("table {table}: {error}")))
}

/// All facilities of the population, with their keys.
fn facilities(loaded: &Loaded<Tatp>) -> Vec<(Typed, Option<SpecialFacility>)> {
    let keys = (0..SUBSCRIBERS).flat_map(|s_id| (1..=4).map(move |of| Typed { s_id, of }));
    keys.map(|key| (key, row(loaded, SPECIAL_FACILITY.id(), key))).collect()
}

const SUBSCRIBERS: u32 = 40;

#[test]
fn tatp_reads_what_is_there() {
    let loaded = Loaded::start(3, 1, Tatp::new(SUBSCRIBERS));
    succeeds(&loaded, Choice::GetSubscriberData { s_id: 0 });
    fails(&loaded, Choice::GetSubscriberData { s_id: SUBSCRIBERS });
    let (mut present, mut absent) = (0, 0);
    for s_id in 0..SUBSCRIBERS {
        for of in 1..=4 {
            let key = Typed { s_id, of };
            if loaded.stored(ACCESS_INFO.id(), key.number()).is_some() {
                succeeds(&loaded, Choice::GetAccessData { key });
                present += 1;
            } else {
                fails(&loaded, Choice::GetAccessData { key });
                absent += 1;
            }
        }
    }
    assert!(present > absent && absent > 0, "{present} present, {absent} absent");
    let number: SecSubscriber =
        row(&loaded, SEC_SUBSCRIBER.id(), SubNbr::of(39)).expect("it is there");
    assert_eq!((number.s_id.get(), number.magic), (39, MAGIC));
    // The digits of 39, the last one first.
    assert_eq!(SubNbr::of(39).number(), 0x39);
    assert_eq!(SubNbr::of(1_234_567).number(), 0x123_4567);
}

#[test]
fn tatp_finds_a_destination_if_a_forwarding_lasts_longer() {
    let loaded = Loaded::start(3, 1, Tatp::new(SUBSCRIBERS));
    let mut found = 0;
    for (Typed { s_id, of }, facility) in facilities(&loaded) {
        for start_time in [0, 8, 16] {
            let key = Start { s_id, sf_type: of, start_time };
            let ends = (0..=start_time).step_by(8).filter_map(|start_time| {
                let key = Start { start_time, ..key };
                row(&loaded, CALL_FORWARDING.id(), key).map(|row: CallForwarding| row.end_time)
            });
            let last = ends.max().filter(|_| facility.is_some_and(|row| row.is_active == 1));
            let at = |end_time| Choice::GetNewDestination { key, end_time };
            match last {
                Some(last) => {
                    succeeds(&loaded, at(last - 1));
                    fails(&loaded, at(last));
                    found += 1;
                }
                None => fails(&loaded, at(0)),
            }
        }
    }
    assert!(found > 50, "{found} destinations");
}

#[test]
fn tatp_updates_both_rows_or_none() {
    let loaded = Loaded::start(3, 1, Tatp::new(SUBSCRIBERS));
    for (key, facility) in facilities(&loaded) {
        let before: Subscriber = row(&loaded, SUBSCRIBER.id(), key.s_id).expect("it is there");
        let bits = before.bits.get() ^ 1;
        let data_a = facility.map_or(0, |row| row.data_a ^ 1);
        let update = Choice::UpdateSubscriberData { key, bits, data_a };
        let mut expected = before;
        if let Some(facility) = facility {
            succeeds(&loaded, update);
            expected.bits = bits.into();
            let expected = SpecialFacility { data_a, ..facility };
            assert_eq!(row(&loaded, SPECIAL_FACILITY.id(), key), Some(expected));
        } else {
            fails(&loaded, update);
        }
        assert_eq!(row(&loaded, SUBSCRIBER.id(), key.s_id), Some(expected));
    }
    let before: Subscriber = row(&loaded, SUBSCRIBER.id(), 7u32).expect("it is there");
    succeeds(&loaded, Choice::UpdateLocation { s_id: 7, vlr_location: 77 });
    let expected = Subscriber { vlr_location: 77.into(), ..before };
    assert_eq!(row(&loaded, SUBSCRIBER.id(), 7u32), Some(expected));
    assert!(loaded.cluster.hosts.iter().all(|host| host.participant.locks().is_empty()));
}

#[test]
fn tatp_inserts_and_deletes_forwardings() {
    let loaded = Loaded::start(3, 1, Tatp::new(SUBSCRIBERS));
    for (Typed { s_id, of }, facility) in facilities(&loaded).into_iter().take(40) {
        let key = Start { s_id, sf_type: of, start_time: 8 };
        let stored = || row::<CallForwarding, _>(&loaded, CALL_FORWARDING.id(), key);
        let delete = Choice::DeleteCallForwarding { key };
        if stored().is_some() {
            assert!(facility.is_some());
            succeeds(&loaded, delete);
        }
        assert_eq!(stored(), None);
        fails(&loaded, delete);
        let new = CallForwarding { end_time: 20, numberx: [5; 15] };
        let insert = Choice::InsertCallForwarding { key, row: new };
        if facility.is_some() {
            succeeds(&loaded, insert);
            assert_eq!(stored(), Some(new));
        }
        // The forwarding is there, or its facility is missing.
        fails(&loaded, insert);
    }
}

#[test]
fn smallbank_moves_money() {
    use smallbank::Choice;

    let loaded = Loaded::start(3, 2, SmallBank::new(50).initial(1000));
    let balances = |customer: u64| {
        let of = |table| row(&loaded, table, customer).expect("it is there");
        (of(SAVING.id()), of(CHECKING.id()))
    };
    assert_eq!(succeeds(&loaded, Choice::Balance(1)), 0);
    assert_eq!(succeeds(&loaded, Choice::DepositChecking(1)), 130);
    assert_eq!(succeeds(&loaded, Choice::TransactSaving(1)), 2020);
    assert_eq!(balances(1), (3020i64, 1130i64));
    assert_eq!(succeeds(&loaded, Choice::Amalgamate(1, 2)), 0);
    assert_eq!((balances(1), balances(2)), ((0, 0), (1000, 5150)));
    fails(&loaded, Choice::SendPayment(1, 2));
    assert_eq!(succeeds(&loaded, Choice::SendPayment(2, 1)), 0);
    assert_eq!((balances(1), balances(2)), ((0, 500), (1000, 4650)));
    assert_eq!(succeeds(&loaded, Choice::WriteCheck(1)), -500);
    assert_eq!(succeeds(&loaded, Choice::WriteCheck(1)), -600, "it is overdrawn");
    assert_eq!(balances(1), (0, -600));
    fails(&loaded, Choice::Balance(50));
}

#[test]
fn objects_have_different_primaries() {
    let loaded = Loaded::start(3, 0, Objects::new(100, 4, 2));
    let placement = &*loaded.cluster.ring;
    for choice in loaded.mix(500) {
        let mut keys = choice.reads.clone();
        keys.extend(choice.writes.iter().map(|&(key, _)| key));
        let mut load = [0; 3];
        for &key in &keys {
            load[usize::from(erpc_txn::cluster::Placement::partition_of(placement, key))] += 1;
        }
        load.sort_unstable();
        assert_eq!(load, [1, 1, 2], "{choice:?}");
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4);
    }
    let value = [9; 40];
    succeeds(&loaded, objects::Choice { reads: [1][..].into(), writes: [(2, value)][..].into() });
    assert_eq!(loaded.stored(OBJECTS.id(), 2), Some(value.to_vec()));
    fails(&loaded, objects::Choice { reads: [100][..].into(), writes: [(3, value)][..].into() });
    assert_ne!(loaded.stored(OBJECTS.id(), 3), Some(value.to_vec()));
}

#[test]
fn ycsb_changes_one_field_and_inserts_the_next_record() {
    use ycsb::Choice;

    let size = Size { records: 100, inserts: 100, fields: 10, field: 100 };
    let loaded = Loaded::start(3, 1, Ycsb::new(Mix::D, size));
    let before = loaded.stored(RECORDS.id(), 5).expect("it is there");
    succeeds(&loaded, Choice::Update { key: 5, field: 9, value: vec![1; 100] });
    let after = loaded.stored(RECORDS.id(), 5).expect("it is there");
    assert_eq!((&after[..900], &after[900..]), (&before[..900], &[1; 100][..]));
    fails(&loaded, Choice::Read(100));
    let choices = loaded.mix(500);
    let inserts: Vec<_> =
        choices.iter().filter(|choice| matches!(choice, Choice::Insert(_))).collect();
    assert!((10..50).contains(&inserts.len()), "{} of 500 insert", inserts.len());
    assert!((100..).map(Choice::Insert).zip(inserts).all(|(next, choice)| next == *choice));
    for (choice, outcome) in choices.iter().zip(loaded.run(choices.clone())) {
        assert!(matches!(outcome, Outcome::Succeeded(0)), "{choice:?}: {outcome:?}");
    }
    let keys = |choice: &Choice| match choice {
        Choice::Read(key) | Choice::Insert(key) | Choice::Update { key, .. } => *key,
    };
    let late = choices.iter().filter(|choice| keys(choice) >= 90).count();
    assert!(late > 200, "{late} of 500 are for the last records");
    // The key after the last one for which there is room.
    let [outcome] = &loaded.run(vec![Choice::Insert(200)])[..] else { panic!("one outcome") };
    let text = format!("{outcome:?}");
    assert!(text.contains("NoRoom"), "{text}");
}
