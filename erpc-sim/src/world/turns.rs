//! When whose turn it is, and what users do between turns.

use std::sync::Arc;

use erpc_core::protocol::ListenGroup;
use erpc_core::time::Instant;
use erpc_core::transport::MAX_BURST;
use erpc_test_tools::random::mix;

use super::{Event, Phase, World};
use crate::party::Turn;

impl World<'_> {
    /// An endpoint is born and opens its sessions.
    pub(super) fn start(&mut self, index: usize) {
        let plan = &self.plan.endpoints[index];
        let life = self.nodes[index].party.incarnation().1;
        let host = u64::from(plan.route.host);
        // The endpoints of a host live and die together, and share what listening groups share.
        let group = self.groups.entry((plan.route.host, life)).or_insert_with(|| {
            let secret = mix(self.plan.seed ^ host << 16 ^ u64::from(life) << 48);
            let ports =
                if plan.group.is_empty() { vec![plan.route.port] } else { plan.group.clone() };
            Arc::new(ListenGroup::new((u128::from(secret) << 32).to_le_bytes(), ports))
        });
        self.nodes[index].start(plan, group);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        let Some(rpc) = &mut node.rpc else { return };
        let mut cx = rpc.context_at(now);
        if self.phase == Phase::Faults {
            node.party.connect_all(&mut cx, plan, &mut self.oracle);
        } else {
            node.party.retire();
        }
        self.between_turns(index);
    }

    /// One turn of an endpoint's loop, if it is due.
    pub(super) fn turn(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.turn_at != Some(self.now) {
            return;
        }
        node.turn_at = None;
        let Some(rpc) = &mut node.rpc else { return };
        let waiting = node.port.waiting().min(MAX_BURST);
        node.port.set_now(self.now);
        node.turns += 1;
        node.party.begin_turn();
        let mut turn = Turn {
            party: &mut node.party,
            oracle: &mut self.oracle,
            plan: self.plan,
            later: &mut self.later,
        };
        rpc.run_once_at(node.clock.at(self.now), &mut turn);
        let away = node.absent_for();
        if away == 0
            && let Some(rpc) = &mut node.rpc
        {
            // Its next turn is when something comes.
            rpc.rested();
        }
        let (per_turn, per_packet) = self.plan.turn_nanos;
        node.busy_until = self.now.plus_nanos(per_turn + per_packet * waiting as u64 + away);
        if away > 0 {
            let back = node.busy_until;
            self.happened.absences += 1;
            self.plan_turn(index, back);
        }
        self.check(index, waiting);
        self.after_turn(index);
    }

    /// What was done at an endpoint outside of a turn goes out.
    pub(super) fn between_turns(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.port.set_now(self.now);
        if let Some(rpc) = &mut node.rpc {
            rpc.ring_doorbell();
        }
        self.plan_users(index);
        self.plan_turn(index, self.now);
        self.send_all(index);
    }

    pub(super) fn after_turn(&mut self, index: usize) {
        if std::mem::take(&mut self.nodes[index].party.begins_anew) {
            self.replay_past(index);
        }
        let (_, life) = self.nodes[index].party.incarnation();
        for (nanos, answer) in self.later.drain(..) {
            self.happened.late_answers += 1;
            let place = self.answers.put((index, life, answer));
            self.agenda.put(self.now.plus_nanos(nanos), Event::Answer(place));
        }
        self.plan_users(index);
        self.send_all(index);
        let node = &self.nodes[index];
        let next = if node.port.waiting() > 0 {
            Some(node.busy_until)
        } else {
            let deadline = node.rpc.as_ref().and_then(|rpc| rpc.next_deadline());
            deadline.and_then(|deadline| node.clock.when(deadline))
        };
        if let Some(next) = next {
            self.plan_turn(index, next);
        }
    }

    /// Plans a turn for `at`, or earlier if one is planned.
    pub(super) fn plan_turn(&mut self, index: usize, at: Instant) {
        let node = &mut self.nodes[index];
        let at = at.max(node.busy_until).max(self.now);
        if node.turn_at.is_some_and(|planned| planned <= at) {
            return;
        }
        node.turn_at = Some(at);
        if at == self.now {
            self.ready.push_back(index as u32);
        } else {
            self.set_alarm(index, at);
        }
    }

    /// Sees to it that somebody looks after an endpoint at `at` or earlier: most turns come before their
    /// timers, and an event for each would be too many.
    pub(super) fn set_alarm(&mut self, index: usize, at: Instant) {
        let node = &mut self.nodes[index];
        if node.alarm_at.is_none_or(|alarm| at < alarm) {
            node.alarm_at = Some(at);
            self.agenda.put(at, Event::Alarm(index as u32));
        }
    }

    /// The cancels that an endpoint's user has thought of, and the ends of its pauses.
    pub(super) fn plan_users(&mut self, index: usize) {
        let party = &mut self.nodes[index].party;
        let (_, life) = party.incarnation();
        for (nanos, id) in party.to_cancel.drain(..) {
            let place = self.cancels.put((index, life, id));
            self.agenda.put(self.now.plus_nanos(nanos), Event::Cancel(place));
        }
        for (nanos, wake) in party.wakes().drain(..) {
            let place = self.wakes.put((index, life, wake));
            self.agenda.put(self.now.plus_nanos(nanos), Event::Wake(place));
        }
    }

    pub(super) fn cancel(&mut self, place: u32) {
        let (index, life, id) = self.cancels.take(place);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        if node.party.incarnation().1 != life {
            return;
        }
        if let Some(rpc) = &mut node.rpc {
            node.party.cancel(&mut rpc.context_at(now), id, &mut self.oracle);
            self.between_turns(index);
        }
    }

    pub(super) fn answer(&mut self, place: u32) {
        let (index, life, answer) = self.answers.take(place);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        // Who has died since has nothing to answer.
        if node.party.incarnation().1 != life {
            return;
        }
        if let Some(rpc) = &mut node.rpc {
            node.party.answer_late(&mut rpc.context_at(now), answer);
            self.between_turns(index);
        }
    }

    /// A user of a stream goes on.
    pub(super) fn wake(&mut self, place: u32) {
        let (index, life, wake) = self.wakes.take(place);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        if node.party.incarnation().1 != life {
            return;
        }
        if let Some(rpc) = &mut node.rpc {
            node.party.wake(&mut rpc.context_at(now), wake, &mut self.oracle, self.plan);
            self.between_turns(index);
        }
    }

    /// An endpoint begins streams.
    pub(super) fn begin_streams(&mut self, index: usize, streams: u32) {
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        if let Some(rpc) = &mut node.rpc {
            let mut cx = rpc.context_at(now);
            node.party.begin_streams(&mut cx, streams, &mut self.oracle, self.plan);
            self.between_turns(index);
        }
    }
}
