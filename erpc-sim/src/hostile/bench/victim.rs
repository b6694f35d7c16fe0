//! The server of a bench: a real endpoint on a processor with a limited speed.

use std::rc::Rc;
use std::sync::Arc;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    Acceptor, Body, CallError, ListenGroup, NewCall, Reply, Request, SessionEvent, SessionId,
};
use erpc_core::status::{Code, Status};
use erpc_core::time::Instant;

use super::{AttackReport, Bench, CALLS_FROM, PACKET_NANOS, TURN_NANOS, VICTIM, port};
use crate::SimRoute;
use crate::net::Packet;
use crate::transport::{Port, Sent, SimTransport};

/// The number of calls that the victim itself keeps in flight.
const OWN_CALLS: usize = 4;
/// The size of the victim's own requests, in bytes.
const OWN_CALL: usize = 20_000;
/// Expensive counters are read once in this many turns.
const LOOK_EVERY: u64 = 16;

pub(super) struct Victim {
    rpc: Rpc<SimTransport>,
    port: Rc<Port>,
    app: Echo,
    /// The end of the last turn. Its packets leave then.
    busy_until: Instant,
    pub(super) leaving: Vec<Sent>,
    turns: u64,
    report: AttackReport,
}

/// Answers every request with the request's bytes. Calls another server, if the bench has one.
#[derive(Default)]
struct Echo {
    calls: Option<SessionId>,
    under_way: usize,
    is_open: bool,
}

impl App<SimTransport> for Echo {
    fn on_request(&mut self, cx: &mut Context<'_, SimTransport>, request: Request<'_, SimRoute>) {
        let Request { handle, body, buffer, .. } = request;
        let bytes = body.as_slice();
        match cx.response_buffer(buffer, bytes.len()) {
            Ok(mut response) => {
                response.put_slice(bytes);
                cx.respond(handle, response, false);
            }
            Err(_) => cx.respond_status(handle, &Status::new(Code::ResourceExhausted, "no memory")),
        }
        if let Body::Message(message) = body {
            cx.recycle(message);
        }
    }

    fn on_reply(
        &mut self,
        cx: &mut Context<'_, SimTransport>,
        _: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        self.under_way -= 1;
        if let Ok(Reply { body: Body::Message(message), .. }) = reply {
            cx.recycle(message);
        }
        cx.recycle(request);
    }

    fn on_session(&mut self, _: &mut Context<'_, SimTransport>, _: SessionId, event: SessionEvent) {
        self.is_open = event == SessionEvent::Opened;
    }
}

impl Victim {
    pub(super) fn new(bench: &Bench) -> Self {
        let port = port(VICTIM, bench.rx_packets);
        let transport = SimTransport::new(Rc::clone(&port));
        let mut rpc = Rpc::new(transport, bench.config.clone().seed(bench.seed))
            .expect("a valid configuration");
        let group = ListenGroup::new(u128::from(bench.seed).to_le_bytes(), vec![VICTIM.port]);
        rpc.listen(Acceptor::new(Arc::new(group), 0));
        let calls = bench.victim_calls.map(|server| {
            rpc.context_at(Instant::ZERO).connect(server).expect("room for a session")
        });
        Self {
            rpc,
            port,
            app: Echo { calls, ..Echo::default() },
            busy_until: Instant::ZERO,
            leaving: Vec::new(),
            turns: 0,
            report: AttackReport::default(),
        }
    }

    /// Whether the victim has a session to another server. The first turn opens it.
    pub(super) fn has_calls(&self) -> bool {
        self.app.calls.is_some()
    }

    pub(super) fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// A packet has arrived.
    pub(super) fn arrive(&mut self, packet: Packet) {
        self.port.deliver(packet.from, packet.bytes, packet.marked);
    }

    /// Takes one turn. Returns when the next turn is due; `None` if only a packet can cause it. The
    /// time may be before the end of this turn, and the next turn then begins at that end.
    pub(super) fn turn(&mut self, now: Instant) -> Option<Instant> {
        let before = self.port.stats();
        self.port.set_now(now);
        self.call_others(now);
        self.rpc.run_once_at(now, &mut self.app);
        assert_eq!(self.port.take_misuse(), None);
        self.port.take_sent(&mut self.leaving);
        let after = self.port.stats();
        let sent_now = after.tx_packets - before.tx_packets;
        let packets = after.rx_packets - before.rx_packets + sent_now;
        let nanos = TURN_NANOS + packets * PACKET_NANOS;
        self.busy_until = now.plus_nanos(nanos);
        self.report.busy_nanos += nanos;
        self.report.most_sent_in_a_turn = self.report.most_sent_in_a_turn.max(sent_now);
        self.turns += 1;
        if self.turns.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
        if self.port.waiting() > 0 { Some(self.busy_until) } else { self.rpc.next_deadline() }
    }

    fn call_others(&mut self, now: Instant) {
        let Some(session) = self.app.calls.filter(|_| self.app.is_open) else { return };
        while self.app.under_way < OWN_CALLS && now.as_nanos() >= CALLS_FROM {
            let mut cx = self.rpc.context_at(now);
            let Ok(mut request) = cx.alloc(OWN_CALL) else { return };
            request.put_bytes(1, OWN_CALL);
            if cx.call(session, NewCall::new(7, request, 0)).is_err() {
                return;
            }
            self.app.under_way += 1;
        }
    }

    fn look(&mut self) {
        let stats = self.rpc.stats();
        self.report.most_sessions = self.report.most_sessions.max(stats.server_sessions);
        self.report.most_pool_bytes = self.report.most_pool_bytes.max(stats.pool.in_use_bytes);
    }

    pub(super) fn report(&mut self) -> AttackReport {
        self.look();
        let stats = self.rpc.stats();
        AttackReport { stats, overflowed: stats.transport.rx_overflow, ..self.report.clone() }
    }
}
