//! What both halves of an endpoint share: the device, the peers, the socket of the exchange.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::config::{VerbsConfig, VerbsError};
use super::device::{AddressHandle, Device, DeviceInfo, Host, Provider, Rebuilt};
use super::exchange::{Answer, Ask, MESSAGE_LEN, Message, Present, Received, Socket, TokenMaker};
use super::memory::{Slots, VerbsArena};
use super::peers::{Address, Peers, QueuePair};
use crate::buf::MsgBuf;
use crate::clock;
use crate::random::random_key;
use crate::time::Instant;
use crate::transport::udp::UdpRoute;
use crate::transport::{NetworkError, Undelivered};

/// Messages of the exchange that are handled at once. Others wait in the socket's buffer.
const MESSAGES: usize = 32;
/// Reports of lost packets that are kept, at most.
const REPORTS: usize = 32;
/// Immediate data of datagrams that contain a [`Present`] and no packet.
pub(super) const PRESENT: u32 = 0x5052_4553;

/// Whether a peer was sent to and heard since the last round. Written by the endpoint's thread.
#[derive(Default)]
pub(super) struct Activity {
    pub(super) sent: AtomicBool,
    pub(super) heard: AtomicBool,
}

/// Counters of what is rare.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) rebuilds: AtomicU64,
    pub(super) failed_rebuilds: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) strangers: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) bad_tokens: AtomicU64,
    pub(super) no_handle: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) link_downs: AtomicU64,
    pub(super) link_ups: AtomicU64,
}

/// What both halves share. The halves are on one thread; locks are for `Sync` only, and are taken
/// when something changes, not per packet.
pub(super) struct Line<D: Device> {
    // Dropped first: from then on, nothing accesses the memory below.
    pub(super) device: D,
    pub(super) recv: Slots,
    pub(super) send: Slots,
    pub(super) arena: Option<VerbsArena>,
    /// Messages that the device may read until it is closed.
    pub(super) left_over: Mutex<Vec<MsgBuf>>,

    pub(super) info: DeviceInfo,
    peers: Mutex<Peers>,
    /// [`Peers::version`].
    pub(super) version: AtomicU32,
    pub(super) activity: Box<[Activity]>,
    socket: Socket,
    tokens: TokenMaker,
    qkey: u32,
    is_ecn_capable: AtomicBool,
    /// Raised when the queue pair is rebuilt. Requests and completions of earlier ones are void.
    pub(super) generation: AtomicU32,
    /// Whether the queue pair must be rebuilt.
    pub(super) is_broken: AtomicBool,
    /// Whether the device has refused to rebuild it since the last housekeeping.
    is_refused: AtomicBool,
    /// Whether a peer is asked.
    pub(super) is_asking: AtomicBool,
    /// Packets that have waited for an address which is known now.
    late: Mutex<VecDeque<(UdpRoute, Vec<u8>)>>,
    pub(super) has_late: AtomicBool,
    reports: Mutex<VecDeque<Undelivered<UdpRoute>>>,
    pub(super) has_reports: AtomicBool,
    was_up: AtomicBool,
    pub(super) counters: Counters,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that nobody can guess.
fn nonce() -> u64 {
    random_key().0
}

impl<D: Device> Line<D> {
    pub(super) fn open(
        provider: &D::Provider,
        config: &VerbsConfig,
        socket: Option<Socket>,
    ) -> Result<Self, VerbsError> {
        config.check()?;
        let device = provider.open(config)?;
        let info = device.info();
        config.check_mtu(info.mtu)?;
        config.check_ring(info.recv_depth)?;
        let socket = match socket {
            Some(socket) => socket,
            None => Socket::bind(exchange_address(config, &info))?,
        };
        let recv = Slots::new(&device, info.recv_depth as usize, super::device::GRH + info.mtu)?;
        let send = Slots::new(&device, info.send_depth as usize, info.mtu.max(MESSAGE_LEN))?;
        // Without it, messages are copied.
        let arena =
            (config.arena > 0).then(|| VerbsArena::new(&device, config.arena).ok()).flatten();
        let peers = config.peers as usize;
        Ok(Self {
            was_up: AtomicBool::new(device.is_link_up()),
            device,
            recv,
            send,
            arena,
            left_over: Mutex::default(),
            info,
            peers: Mutex::new(Peers::new(peers)),
            version: AtomicU32::new(0),
            activity: (0..peers).map(|_| Activity::default()).collect(),
            socket,
            tokens: TokenMaker::new(random_key()),
            qkey: config.qkey,
            is_ecn_capable: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            is_broken: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            is_asking: AtomicBool::new(false),
            late: Mutex::default(),
            has_late: AtomicBool::new(false),
            reports: Mutex::default(),
            has_reports: AtomicBool::new(false),
            counters: Counters::default(),
        })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The peers. Call [`Line::publish`] after a change.
    pub(super) fn peers(&self) -> MutexGuard<'_, Peers> {
        lock(&self.peers)
    }

