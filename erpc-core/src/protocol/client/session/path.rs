//! Probes the path's packet size, and cuts messages into packets of another size.

use super::{Heads, OpenSession, packets_per_second};
use crate::protocol::client::call::Call;
use crate::protocol::client::cut::Cut;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::path_size::{PathStep, Way};
use crate::protocol::client::slot::SlotState;
use crate::protocol::index::SlotIndex;
use crate::protocol::stats::{DropReason, ResendCause};
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::Control;

/// Upper limit for the doublings of the pause between two tries. Each unanswered try doubles the
/// pause.
const MOST_DOUBLINGS: u8 = 6;

impl<R: Route> OpenSession<R> {
    /// How calls are cut into large packets (`is_large`) or small ones.
    pub(super) fn cut_of(&self, is_large: bool) -> &Cut {
        if is_large == self.flags.large() { &self.cut } else { &self.other_cut }
    }

    /// Sends what is due in the search for the path's packet size.
    pub(super) fn look_at_path<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        if turn.now < self.path_size.due() {
            return;
        }
        let pause = self.probe_pause();
        let step = self.path_size.on_due(turn.now, pause, self.flags.large());
        self.follow_path(turn, lines, step);
    }

    /// A message of a call takes several packets: the path may carry larger ones.
    #[inline]
    pub(super) fn want_larger<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let rtt = &self.rtt;
        if self.path_size.want(turn.now, || rtt.rto(0), self.flags.large()) {
            self.send_probes(turn);
            self.arm(turn, self.path_size.due());
        }
    }

    /// A packet of a call, sent at `sent_at`, got no answer: the path may drop large packets.
    pub(super) fn suspect_path<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        at: SlotIndex,
        sent_at: Instant,
    ) {
        let (is_large, way) = match &self.slots[at].state {
            SlotState::Call(call) if call.response().is_some() => {
                (call.is_large(), Some(Way::ToClient))
            }
            // All packets but the last are acknowledged, so either the last one or its answer is
            // missing.
            SlotState::Call(call) if call.awaits_handler() => (call.is_large(), None),
            SlotState::Call(call) => (call.is_large(), Some(Way::ToServer)),
            SlotState::Quarantine(_) => (self.flags.large(), Some(Way::ToClient)),
            SlotState::Free => return,
        };
        let pause = self.probe_pause();
        if is_large && self.path_size.suspect(turn.now, pause, way, sent_at) {
            self.send_probes(turn);
        }
    }

    /// The server has answered a probe of `datagram` bytes.
    pub(super) fn on_probed<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        round: u32,
        datagram: u32,
    ) {
        let (pause, is_large) = (self.probe_pause(), self.flags.large());
        let step = self.path_size.on_probed(turn.now, pause, round, datagram, is_large);
        self.follow_path(turn, lines, step);
    }

    /// A late answer to an `Open` arrived, in `datagram` bytes. It is dropped if it proves nothing.
    pub(super) fn on_opened_again<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        datagram: u32,
    ) -> Result<(), DropReason> {
        let step = self.path_size.on_opened(turn.now, datagram, self.flags.large());
        if step == PathStep::None {
            return Err(DropReason::Handshake);
        }
        self.liveness.heard(turn.now);
        self.follow_path(turn, lines, step);
        Ok(())
    }

    /// The server has adopted the size with number `epoch`.
    pub(super) fn on_resized<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        epoch: u32,
    ) {
        let step = self.path_size.on_resized(turn.now, epoch);
        self.follow_path(turn, lines, step);
    }

    /// Pause between two tries, in ns.
    fn probe_pause(&self) -> u64 {
        self.rtt.rto(self.path_size.silent().min(MOST_DOUBLINGS))
    }

    fn follow_path<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        step: PathStep,
    ) {
        match step {
            PathStep::None => return,
            PathStep::Probe => self.send_probes(turn),
            PathStep::Shrink => {
                self.cut_into(turn, false);
                self.cut_calls_again(turn, lines);
                self.send_probes(turn);
            }
            PathStep::Grow => self.cut_into(turn, true),
            PathStep::Resize { size: max_datagram, is_overdue } => {
                self.cut_into(turn, false);
                if is_overdue {
                    self.cut_calls_again(turn, lines);
                }
                let is_large = |at: SlotIndex| self.slots[at].call().is_some_and(Call::is_large);
                let uses_large = self.occupied().iter().any(is_large);
                if !uses_large {
                    let epoch = self.path_size.epoch();
                    self.send_control(turn, Control::Resize { max_datagram }, epoch);
                }
            }
            PathStep::Resized(max_datagram) => {
                // Since the `Resize` was sent, messages have been cut into small packets, so
                // `other_cut` is the one for large packets.
                *self.other_cut = self.cut.for_datagram(max_datagram, self.eager);
                self.cut_into(turn, true);
            }
        }
        let due = self.path_size.due();
        self.arm(turn, due);
    }

    fn send_probes<X: TxQueue<Route = R>>(&self, turn: &mut Turn<'_, X>) {
        let round = self.path_size.round();
        for size in self.path_size.probes() {
            turn.push_padded(&self.common.route, &Control::Probe, self.remote, round, size);
        }
    }

    /// Cuts new calls into large packets, or into small ones.
    fn cut_into<X>(&mut self, turn: &Turn<'_, X>, is_large: bool) {
        if is_large == self.flags.large() {
            return;
        }
        self.flags = self.flags.with_large(is_large);
        std::mem::swap(&mut self.cut, &mut self.other_cut);
        self.heads = Heads::new(self.flags, &self.cut, self.max_request);
        self.pacer.set_datagram(self.cut.datagram(), turn.endpoint.config.bypasses);
        self.credit_limit.set_line(packets_per_second(self.line_rate, &self.cut));
        self.limit_pace(turn);
    }

    /// The path drops large packets, or their size changes: calls that were cut into large packets
    /// start again, in small ones.
    fn cut_calls_again<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        for at in self.occupied().iter() {
            let is_large = self.slots[at].call().is_some_and(Call::is_large);
            if !is_large {
                continue;
            }
            self.stop_waiting(lines, at);
            turn.tx.reclaim();
            let Some(call) = self.slots[at].call_mut() else { continue };
            if call.is_queued() {
                turn.tx.flush();
            }
            let layout = self.cut.layout.with_size(call.layout().size());
            let last_cost = self.cut.charges.last_packet(layout.len(layout.packets() - 1));
            let mut flow = lines.flow(&mut self.credits, self.peer);
            let stats = &mut turn.endpoint.stats;
            stats.count_resent(&mut self.retransmissions, ResendCause::Timeout, call.unanswered());
            let (now, pool) = (turn.now, &mut turn.endpoint.pool);
            call.cut_again(layout, last_cost, now, &self.cut.charges, &mut flow, pool);
            lines.note_release(self.peer);
            self.transmit(turn, lines, at, None);
        }
        lines.feed_later(self.index(), &self.credits);
    }
}
