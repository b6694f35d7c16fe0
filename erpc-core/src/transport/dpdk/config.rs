//! Settings of a port, and what can be wrong with them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::debug_text::debug_is_display;
use crate::transport::frame::{Mac, Network};

/// Settings of an endpoint's port.
#[derive(Clone, Debug)]
pub struct DpdkConfig {
    pub(super) device: String,
    pub(super) network: Network,
    pub(super) gateway: Option<IpAddr>,
    pub(super) vlan: Option<u16>,
    pub(super) neighbours: Vec<(IpAddr, Mac)>,
    pub(super) udp_port: u16,
    pub(super) mtu: u16,
    pub(super) descriptors: u16,
    pub(super) checksums: bool,
    pub(super) queues: u16,
    pub(super) zero_copy: Option<bool>,
}

impl DpdkConfig {
    /// The port of the device `device`, named as EAL names it: `net_memif0`, or a PCI address such
    /// as `0000:03:00.0`. `address` is the host's address there, with the length of the network's
    /// prefix. The kernel must not own this address.
    ///
    /// With a link-local IPv6 address, peers may have any scope (`fe80::1%3`), but all the same one:
    /// a port is a link of its own, and frames do not contain the scope.
    #[must_use]
    pub fn new(device: impl Into<String>, address: IpAddr, prefix: u8) -> Self {
        Self {
            device: device.into(),
            network: Network { address, prefix },
            gateway: None,
            vlan: None,
            neighbours: Vec::new(),
            udp_port: 0,
            mtu: 1_500,
            descriptors: 1_024,
            checksums: true,
            queues: 0,
            zero_copy: None,
        }
    }

    /// The router for peers outside of the network. Default: none; such peers cannot be reached.
    #[must_use]
    pub fn gateway(mut self, gateway: IpAddr) -> Self {
        self.gateway = Some(gateway);
        self
    }

    /// Tag of the endpoint's VLAN (802.1Q), 1 to 4,094. Default: frames have no tag.
    #[must_use]
    pub fn vlan(mut self, tag: u16) -> Self {
        self.vlan = Some(tag);
        self
    }

    /// A fixed MAC address of a neighbour, which is then never asked for.
    #[must_use]
    pub fn neighbour(mut self, ip: IpAddr, mac: Mac) -> Self {
        self.neighbours.push((ip, mac));
        self
    }

    /// The endpoint's UDP port, in a group that of the first endpoint. Default: random, from 32,768
    /// to 61,000.
    #[must_use]
    pub fn udp_port(mut self, port: u16) -> Self {
        self.udp_port = port;
        self
    }

    /// Largest IP packet, in bytes; default 1,500. Clamped to 1,500 to 9,000. All hosts of a network need
    /// the same value. `net_memif` also needs buffers of the frame's size: `bsize=` in its
    /// arguments, 22 bytes above the MTU or more. `net_af_packet` carries 1,968 bytes by default, and
    /// 9,000 with `framesz=16384,blocksz=16384`; `net_af_xdp` carries 3,438. For both, the
    /// interface of the kernel needs at least the same MTU. To open a port with more is an error.
    #[must_use]
    pub fn mtu(mut self, bytes: u16) -> Self {
        self.mtu = bytes.clamp(1_500, 9_000);
        self
    }

    /// Descriptors of each queue, which limit the packets in flight to this endpoint. Default 1,024;
    /// clamped to 128 to 8,192, and to what the device has.
    #[must_use]
    pub fn descriptors(mut self, count: u16) -> Self {
        self.descriptors = count.clamp(128, 8_192);
        self
    }

    /// Pairs of queues; clamped to 1 to 64 and to what the device has. Default: one for each endpoint,
    /// and one for `net_memif`, whose two ends need the same number. Endpoints without a queue of
    /// their own share one.
    #[must_use]
    pub fn queues(mut self, pairs: u16) -> Self {
        self.queues = pairs.clamp(1, 64);
        self
    }

    /// Whether messages are in DPDK's memory, and the device reads packets of 2 KiB and more there,
    /// without a copy. Default: yes if the device sends frames of several segments (and not for
    /// `net_ring`). When DPDK's memory is exhausted, messages are elsewhere and are copied.
    #[must_use]
    pub fn zero_copy(mut self, on: bool) -> Self {
        self.zero_copy = Some(on);
        self
    }

