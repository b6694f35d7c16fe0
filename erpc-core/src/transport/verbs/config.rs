//! Settings of an endpoint over verbs, and what can be wrong with them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::debug_text::debug_is_display;
use crate::transport::MIN_DATAGRAM;

/// Q_Key of erpc's queue pairs by default. The highest bit is 0: with it, a device would send the
/// queue pair's own Q_Key instead of the one in the request.
const QKEY: u32 = 0x4572_5043;
/// Entries of the receive queue for each session by default: its credits.
const CREDITS: u32 = 8;
const SESSIONS: u32 = 128;
/// Bounds of the queues' lengths. A burst of 64 packets must leave room for the next one.
const LEAST_ENTRIES: u32 = 256;
const MOST_ENTRIES: u32 = 65_536;

/// Which GID of the port an endpoint uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GidChoice {
    /// RoCE: the first GID of RoCE v2, one of IPv4 if there is one. InfiniBand: the first GID.
    Default,
    /// The GID at this index, whatever its version.
    Index(u8),
    /// The GID of RoCE v2 with this address.
    Ip(IpAddr),
}

/// Settings of an endpoint's verbs device.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) gid: GidChoice,
    pub(super) pkey: u16,
    pub(super) qkey: u32,
    pub(super) service_level: u8,
    pub(super) sessions: u32,
    pub(super) credits: u32,
    pub(super) send_depth: u32,
    pub(super) peers: u32,
    pub(super) arena: usize,
    pub(super) exchange: Option<SocketAddr>,
}

