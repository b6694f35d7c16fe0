//! Devices over an interface of the kernel: the drivers `net_af_packet` and `net_af_xdp`. What they
//! need of mempools, descriptors and the interface's MTU, they tell only by refusing or by losing
//! packets, so it is here.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::config::DpdkError;
use super::device::lock;
use super::eal;

/// Bytes of a ring's entry that `net_af_packet` cannot use for an IP packet: the kernel's header of
/// the entry, aligned, and the Ethernet header.
const PACKET_OVERHEAD: u32 = 80;
/// Default size and number of entries of `net_af_packet`, which its arguments `framesz` and
/// `framecnt` change.
const PACKET_ENTRY: u32 = 2_048;
const PACKET_ENTRIES: u16 = 512;
/// Bytes of a mbuf in front of its data.
const HEADROOM: u32 = 128;
/// Bytes that the kernel keeps free in front of a frame for XDP programs.
const XDP_HEADROOM: u32 = 256;
/// Ethernet's header and a VLAN tag.
const ETHERNET: u32 = 18;
/// Largest mbuf of `net_af_xdp`, headroom included: with DPDK's own headers it fills a page, which
/// is the largest buffer of AF_XDP.
const XDP_LARGEST: u32 = 3_840;
/// Mbufs that `net_af_xdp` keeps in the rings of a pair of queues.
const XDP_MBUFS: u32 = 4_096;

/// A device over an interface of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KernelDevice {
    /// `net_af_packet`, with its size and number of ring entries.
    Packet { entry: u32, entries: u16 },
    /// `net_af_xdp`.
    Xdp,
}

impl KernelDevice {
    /// `None` for other devices.
    pub(super) fn new(device: &str) -> Option<Self> {
        if device.starts_with("net_af_packet") {
            let number = |name| eal::device_argument(device, name)?.parse::<u32>().ok();
            let entries = number("framecnt").map(|count| count.try_into().unwrap_or(u16::MAX));
            Some(Self::Packet {
                entry: number("framesz").unwrap_or(PACKET_ENTRY),
                entries: entries.unwrap_or(PACKET_ENTRIES),
            })
        } else {
            device.starts_with("net_af_xdp").then_some(Self::Xdp)
        }
    }

    /// Least size of mbufs for IP packets of `mtu` bytes, DPDK's headroom included.
    pub(super) fn mbuf_bytes(self, mtu: u16) -> u32 {
        match self {
            // The driver refuses mbufs that are smaller than its entries.
            Self::Packet { entry, .. } => entry.saturating_add(HEADROOM),
            Self::Xdp => u32::from(mtu) + ETHERNET + XDP_HEADROOM + HEADROOM,
        }
    }

    /// Mbufs beside those of the port's descriptors.
    pub(super) fn mbufs(self, queues: u16) -> u32 {
        match self {
            Self::Packet { .. } => 0,
            Self::Xdp => XDP_MBUFS * u32::from(queues),
        }
    }

    /// The number of descriptors of each queue, of which at most `wanted` are used.
    pub(super) fn descriptors(self, wanted: u16) -> u16 {
        match self {
            // The driver ignores the number of descriptors and has as many as entries.
            Self::Packet { entries, .. } => wanted.min(entries),
            // The kernel accepts only powers of two.
            Self::Xdp => 1 << wanted.max(1).ilog2(),
        }
    }

    /// Largest IP packet.
    fn max_mtu(self) -> u32 {
        match self {
            Self::Packet { entry, .. } => entry.saturating_sub(PACKET_OVERHEAD),
            Self::Xdp => XDP_LARGEST - HEADROOM - XDP_HEADROOM - ETHERNET,
        }
    }