    /// Applies a setting that is written as `name=value`.
    fn set(self, setting: &str) -> Option<Self> {
        let (name, value) = setting.split_once('=')?;
        Some(match name {
            "mtu" => self.mtu(value.parse().ok()?),
            "gateway" => self.gateway(value.parse().ok()?),
            "vlan" => self.vlan(value.parse().ok().filter(|tag| (1..4_095).contains(tag))?),
            "queues" => self.queues(value.parse().ok()?),
            "descriptors" => self.descriptors(value.parse().ok()?),
            "checksums" => self.checksums(yes_or_no(value)?),
            "zero_copy" => self.zero_copy(yes_or_no(value)?),
            "neighbour" => {
                let (ip, mac) = value.split_once('/')?;
                self.neighbour(ip.parse().ok()?, mac.parse().ok()?)
            }
            _ => return None,
        })
    }

    /// Checks that a server can listen on `address`.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), DpdkError> {
        let own = self.network.address;
        if address == own || address.is_unspecified() {
            return Ok(());
        }
        Err(DpdkError::Address { address, device: self.device.clone(), own })
    }

    /// Whether sent datagrams have a UDP checksum. Default yes. Without it, nothing detects damage
    /// in the network, unless sessions carry their own checksum
    /// ([`Integrity`](crate::protocol::Integrity)). Switch it off only on a link that cannot damage
    /// packets, such as memif between two processes. IPv6 always has checksums.
    #[must_use]
    pub fn checksums(mut self, on: bool) -> Self {
        self.checksums = on;
        self
    }
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Reads the settings of a port, for command lines: `DEVICE ADDRESS/PREFIX`, then settings, separated
/// by spaces: `mtu=BYTES`, `gateway=ADDRESS`, `vlan=TAG`, `descriptors=COUNT`, `queues=PAIRS`,
/// `checksums=no`, `zero_copy=no`, `neighbour=ADDRESS/MAC`. For example `net_memif0 10.9.0.1/24 mtu=9000`.
impl FromStr for DpdkConfig {
    type Err = NotAPort;

    fn from_str(text: &str) -> Result<Self, NotAPort> {
        let mut words = text.split_whitespace();
        let (Some(device), Some(address)) = (words.next(), words.next()) else {
            return Err(NotAPort { word: text.to_owned() });
        };
        let network = |word: &str| {
            let (address, prefix) = word.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let longest = if address.is_ipv4() { 32 } else { 128 };
            (prefix <= longest).then_some((address, prefix))
        };
        let refused = |word: &str| NotAPort { word: word.to_owned() };
        let (address, prefix) = network(address).ok_or_else(|| refused(address))?;
        words.try_fold(Self::new(device, address, prefix), |config, word| {
            config.set(word).ok_or_else(|| refused(word))
        })
    }
}

/// A text that does not describe a port; see [`DpdkConfig::from_str`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAPort {
    /// The part that is wrong.
    word: String,
}