impl VerbsConfig {
    /// Port 1 of the device `device`, named as `ibv_devices` prints it: `mlx5_0`, `rxe0`.
    #[must_use]
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            port: 1,
            gid: GidChoice::Default,
            pkey: 0xffff,
            qkey: QKEY,
            service_level: 0,
            sessions: SESSIONS,
            credits: CREDITS,
            send_depth: 512,
            peers: 4_096,
            arena: 32 << 20,
            exchange: None,
        }
    }

    /// The device's port, from 1. Default: 1.
    #[must_use]
    pub fn port(mut self, number: u8) -> Self {
        self.port = number;
        self
    }

    /// Index of the port's GID, as `show_gids` prints it. It may be one of RoCE v1. Default: the
    /// first GID of RoCE v2, preferably of IPv4; over InfiniBand the first GID.
    #[must_use]
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid = GidChoice::Index(index);
        self
    }

    /// The address of the interface below the device, which selects its GID of RoCE v2.
    #[must_use]
    pub fn interface(mut self, address: IpAddr) -> Self {
        self.gid = GidChoice::Ip(address);
        self
    }

    /// The partition: a P_Key of the port's table. Default: `0xffff`, which every port has.
    #[must_use]
    pub fn pkey(mut self, pkey: u16) -> Self {
        self.pkey = pkey;
        self
    }

    /// The queue pair's Q_Key. Peers learn it with the address. The device drops datagrams with
    /// another Q_Key. The highest bit must be 0. Default: `0x45725043`.
    #[must_use]
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.qkey = qkey;
        self
    }

    /// The service level of sent packets, 0 to 15. Default: 0.
    #[must_use]
    pub fn service_level(mut self, level: u8) -> Self {
        self.service_level = level;
        self
    }

    /// Sessions for which the receive queue has room, with [`VerbsConfig::credits`] packets each.
    /// Default: 128, so the queue has 1,024 entries.
    ///
    /// More sessions may open. They share the room, and have fewer packets in flight each (thesis
    /// section 6.3.3.1).
    #[must_use]
    pub fn sessions(mut self, sessions: u32) -> Self {
        self.sessions = sessions.max(1);
        self
    }

    /// Packets in flight to this endpoint for each of [`VerbsConfig::sessions`]. Default: 8. A
    /// session that sends large messages at the rate of a fast link needs more: the
    /// bandwidth-delay product over the MTU.
    #[must_use]
    pub fn credits(mut self, credits: u32) -> Self {
        self.credits = credits.max(1);
        self
    }

    /// Entries of the send queue, 256 to 65,536. Default: 512. Each has room for a datagram, in
    /// registered memory.
    #[must_use]
    pub fn send_depth(mut self, entries: u32) -> Self {
        self.send_depth = entries.clamp(LEAST_ENTRIES, MOST_ENTRIES);
        self
    }

    /// Peers whose addresses are kept, 16 to 65,536. Default: 4,096. When there are more, the peer
    /// that was silent for longest is forgotten, and asked again when it is needed.
    #[must_use]
    pub fn peers(mut self, peers: u32) -> Self {
        self.peers = peers.clamp(16, 65_536);
        self
    }

    /// Registered memory for messages, in bytes. Default: 32 MiB. Messages beyond it are elsewhere
    /// and are copied. 0: all messages are copied.
    #[must_use]
    pub fn arena(mut self, bytes: usize) -> Self {
        self.arena = bytes;
        self
    }

    /// The UDP address at which this endpoint asks peers for their verbs address, and answers when
    /// it is asked. Peers connect to it. Default: over RoCE the address of the GID, over InfiniBand
    /// the unspecified one; with a port that the system chooses. A server's is its listening
    /// address.
    #[must_use]
    pub fn exchange(mut self, address: SocketAddr) -> Self {
        self.exchange = Some(address);
        self
    }

    /// Entries that the receive queue needs: sessions times credits.
    pub(super) fn recv_entries(&self) -> u64 {
        let entries = u64::from(self.sessions) * u64::from(self.credits);
        entries.max(LEAST_ENTRIES.into())
    }

    /// Checks what does not depend on the device.
    pub(super) fn check(&self) -> Result<(), VerbsError> {
        let refused =
            |setting: &'static str, rule: &'static str| VerbsError::Setting { setting, rule };
        if self.qkey >> 31 != 0 {
            return Err(refused("qkey", "the highest bit of a Q_Key must be 0"));
        }
        if self.service_level > 15 {
            return Err(refused("service_level", "a service level is 0 to 15"));
        }
        if self.port == 0 {
            return Err(refused("port", "ports are counted from 1"));
        }
        self.check_ring(MOST_ENTRIES)
    }

    /// Checks that the device's receive queue is as long as the sessions need.
    pub(super) fn check_ring(&self, most: u32) -> Result<(), VerbsError> {
        if self.recv_entries() <= most.into() {
            return Ok(());
        }
        let (sessions, credits) = (self.sessions, self.credits);
        Err(VerbsError::ReceiveQueue { device: self.device.clone(), sessions, credits, most })
    }

    /// Checks that datagrams of the port are long enough.
    pub(super) fn check_mtu(&self, mtu: usize) -> Result<(), VerbsError> {
        if mtu >= MIN_DATAGRAM {
            return Ok(());
        }
        Err(VerbsError::Mtu { device: self.device.clone(), mtu })
    }

    /// Applies a setting that is written as `name=value`.
    fn set(self, setting: &str) -> Option<Self> {
        let (name, value) = setting.split_once('=')?;
        let hexadecimal =
            |value: &str| u32::from_str_radix(value.trim_start_matches("0x"), 16).ok();
        Some(match name {
            "port" => self.port(value.parse().ok()?),
            "gid" => self.gid_index(value.parse().ok()?),
            "interface" => self.interface(value.parse().ok()?),
            "pkey" => self.pkey(hexadecimal(value)?.try_into().ok()?),
            "qkey" => self.qkey(hexadecimal(value)?),
            "sl" => self.service_level(value.parse().ok()?),
            "sessions" => self.sessions(value.parse().ok()?),
            "credits" => self.credits(value.parse().ok()?),
            "send_depth" => self.send_depth(value.parse().ok()?),
            "peers" => self.peers(value.parse().ok()?),
            "arena" => self.arena(value.parse().ok()?),
            "exchange" => self.exchange(value.parse().ok()?),
            _ => return None,
        })
    }
}

