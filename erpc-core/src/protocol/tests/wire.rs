//! A transmit queue whose packets the test delivers by hand.

use std::collections::VecDeque;

use super::pair::TestRoute;
use crate::buf::MsgBuf;
use crate::transport::{ChargeModel, TxPacket, TxQueue};
use crate::wire::{Header, HeaderWords, Kind, checksum};

/// Keeps all pushed packets, and holds their msgbufs until it is flushed, like a real queue.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) packets: VecDeque<(TestRoute, Vec<u8>)>,
    /// Staged packets: the msgbuf and the packet number, which determines the place of the header.
    staged: Vec<(MsgBuf, u32)>,
    /// Number of flushes that the protocol requested.
    pub(crate) flushes: usize,
    /// If true, msgbufs stay staged until the protocol flushes.
    pub(crate) slow: bool,
    /// If set, packets with more bytes are lost.
    pub(crate) carries: Option<usize>,
    /// For each message of one packet, whether its receiver was said to take bundles.
    pub(crate) takes_bundles: Vec<bool>,
}

impl Wire {
    /// Ends a turn: releases the msgbufs of the staged packets, unless the queue is slow.
    pub(crate) fn release(&mut self) {
        if !self.slow {
            self.staged.clear();
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        self.packets.drain(..).map(|(_, bytes)| bytes).collect()
    }

    /// Takes the packets to `route`; other packets stay.
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

    /// The load that the data packets on the wire put on a receive queue: their number, and their
    /// charge in units.
    pub(crate) fn load(&self, model: ChargeModel) -> (usize, u32) {
        let counts = |bytes: &&Vec<u8>| {
            let kind = Header::parse(bytes).expect("a valid header").kind;
            !matches!(kind, Kind::Control | Kind::Done)
        };
        let data = self.packets.iter().map(|(_, bytes)| bytes).filter(counts);
        data.fold((0, 0), |(count, units), bytes| (count + 1, units + model.charge(bytes.len())))
    }
}

/// Checks the trailer of a packet that announces one.
fn assert_sealed(bytes: &[u8]) {
    if Header::parse(bytes).is_ok_and(|header| header.flags.trailer()) {
        assert!(checksum::check(bytes).is_ok(), "the trailer is wrong: {bytes:?}");
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
        let place = Header::parse(&bytes).expect("a valid header").packet.get();
        let rewritten = self.staged.iter().any(|(held, at)| {
            held.as_slice().as_ptr() == msgbuf.as_slice().as_ptr() && *at == place
        });
        assert!(
            !rewritten,
            "the header of packet {place} was rewritten while the queue still reads it"
        );
        self.staged.push((msgbuf, place));
        self.carry(route, bytes);
    }

    fn push_single(
        &mut self,
        route: &TestRoute,
        header: HeaderWords,
        message: &mut MsgBuf,
        takes_bundles: bool,
    ) {
        self.takes_bundles.push(takes_bundles);
        self.push(route, message.single_packet(header));
    }

    fn flush(&mut self) {
        self.flushes += 1;
        self.staged.clear();
    }
}