impl fmt::Display for NotAPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` describes no port; write a device, an address with its prefix, and settings, as \
             `net_memif0 10.9.0.1/24 mtu=9000`",
            self.word
        )
    }
}

impl std::error::Error for NotAPort {}

/// Why a port could not be opened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DpdkError {
    /// DPDK refused to start.
    Eal {
        /// The arguments.
        arguments: String,
        /// DPDK's error.
        error: String,
    },
    /// DPDK runs already, with other arguments. It can start only once in a process.
    OtherArguments,
    /// DPDK was not started.
    NotStarted,
    /// There is no such device.
    NoDevice {
        /// Its name.
        device: String,
    },
    /// Another endpoint of this process uses the device.
    InUse {
        /// Its name.
        device: String,
    },
    /// A server was given an address that the device does not have.
    Address {
        /// The server's address.
        address: IpAddr,
        /// The device.
        device: String,
        /// The device's address.
        own: IpAddr,
    },
    /// A group has 1 to 64 endpoints, at UDP ports up to 65,535.
    Endpoints {
        /// The number of endpoints.
        count: usize,
        /// The first UDP port.
        udp_port: u16,
    },
    /// There is no memory for packets.
    NoMemory {
        /// Number of packet buffers.
        mbufs: u32,
        /// Bytes of each.
        bytes: u32,
    },
    /// The device refused a step of its setup.
    Device {
        /// Its name.
        device: String,
        /// The step.
        doing: &'static str,
        /// DPDK's error.
        error: String,
    },
}

impl fmt::Display for DpdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eal { arguments, error } => write!(
                f,
                "DPDK does not start with `{arguments}`: {error}; its own messages above say why. \
                 Without hugepages, add `--no-huge -m 256`"
            ),
            Self::OtherArguments => f.write_str(
                "DPDK was started with other arguments; it starts only once in a process, so name \
                 all devices at the first start",
            ),
            Self::NotStarted => {
                f.write_str("DPDK was not started; call `dpdk::init` with EAL's arguments first")
            }
            Self::NoDevice { device } => write!(
                f,
                "DPDK has no device `{device}`; add `--vdev={device},...` to EAL's arguments, or \
                 bind the PCI device to vfio-pci (`dpdk-devbind.py --status` lists them)"
            ),
            Self::InUse { device } => {
                write!(
                    f,
                    "another endpoint of this process uses `{device}`: close it first, or open both as a group"
                )
            }
            Self::Endpoints { count, udp_port } => write!(
                f,
                "a port cannot have {count} endpoints from UDP port {udp_port}: it has 1 to 64, and \
                 the last UDP port is 65535"
            ),
            Self::Address { address, device, own } => write!(
                f,
                "cannot listen on {address}: `{device}` has the address {own}; listen on that one \
                 or on an unspecified address"
            ),
            Self::NoMemory { mbufs, bytes } => write!(
                f,
                "no memory for {mbufs} packet buffers of {bytes} bytes; give EAL more (`-m`), or \
                 use fewer descriptors or a smaller MTU"
            ),
            Self::Device { device, doing, error } => {
                write!(f, "could not {doing} (`{device}`): {error}")
            }
        }
    }
}

debug_is_display!(DpdkError);

impl std::error::Error for DpdkError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_from_a_text() {
        let read = |text: &str| text.parse::<DpdkConfig>().map(|config| format!("{config:?}"));
        let mac = "02:00:00:00:00:07".parse().expect("a MAC address");
        let config = DpdkConfig::new("net_memif0", [10, 9, 0, 1].into(), 24)
            .mtu(9_000)
            .gateway([10, 9, 0, 254].into())
            .vlan(7)
            .descriptors(512)
            .queues(2)
            .checksums(false)
            .zero_copy(true)
            .neighbour([10, 9, 0, 2].into(), mac);
        let text = "net_memif0 10.9.0.1/24 mtu=9000 gateway=10.9.0.254 vlan=7 descriptors=512 queues=2 \
                    checksums=no \
                    zero_copy=yes neighbour=10.9.0.2/02:00:00:00:00:07";
        assert_eq!(read(text), Ok(format!("{config:?}")));
        let config = DpdkConfig::new("0000:03:00.0", "fd00::1".parse().expect("an address"), 64);
        assert_eq!(read("0000:03:00.0 fd00::1/64"), Ok(format!("{config:?}")));
    }

    #[test]
    fn a_wrong_text_names_its_wrong_part() {
        for (text, word) in [
            ("", ""),
            ("net_memif0", "net_memif0"),
            ("net_memif0 10.9.0.1", "10.9.0.1"),
            ("net_memif0 10.9.0.1/33", "10.9.0.1/33"),
            ("net_memif0 10.9.0.1/24 mtu", "mtu"),
            ("net_memif0 10.9.0.1/24 mtu=x", "mtu=x"),
            ("net_memif0 10.9.0.1/24 vlan=4095", "vlan=4095"),
            ("net_memif0 10.9.0.1/24 checksums=maybe", "checksums=maybe"),
            ("net_memif0 10.9.0.1/24 neighbour=10.9.0.2", "neighbour=10.9.0.2"),
            ("net_memif0 10.9.0.1/24 speed=1", "speed=1"),
        ] {
            let error = text.parse::<DpdkConfig>().err();
            assert_eq!(error, Some(NotAPort { word: word.to_owned() }), "{text}");
        }
    }
}
