use super::{Call, Operation, Verdict, check};

const LIMIT: u64 = 1_000_000;

fn call(begun: u64, ended: u64, operation: Operation) -> Call {
    let ended = (ended != u64::MAX).then_some(ended);
    Call { key: b"k".to_vec(), begun, ended, operation }
}

fn put(value: u8) -> Operation {
    Operation::Put(vec![value])
}

fn get(value: u8) -> Operation {
    Operation::Get((value != 0).then(|| vec![value]))
}

fn cas(expected: u8, value: u8, swapped: Option<bool>) -> Operation {
    let expected = (expected != 0).then(|| vec![expected]);
    Operation::Cas { expected, value: vec![value], swapped }
}

fn holds(calls: &[Call]) -> bool {
    match check(calls, LIMIT) {
        Verdict::Linearizable => true,
        Verdict::Violation(_) => false,
        Verdict::Unknown(steps) => panic!("given up after {steps} steps"),
    }
}

#[test]
fn a_read_sees_a_write_that_has_ended() {
    assert!(holds(&[call(0, 1, put(1)), call(2, 3, get(1))]));
    assert!(!holds(&[call(0, 1, put(1)), call(2, 3, get(0))]));
    assert!(!holds(&[call(0, 1, put(1)), call(2, 3, put(2)), call(4, 5, get(1))]));
}

#[test]
fn a_read_may_or_may_not_see_a_write_beside_it() {
    assert!(holds(&[call(0, 10, put(1)), call(2, 3, get(1))]));
    assert!(holds(&[call(0, 10, put(1)), call(2, 3, get(0))]));
    assert!(!holds(&[call(0, 10, put(1)), call(2, 3, get(1)), call(4, 5, get(0))]));
}

#[test]
fn a_write_without_an_answer_may_happen_at_any_time_or_never() {
    let lost = call(0, u64::MAX, put(1));
    assert!(holds(&[lost.clone(), call(2, 3, get(0)), call(4, 5, get(1))]));
    assert!(holds(&[lost.clone(), call(2, 3, get(0))]));
    assert!(!holds(&[lost, call(2, 3, get(1)), call(4, 5, get(0))]));
}

#[test]
fn of_two_compare_and_swaps_of_one_value_one_succeeds() {
    let both = |swapped| [call(0, 9, cas(0, 1, Some(true))), call(0, 9, cas(0, 2, Some(swapped)))];
    assert!(holds(&both(false)));
    assert!(!holds(&both(true)));
    assert!(holds(&[call(0, u64::MAX, cas(0, 1, None)), call(2, 3, get(1))]));
}

#[test]
fn a_search_that_is_too_long_is_unknown() {
    let calls: Vec<_> = (1..20).map(|value| call(0, 100, put(value))).collect();
    let calls = [calls, vec![call(101, 102, get(200))]].concat();
    assert_eq!(check(&calls, 1000), Verdict::Unknown(1000));
}

/// All orders, without any cleverness.
fn brute_force(calls: &[Call], value: u8) -> bool {
    if calls.iter().all(|call| call.ended.is_none()) {
        return true;
    }
    let bound = calls.iter().filter_map(|call| call.ended).min().unwrap_or(u64::MAX);
    (0..calls.len()).filter(|&at| calls[at].begun <= bound).any(|at| {
        let number = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, |value| value[0]);
        let after = match &calls[at].operation {
            Operation::Put(new) => new[0],
            Operation::Get(read) if calls[at].ended.is_none() || number(read) == value => value,
            Operation::Get(_) => return false,
            Operation::Cas { expected, value: new, swapped } => {
                let swaps = number(expected) == value;
                if swapped.is_some_and(|swapped| swapped != swaps) {
                    return false;
                }
                if swaps { new[0] } else { value }
            }
        };
        let mut rest = calls.to_vec();
        rest.remove(at);
        brute_force(&rest, after)
    })
}

#[test]
fn random_histories_have_the_verdict_of_all_orders() {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut verdicts = [0, 0];
    for _ in 0..20_000 {
        let calls: Vec<_> = (0..1 + draw(6))
            .map(|_| {
                let begun = draw(12);
                let is_lost = draw(5) == 0;
                let ended = if is_lost { u64::MAX } else { begun + 1 + draw(6) };
                let (one, other) = (draw(3) as u8, 1 + draw(2) as u8);
                let swapped = (!is_lost).then(|| draw(2) == 0);
                match draw(3) {
                    0 => call(begun, ended, put(other)),
                    1 => call(begun, ended, get(one)),
                    _ => call(begun, ended, cas(one, other, swapped)),
                }
            })
            .collect();
        let expected = brute_force(&calls, 0);
        assert_eq!(holds(&calls), expected, "{calls:?}");
        verdicts[usize::from(expected)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 2_000), "{verdicts:?}");
}
