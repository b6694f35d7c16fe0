//! The turns of endpoints, and the actions of users between turns.

use std::sync::Arc;

use erpc_core::protocol::ListenGroup;
use erpc_test_tools::random::mix;

use super::{Event, Phase, World};
use crate::oracle::{Incarnation, Oracle};
use crate::party::{Cx, Party, Turn};
use crate::plan::Plan;
use crate::trace;

impl World<'_> {
    /// Starts an endpoint, which opens its sessions.
    pub(super) fn start(&mut self, index: usize) {
        let plan = &self.plan.endpoints[index];
        let life = self.nodes[index].party.incarnation().1;
        let host = u64::from(plan.route.host);
        // The endpoints of a host start and die together, so they share a listening group.
        let group = self.groups.entry((plan.route.host, life)).or_insert_with(|| {
            let secret = mix(self.plan.seed ^ host << 16 ^ u64::from(life) << 48);
            let ports =
                if plan.group.is_empty() { vec![plan.route.port] } else { plan.group.clone() };
            Arc::new(ListenGroup::new((u128::from(secret) << 32).to_le_bytes(), ports))
        });
        self.nodes[index].start(plan, group);
        self.oracle.endpoint_lives(index);
        let connects = self.phase == Phase::Faults;
        self.act(index, |party, cx, oracle, _| {
            if connects {
                party.connect_all(cx, plan, oracle);
            } else {
                party.retire();
            }
        });
    }

    /// Lets the user of a living endpoint act between two turns of its loop.
    pub(super) fn act(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Party, &mut Cx<'_>, &mut Oracle, &Plan),
    ) {
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.driver.now());
        if let Some(rpc) = &mut node.rpc {
            self.oracle.set_acting(Some(index));
            action(&mut node.party, &mut rpc.context_at(now), &mut self.oracle, self.plan);
            self.between_turns(index);
        }
    }

    /// As [`act`](Self::act), unless the endpoint has died since the action was planned. The calls
    /// and streams of the endpoint died with it.
    pub(super) fn act_in_life(
        &mut self,
        of: Incarnation,
        action: impl FnOnce(&mut Party, &mut Cx<'_>, &mut Oracle, &Plan),
    ) {
        let (index, _) = of;
        if self.nodes[index].party.incarnation() == of {
            self.act(index, action);
        }
    }

    /// One turn of an endpoint's loop.
    pub(super) fn turn(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(rpc) = &mut node.rpc else { return };
        let waiting = node.port.waiting().min(node.port.nic().burst);
        let now = self.driver.now();
        node.port.set_now(now);
        node.turns += 1;
        node.party.begin_turn();
        self.oracle.set_acting(Some(index));
        let mut turn = Turn {
            party: &mut node.party,
            oracle: &mut self.oracle,
            plan: self.plan,
            later: &mut self.later,
        };
        let before = self.plan.prints.then(|| rpc.stats().protocol);
        rpc.run_once_at(node.clock.at(now), &mut turn);
        if let Some(before) = before {
            let route = self.plan.endpoints[index].route;
            trace::drops(now, route, &before, &rpc.stats().protocol);
        }
        let away = node.absent_for();
        if away == 0
            && let Some(rpc) = &mut node.rpc
        {
            // The loop sleeps until a packet arrives or a timer fires.
            rpc.rested();
        }
        let (per_turn, per_packet) = self.plan.turn_nanos;
        let busy = now.plus_nanos(per_turn + per_packet * waiting as u64 + away);
        self.driver.set_busy_until(index, busy);
        if away > 0 {
            self.happened.absences += 1;
            let route = self.plan.endpoints[index].route;
            self.tell(|| format!("{route} has its loop pause for {away} ns"));
            self.driver.plan_turn(index, busy);
        }
        self.check(index, waiting);
        self.after_turn(index);
    }

    /// Sends what a user did outside of a turn, and plans the next turn.
    pub(super) fn between_turns(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.port.set_now(self.driver.now());
        if let Some(rpc) = &mut node.rpc {
            rpc.ring_doorbell();
        }
        self.plan_users(index);
        self.driver.plan_turn_now(index);
        self.send_all(index);
    }

    pub(super) fn after_turn(&mut self, index: usize) {
        if std::mem::take(&mut self.nodes[index].party.begins_anew) {
            self.replay_past(index);
        }
        let me = self.nodes[index].party.incarnation();
        for (nanos, answer) in self.later.drain(..) {
            self.happened.late_answers += 1;
            self.driver.schedule_in(nanos, Event::Answer(me, answer));
        }
        self.plan_users(index);
        self.send_all(index);
        let node = &self.nodes[index];
        let next = if node.port.waiting() > 0 || node.port.has_reports() {
            Some(self.driver.busy_until(index))
        } else {
            let deadline = node.rpc.as_ref().and_then(|rpc| rpc.next_deadline());
            deadline.and_then(|deadline| node.clock.when(deadline))
        };
        if let Some(next) = next {
            self.driver.plan_turn(index, next);
        }
    }

    /// Schedules the cancellations and the pauses of an endpoint's user.
    pub(super) fn plan_users(&mut self, index: usize) {
        let party = &mut self.nodes[index].party;
        let me = party.incarnation();
        for (nanos, id) in party.to_cancel.drain(..) {
            self.driver.schedule_in(nanos, Event::Cancel(me, id));
        }
        for (nanos, wake) in party.wakes().drain(..) {
            self.driver.schedule_in(nanos, Event::Wake(me, wake));
        }
    }
}