    fn publish(&self, peers: &Peers) {
        self.version.store(peers.version(), Ordering::Relaxed);
        self.is_asking.store(peers.is_asking(), Ordering::Relaxed);
    }

    /// Changes the peers.
    #[cold]
    pub(super) fn with_peers<R>(&self, change: impl FnOnce(&mut Peers, Instant) -> R) -> R {
        let mut peers = self.peers();
        let result = change(&mut peers, clock::now());
        self.publish(&peers);
        result
    }

    /// Where packets to a peer go.
    #[cold]
    pub(super) fn lookup(&self, route: UdpRoute) -> super::peers::Lookup {
        let found = self.with_peers(|peers, now| peers.lookup(route, now, nonce));
        self.ask();
        found
    }

    /// A session to the peer opens.
    #[cold]
    pub(super) fn refresh(&self, route: UdpRoute) {
        self.with_peers(|peers, now| peers.refresh(route, now, nonce));
        self.ask();
    }

    /// Sends the questions that are due.
    pub(super) fn ask(&self) {
        if !self.is_asking.load(Ordering::Relaxed) {
            return;
        }
        let (due, dropped) = self.with_peers(|peers, now| peers.due(now));
        self.counters.dropped.fetch_add(dropped, Ordering::Relaxed);
        for (route, nonce) in due {
            self.socket.send(route, &Message::Ask(Ask { nonce }));
        }
    }

