//! Which kills a run makes.

use erpc_txn::workloads::Random;

use crate::fatal::{Method, Moment, Shot, Victim};
use crate::round::Trouble;

/// Who dies, at which request, and when.
type Mark = (Victim, Method, Moment);

/// One kill.
pub(crate) struct Kill {
    pub(crate) trouble: Trouble,
    pub(crate) replicas: usize,
}

/// One kill in so many comes at any time.
const ANYTIME: usize = 10;

/// All moments at which a process can die: at each request that a phase sends to another node, before
/// and after the receiver has done it, the coordinator or the receiver.
fn marks() -> Vec<Mark> {
    let moments = [Moment::Before, Moment::After];
    let at = |victim| {
        Method::ALL.into_iter().flat_map(move |method| moments.map(|at| (victim, method, at)))
    };
    at(Victim::Sender).chain(at(Victim::Receiver)).collect()
}

/// The coordinator in each phase, a replica of a log, a backup, a primary, and a process at any time.
/// With two and three replicas in turn.
pub(crate) fn default(random: &mut Random) -> Vec<Kill> {
    let coordinators = Method::ALL.map(|method| (Victim::Sender, method));
    let receivers = [Method::Append, Method::CommitBackup, Method::CommitPrimary];
    let receivers = receivers.map(|method| (Victim::Receiver, method));
    let mut troubles = Vec::new();
    for (victim, method) in coordinators.into_iter().chain(receivers) {
        let moment = if random.percent(50) { Moment::Before } else { Moment::After };
        troubles.push(shot((victim, method, moment), random));
    }
    troubles.push(Trouble::KillAnytime);
    let kill = |(at, trouble)| Kill { trouble, replicas: 2 + at % 2 };
    troubles.into_iter().enumerate().map(kill).collect()
}

/// This many kills. All moments take their turn, first with two replicas, then with three, and so on.
/// Between them, one kill in ten comes at any time.
pub(crate) fn long(kills: usize, random: &mut Random) -> Vec<Kill> {
    let all = marks();
    let mut turns = (2..=3).flat_map(|replicas| all.iter().map(move |&at| (at, replicas))).cycle();
    let kill = |at| {
        if at % ANYTIME == ANYTIME - 1 {
            return Some(Kill { trouble: Trouble::KillAnytime, replicas: 2 + at / ANYTIME % 2 });
        }
        let (mark, replicas) = turns.next()?;
        Some(Kill { trouble: shot(mark, random), replicas })
    };
    (0..kills).map_while(kill).collect()
}

fn shot((victim, method, moment): Mark, random: &mut Random) -> Trouble {
    Trouble::Kill(Shot { victim, method, moment, count: 1 + random.below(20) as u32 })
}

/// How many kills come at a mark with this many replicas; at any time if there is no mark.
fn count(kills: &[Kill], mark: Option<Mark>, replicas: usize) -> usize {
    let is_at = |kill: &&Kill| {
        kill.replicas == replicas
            && match kill.trouble {
                Trouble::Kill(shot) => mark == Some((shot.victim, shot.method, shot.moment)),
                Trouble::KillAnytime => mark.is_none(),
                Trouble::Pause(_) => false,
            }
    };
    kills.iter().filter(is_at).count()
}

#[test]
fn two_hundred_kills_come_at_each_moment_with_two_and_three_replicas() {
    let kills = long(200, &mut Random::new(1));
    assert_eq!(kills.len(), 200);
    let marks = marks();
    assert_eq!(marks.len(), 2 * 7 * 2);
    for replicas in [2, 3] {
        for &mark in &marks {
            // 180 kills for 56 combinations.
            let count = count(&kills, Some(mark), replicas);
            assert!((3..=4).contains(&count), "{mark:?}, {replicas} replicas: {count}");
        }
        assert_eq!(count(&kills, None, replicas), 10, "at any time, {replicas} replicas");
    }
}

#[test]
fn the_default_kills_come_to_each_role() {
    let kills = default(&mut Random::new(1));
    assert_eq!(kills.len(), 11);
    let has = |victim, method| {
        kills.iter().any(|kill| {
            matches!(kill.trouble, Trouble::Kill(at) if at.victim == victim && at.method == method)
        })
    };
    for method in Method::ALL {
        assert!(has(Victim::Sender, method), "no coordinator dies in {method:?}");
    }
    assert!(has(Victim::Receiver, Method::Append), "no replica of a log dies");
    assert!(has(Victim::Receiver, Method::CommitBackup), "no backup dies");
    assert!(has(Victim::Receiver, Method::CommitPrimary), "no primary dies");
    assert_eq!(count(&kills, None, 2) + count(&kills, None, 3), 1, "one dies at any time");
    assert!([2, 3].iter().all(|&replicas| kills.iter().any(|kill| kill.replicas == replicas)));
}