    /// Refuses IP packets of `mtu` bytes if the driver or its interface, whose MTU is `of_interface`,
    /// would lose them. Returns what to do.
    pub(super) fn check_mtu(self, mtu: u16, of_interface: u32) -> Result<(), String> {
        let most = self.max_mtu();
        if u32::from(mtu) > most {
            let remedy = match self {
                Self::Packet { entry, .. } => {
                    // The driver needs entries that divide its blocks.
                    let needed = (u32::from(mtu) + PACKET_OVERHEAD).next_power_of_two();
                    let block = needed.max(4_096);
                    format!(
                        "entries of {entry} bytes carry {most}; add `framesz={needed},blocksz={block}` \
                         to the device's arguments"
                    )
                }
                Self::Xdp => format!("a packet must fit a page, so the largest MTU is {most}"),
            };
            return Err(format!("{mtu} bytes: {remedy}"));
        }
        // 0 is unknown.
        if of_interface != 0 && u32::from(mtu) > of_interface {
            return Err(format!(
                "{mtu} bytes, and the kernel's interface carries {of_interface}; raise its MTU \
                 with `ip link set dev INTERFACE mtu {mtu}`, and that of the peer"
            ));
        }
        Ok(())
    }
}

/// Names of the devices over the kernel that have been started.
static STARTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes that a device over the kernel has started.
pub(super) fn note_start(device: &str) {
    lock(&STARTED).insert(device.to_owned());
}

/// Refuses a second start of a device over the kernel. `net_af_packet` closes its sockets when the
/// port stops, and a port without sockets loses all packets silently. `net_af_xdp` keeps its socket,
/// so the interface's queue is not free.
pub(super) fn check_first_start(device: &str) -> Result<(), DpdkError> {
    if !lock(&STARTED).contains(device) {
        return Ok(());
    }
    Err(DpdkError::Device {
        device: device.to_owned(),
        doing: "open the device again",
        error: "its driver starts a port once in a process; keep the endpoint, or start another \
                process"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_that_the_driver_or_the_interface_would_lose_is_refused_with_a_remedy() {
        let packet = |entry| KernelDevice::Packet { entry, entries: 512 };
        assert_eq!(packet(2_048).check_mtu(1_968, 1_968), Ok(()));
        assert_eq!(packet(2_048).check_mtu(1_968, 0), Ok(()), "unknown");
        assert_eq!(packet(16_384).check_mtu(9_000, 9_000), Ok(()));
        assert_eq!(KernelDevice::Xdp.check_mtu(3_400, 3_400), Ok(()));
        let cases = [
            (packet(2_048), 1_969, "framesz=4096,blocksz=4096"),
            (packet(4_096), 9_000, "framesz=16384,blocksz=16384"),
            (packet(16), 1_500, "carry 0;"),
            (KernelDevice::Xdp, 9_000, "largest MTU is 3438"),
        ];
        for (device, mtu, remedy) in cases {
            let error = device.check_mtu(mtu, 9_000).expect_err("too long");
            assert!(error.contains(remedy), "{error}");
        }
        for device in [packet(4_096), KernelDevice::Xdp] {
            let error = device.check_mtu(1_600, 1_500).expect_err("the interface is too small");
            assert!(error.contains("ip link set dev INTERFACE mtu 1600"), "{error}");
        }
    }

    #[test]
    fn mbufs_and_descriptors_are_what_the_driver_accepts() {
        let packet = KernelDevice::Packet { entry: 2_048, entries: 512 };
        assert_eq!(packet.descriptors(1_024), 512);
        assert_eq!(packet.descriptors(128), 128);
        assert_eq!(KernelDevice::Xdp.descriptors(1_500), 1_024);
        assert_eq!(packet.mbuf_bytes(1_500), 2_176);
        assert!(KernelDevice::Xdp.mbuf_bytes(3_438) <= XDP_LARGEST);
        // AF_XDP refuses buffers below 2,048 bytes, of which DPDK's headers are 192.
        assert!(KernelDevice::Xdp.mbuf_bytes(1_500) + 192 >= 2_048);
    }

    #[test]
    fn devices_over_the_kernel_start_once() {
        assert_eq!(KernelDevice::new("net_ring_a"), None);
        assert_eq!(KernelDevice::new("0000:03:00.0"), None);
        assert_eq!(KernelDevice::new("net_af_xdp0"), Some(KernelDevice::Xdp));
        let check = || check_first_start("net_af_packet_test");
        assert_eq!([check(), check()], [Ok(()), Ok(())], "a start may fail");
        note_start("net_af_packet_test");
        let error = check().expect_err("a second start").to_string();
        assert!(error.contains("another process"), "{error}");
    }
}
