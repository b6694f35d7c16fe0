//! A transmit queue that the test holds in its hands.

use std::collections::VecDeque;

use super::pair::TestRoute;
use crate::buf::MsgBuf;
use crate::transport::{ChargeModel, TxPacket, TxQueue};
use crate::wire::{Header, Kind, checksum};

/// Keeps what it is given, and reads msgbufs until it is flushed, as a real one does.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) packets: VecDeque<(TestRoute, Vec<u8>)>,
    /// What is staged: the msgbuf, and where in it the header stands.
    staged: Vec<(MsgBuf, u32)>,
    /// Flushes that the protocol asked for.
    pub(crate) flushes: usize,
    /// Msgbufs stay staged until the protocol flushes.
    pub(crate) slow: bool,
    /// Longer packets vanish, if there is such a limit.
    pub(crate) carries: Option<usize>,
}

impl Wire {
    /// The end of a turn: what is staged goes out.
    pub(crate) fn release(&mut self) {
        if !self.slow {
            self.staged.clear();
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        self.packets.drain(..).map(|(_, bytes)| bytes).collect()
    }

    /// Takes the packets to `route`; others stay.
    pub(crate) fn take_for(&mut self, route: TestRoute) -> Vec<Vec<u8>> {
        let (mine, others): (VecDeque<_>, _) =
            self.packets.drain(..).partition(|(to, _)| *to == route);
        self.packets = others;
        mine.into_iter().map(|(_, bytes)| bytes).collect()
    }

    fn carry(&mut self, route: &TestRoute, bytes: Vec<u8>) {
        if self.carries.is_none_or(|most| bytes.len() <= most) {
            self.packets.push_back((*route, bytes));
        }
    }

    /// What the data packets on the wire take of a receive queue: how many, and their charge.
    pub(crate) fn load(&self, model: ChargeModel) -> (usize, u32) {
        let counts = |bytes: &&Vec<u8>| {
            let kind = Header::parse(bytes).expect("a packet").kind;
            !matches!(kind, Kind::Control | Kind::Done)
        };
        let data = self.packets.iter().map(|(_, bytes)| bytes).filter(counts);
        data.fold((0, 0), |(count, units), bytes| (count + 1, units + model.charge(bytes.len())))
    }
}

/// A packet that announces a trailer has the right one.
fn assert_sealed(bytes: &[u8]) {
    if Header::parse(bytes).is_ok_and(|header| header.flags.trailer()) {
        assert!(checksum::check(bytes).is_ok(), "a packet with a wrong trailer: {bytes:?}");
    }
}

impl TxQueue for Wire {
    type Route = TestRoute;

    fn push_bytes(&mut self, route: &TestRoute, bytes: &[u8]) {
        assert_sealed(bytes);
        self.carry(route, bytes.to_vec());
    }

    fn push(&mut self, route: &TestRoute, packet: TxPacket<'_>) {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        let (pieces, trailer) = packet.pieces();
        assert_eq!(bytes, [&pieces.concat()[..], trailer.as_slice().as_flattened()].concat());
        assert_sealed(&bytes);
        let msgbuf = packet.hold();
        let place = Header::parse(&bytes).expect("a packet").packet.get();
        let rewritten = self.staged.iter().any(|(held, at)| {
            held.as_slice().as_ptr() == msgbuf.as_slice().as_ptr() && *at == place
        });
        assert!(!rewritten, "a header was written again while the queue still reads it: {place}");
        self.staged.push((msgbuf, place));
        self.carry(route, bytes);
    }

    fn flush(&mut self) {
        self.flushes += 1;
        self.staged.clear();
    }
}