/// Reads settings, for command lines: `DEVICE`, then settings, separated by spaces: `port=NUMBER`,
/// `gid=INDEX`, `interface=ADDRESS`, `pkey=HEX`, `qkey=HEX`, `sl=LEVEL`, `sessions=COUNT`,
/// `credits=COUNT`, `send_depth=ENTRIES`, `peers=COUNT`, `arena=BYTES`, `exchange=ADDRESS:PORT`. For
/// example `mlx5_0 gid=3 sessions=500`.
impl FromStr for VerbsConfig {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let mut words = text.split_whitespace();
        let refused = |word: &str| NotADevice { word: word.to_owned() };
        let device = words.next().filter(|device| !device.contains('='));
        let device = device.ok_or_else(|| refused(text))?;
        words.try_fold(Self::new(device), |config, word| {
            config.set(word).ok_or_else(|| refused(word))
        })
    }
}

/// A text that does not describe a device; see [`VerbsConfig::from_str`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotADevice {
    /// The part that is wrong.
    word: String,
}

impl fmt::Display for NotADevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` describes no verbs device; write its name and settings, as `mlx5_0 gid=3 \
             sessions=500`",
            self.word
        )
    }
}

impl std::error::Error for NotADevice {}

/// Why an endpoint over verbs could not be opened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerbsError {
    /// A setting is out of bounds.
    Setting {
        /// Its name.
        setting: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// There is no such device.
    NoDevice {
        /// Its name.
        device: String,
        /// The devices that exist.
        found: Vec<String>,
    },
    /// The port does not exist, or its link is down.
    Port {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
        /// Its state, as the device calls it.
        state: String,
    },
    /// The port has no GID as configured.
    Gid {
        /// The device.
        device: String,
        /// The GIDs that the port has: index, version, address.
        found: Vec<String>,
    },
    /// The port's table has no such P_Key.
    Pkey {
        /// The device.
        device: String,
        /// The P_Key.
        pkey: u16,
    },
    /// The port's MTU is too small for a datagram of erpc.
    Mtu {
        /// The device.
        device: String,
        /// The active MTU in bytes.
        mtu: usize,
    },
    /// The device's receive queue is too short for the sessions.
    ReceiveQueue {
        /// The device.
        device: String,
        /// [`VerbsConfig::sessions`].
        sessions: u32,
        /// [`VerbsConfig::credits`].
        credits: u32,
        /// Entries of the longest receive queue.
        most: u32,
    },
    /// Memory could not be registered with the device.
    Memory {
        /// Bytes of the memory.
        bytes: usize,
        /// The system's error number.
        errno: i32,
    },
    /// The UDP socket for the exchange of addresses could not be bound.
    Exchange {
        /// Its address.
        address: SocketAddr,
        /// The system's error number.
        errno: i32,
    },
    /// A group has 1 to 64 endpoints, at UDP ports up to 65,535.
    Endpoints {
        /// The number of endpoints.
        count: usize,
        /// The first UDP port.
        udp_port: u16,
    },
    /// The device refused a step of its setup.
    Device {
        /// Its name.
        device: String,
        /// The step.
        doing: &'static str,
        /// The system's error number.
        errno: i32,
    },
}

/// The number of a system's error.
pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = |errno: &i32| io::Error::from_raw_os_error(*errno);
        match self {
            Self::Setting { setting, rule } => {
                write!(f, "the setting `{setting}` is refused: {rule}")
            }
            Self::NoDevice { device, found } if found.is_empty() => write!(
                f,
                "there is no verbs device `{device}`, and no other: load the driver of the network \
                 card (`modprobe mlx5_ib`), or make one in software (`modprobe rdma_rxe`, `rdma link \
                 add rxe0 type rxe netdev eth0`); `erpc-bench doctor` says what is missing"
            ),
            Self::NoDevice { device, found } => {
                write!(f, "there is no verbs device `{device}`; there are: {}", found.join(", "))
            }
            Self::Port { device, port, state } => write!(
                f,
                "port {port} of {device} is {state}: it must be active; check the cable, `ip link \
                 set INTERFACE up`, and over InfiniBand the subnet manager"
            ),
            Self::Gid { device, found } => write!(
                f,
                "{device} has no such GID; give the interface an address, or choose one of: {}",
                found.join(", ")
            ),
            Self::Pkey { device, pkey } => write!(
                f,
                "{device} is not in partition {pkey:#06x}; add it at the subnet manager, or use the \
                 default 0xffff"
            ),
            Self::Mtu { device, mtu } => write!(
                f,
                "datagrams of {device} have at most {mtu} bytes, and erpc needs {MIN_DATAGRAM}: raise \
                 the MTU of the interface (`ip link set dev INTERFACE mtu 4200` gives 4,096; 2,200 \
                 gives 2,048)"
            ),
            Self::ReceiveQueue { device, sessions, credits, most } => write!(
                f,
                "{sessions} sessions with {credits} credits need a receive queue of {} entries, and \
                 {device} has at most {most}: use fewer sessions for each endpoint, or fewer credits",
                u64::from(*sessions) * u64::from(*credits)
            ),
            Self::Memory { bytes, errno } => write!(
                f,
                "{bytes} bytes of memory cannot be registered: {}; raise the limit of locked memory \
                 (`ulimit -l unlimited`, `/etc/security/limits.conf`, `LimitMEMLOCK=` of systemd), or \
                 lower `sessions`, `credits`, `send_depth` or `arena`",
                system(errno)
            ),
            Self::Exchange { address, errno } => write!(
                f,
                "the UDP socket at {address}, which exchanges verbs addresses, cannot be bound: {}",
                system(errno)
            ),
            Self::Endpoints { count, udp_port } => write!(
                f,
                "{count} endpoints from UDP port {udp_port} on: a group has 1 to 64, at ports up to \
                 65,535"
            ),
            Self::Device { device, doing, errno } => {
                write!(f, "{device} refuses to {doing}: {}", system(errno))
            }
        }
    }
}

debug_is_display!(VerbsError);

impl std::error::Error for VerbsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_text() {
        let text = "mlx5_0 port=2 gid=3 pkey=0x8001 qkey=11 sl=4 sessions=500 credits=16 send_depth=1024 \
                    peers=100 arena=0 exchange=10.0.0.1:31850";
        let config: VerbsConfig = text.parse().unwrap();
        assert_eq!((&*config.device, config.port, config.gid), ("mlx5_0", 2, GidChoice::Index(3)));
        assert_eq!((config.pkey, config.qkey, config.service_level), (0x8001, 0x11, 4));
        assert_eq!((config.recv_entries(), config.send_depth, config.peers), (8_000, 1_024, 100));
        assert_eq!((config.arena, config.exchange), (0, "10.0.0.1:31850".parse().ok()));
        let config: VerbsConfig = "rxe0 interface=10.77.0.1".parse().unwrap();
        assert_eq!(config.gid, GidChoice::Ip([10, 77, 0, 1].into()));
        for wrong in ["", "gid=3", "rxe0 gid", "rxe0 gid=x", "rxe0 pkey=12345", "rxe0 mtu=9000"] {
            let error = wrong.parse::<VerbsConfig>().expect_err(wrong).to_string();
            assert!(error.contains("mlx5_0 gid=3"), "{error}");
        }
    }

    #[test]
    fn settings_out_of_bounds_are_refused_with_a_remedy() {
        let refused = |config: VerbsConfig, remedy: &str| {
            let error = config.check().expect_err(remedy).to_string();
            assert!(error.contains(remedy), "{error}");
        };
        let config = || VerbsConfig::new("rxe0");
        assert_eq!(config().check(), Ok(()));
        refused(config().qkey(1 << 31), "highest bit");
        refused(config().service_level(16), "0 to 15");
        refused(config().port(0), "from 1");
        refused(config().sessions(100_000), "fewer sessions");
        let error =
            config().sessions(1_000).credits(32).check_ring(16_384).unwrap_err().to_string();
        assert!(error.contains("32000 entries") && error.contains("at most 16384"), "{error}");
        let error = config().check_mtu(1_024).unwrap_err().to_string();
        assert!(error.contains("mtu 4200"), "{error}");
        assert_eq!(config().check_mtu(2_048), Ok(()));
    }
}