    /// Handles messages of the exchange, a bounded number.
    #[cold]
    pub(super) fn exchange(&self) {
        for _ in 0..MESSAGES {
            match self.socket.receive() {
                None => break,
                Some(Received::Message(from, Message::Ask(ask))) => self.answer(from, ask),
                Some(Received::Message(from, Message::Answer(answer))) => self.learn(from, &answer),
                Some(Received::Message(_, Message::Present(_)) | Received::Other) => {
                    self.counters.malformed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.ask();
    }

    fn answer(&self, from: UdpRoute, Ask { nonce }: Ask) {
        let answer = Answer {
            nonce,
            gid: self.info.gid,
            lid: self.info.lid,
            qpn: self.device.qpn(),
            qkey: self.qkey,
            token: self.tokens.issue(clock::now(), from),
        };
        self.socket.send(from, &Message::Answer(answer));
    }

    fn learn(&self, from: UdpRoute, answer: &Answer) {
        let host = if self.info.is_global { Host::Gid(answer.gid) } else { Host::Lid(answer.lid) };
        let late =
            self.with_peers(|peers, _| peers.answered(from, answer, host, || self.handle(host)));
        self.take_late(from, late);
    }

    /// A datagram of a queue pair says that it belongs to a UDP address.
    #[cold]
    pub(super) fn presented(&self, pair: QueuePair, bytes: &[u8]) {
        let Ok(Message::Present(Present { qkey, token })) = Message::parse(bytes) else {
            self.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some(route) = self.tokens.check(clock::now(), &token) else {
            self.counters.bad_tokens.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let address = Address { pair, qkey };
        let late =
            self.with_peers(|peers, _| peers.presented(route, address, || self.handle(pair.host)));
        self.take_late(route, late);
    }

    /// The datagram that presents this endpoint to a peer.
    pub(super) fn present(&self, token: super::exchange::Token) -> [u8; MESSAGE_LEN] {
        Message::Present(Present { qkey: self.qkey, token }).to_bytes()
    }

    fn handle(&self, host: Host) -> io::Result<AddressHandle> {
        self.device.create_handle(host, self.is_ecn_capable.load(Ordering::Relaxed))
    }

    fn take_late(&self, route: UdpRoute, packets: io::Result<Vec<Vec<u8>>>) {
        match packets {
            Ok(packets) if packets.is_empty() => {}
            Ok(packets) => {
                lock(&self.late).extend(packets.into_iter().map(|packet| (route, packet)));
                self.has_late.store(true, Ordering::Relaxed);
            }
            Err(_) => {
                self.counters.no_handle.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Packets whose peers' addresses are known now.
    pub(super) fn late(&self) -> VecDeque<(UdpRoute, Vec<u8>)> {
        self.has_late.store(false, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.late))
    }

    /// Asks switches to mark packets to peers that are met from now on. The event loop calls this
    /// before its first packet.
    pub(super) fn enable_ecn(&self) {
        self.is_ecn_capable.store(true, Ordering::Relaxed);
    }

    /// Reports that a packet was lost in this host.
    pub(super) fn report(&self, route: UdpRoute, packet: &[u8]) {
        let mut reports = lock(&self.reports);
        if reports.len() < REPORTS {
            let error = NetworkError::NotSent(libc::EIO);
            reports.push_back(Undelivered::new(route, error, packet));
            self.has_reports.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn next_report(&self) -> Option<Undelivered<UdpRoute>> {
        let mut reports = lock(&self.reports);
        let report = reports.pop_front();
        self.has_reports.store(!reports.is_empty(), Ordering::Relaxed);
        report
    }

    /// Rebuilds the queue pair if it is broken. If the device refuses, the next housekeeping tries
    /// again.
    #[cold]
    pub(super) fn rebuild(&self) {
        if self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        match self.device.rebuild() {
            Ok(rebuilt) => {
                self.counters.rebuilds.fetch_add(1, Ordering::Relaxed);
                self.generation.fetch_add(1, Ordering::Relaxed);
                self.is_broken.store(false, Ordering::Relaxed);
                if rebuilt == Rebuilt::Replaced {
                    // No peer knows the new number.
                    self.with_peers(|peers, now| peers.ask_all(now, nonce));
                }
            }
            Err(_) => {
                self.counters.failed_rebuilds.fetch_add(1, Ordering::Relaxed);
                self.is_refused.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Looks after the peers, the link and the queue pair.
    #[cold]
    pub(super) fn housekeeping(&self) {
        let activity = |index: usize| {
            let Activity { sent, heard } = &self.activity[index];
            (sent.swap(false, Ordering::Relaxed), heard.swap(false, Ordering::Relaxed))
        };
        self.with_peers(|peers, now| peers.end_round(now, activity, nonce));
        self.exchange();
        self.is_refused.store(false, Ordering::Relaxed);
        let is_up = self.device.is_link_up();
        if self.was_up.swap(is_up, Ordering::Relaxed) != is_up {
            let count = if is_up { &self.counters.link_ups } else { &self.counters.link_downs };
            count.fetch_add(1, Ordering::Relaxed);
        }
        if !self.device.is_ready() {
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }
}

/// The socket's address: as configured, or that of the GID, or unspecified.
pub(super) fn exchange_address(config: &VerbsConfig, info: &DeviceInfo) -> SocketAddr {
    config.exchange.unwrap_or_else(|| {
        // The GID of InfiniBand is no address of this host.
        let ip = if info.lid == 0 { info.gid.ip() } else { std::net::Ipv4Addr::UNSPECIFIED.into() };
        SocketAddr::new(ip, 0)
    })
}
