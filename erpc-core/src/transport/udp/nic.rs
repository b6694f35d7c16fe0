//! What the kernel tells of network interfaces.

use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use rustix::net::netdevice::index_to_name_inlined;

use super::route::Name;

/// A network interface of this host.
pub(super) struct Nic {
    /// A request about it, its name filled in.
    request: libc::ifreq,
}

/// The head of the kernel's answer to `ETHTOOL_GSET` (`struct ethtool_cmd`), and as much more as it writes.
#[repr(C)]
struct LinkSettings {
    command: u32,
    _modes: [u32; 2],
    speed_low: u16,
    _port: [u8; 6],
    _packets: [u32; 2],
    speed_high: u16,
    _rest: [u8; 14],
}

const _: () = assert!(size_of::<LinkSettings>() == 44);

/// The command, as `linux/ethtool.h` has it. Answered by every kernel and to every user.
const ETHTOOL_GSET: u32 = 1;

impl Nic {
    /// The interface that has the address `ip`.
    pub(super) fn with_address(ip: IpAddr) -> Option<Self> {
        let mut list: *mut libc::ifaddrs = null_mut();
        // SAFETY: the call writes the list's head to a pointer of ours.
        if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
            return None;
        }
        let mut found = None;
        let mut at = list;
        // SAFETY: `at` is null or an entry of the list, which is freed only below.
        while let Some(entry) = unsafe { at.as_ref() } {
            if has_address(entry, ip) {
                found = Some(Self::named(entry));
                break;
            }
            at = entry.ifa_next;
        }
        // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
        unsafe { libc::freeifaddrs(list) };
        found
    }

    /// The interface of this `index`. `fd` is any socket.
    pub(super) fn with_index(index: u32, fd: BorrowedFd<'_>) -> Option<Self> {
        let name = index_to_name_inlined(fd, index).ok()?;
        // SAFETY: zero is a valid value of every field.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // The last byte remains 0.
        let to = request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut();
        to.zip(name.as_bytes()).for_each(|(to, byte)| *to = *byte as libc::c_char);
        Some(Self { request })
    }

    fn named(entry: &libc::ifaddrs) -> Self {
        // SAFETY: zero is a valid value of every field.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // SAFETY: both names are NUL-terminated within IFNAMSIZ bytes: the kernel's own, and zeroes.
        unsafe { libc::strncpy(request.ifr_name.as_mut_ptr(), entry.ifa_name, libc::IFNAMSIZ - 1) };
        Self { request }
    }

    /// Its MTU, in bytes, headers included. `fd` is any socket.
    pub(super) fn mtu(mut self, fd: BorrowedFd<'_>) -> Option<usize> {
        let request = &raw mut self.request;
        // SAFETY: SIOCGIFMTU reads the name of an `ifreq` and writes its `ifru_mtu`.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, request) } != 0 {
            return None;
        }
        // SAFETY: the call above wrote this member.
        usize::try_from(unsafe { self.request.ifr_ifru.ifru_mtu }).ok()
    }

    /// What its link carries, in bytes per second; `None` if there is no link, or its driver does not
    /// tell. `fd` is any socket: unlike the files below `/sys/class/net`, it is surely of the same network
    /// namespace.
    pub(super) fn link_rate(mut self, fd: BorrowedFd<'_>) -> Option<u64> {
        // SAFETY: zero is a valid value of every field.
        let mut settings: LinkSettings = unsafe { zeroed() };
        settings.command = ETHTOOL_GSET;
        self.request.ifr_ifru.ifru_data = (&raw mut settings).cast();
        let request = &raw mut self.request;
        // SAFETY: SIOCETHTOOL reads the name of an `ifreq` and the command that its `ifru_data` points to,
        // which is ours and has the size of what the kernel writes in answer to this one.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, request) } != 0 {
            return None;
        }
        byte_rate(u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low))
    }
}

/// A speed in megabits per second as drivers tell it, in bytes per second. They say 0 or all ones, of 16 bits or of 32, if they
/// do not know, and those of tunnels 10: no link of today is that slow.
fn byte_rate(speed: u32) -> Option<u64> {
    let known = (100..u32::MAX).contains(&speed) && speed != u32::from(u16::MAX);
    known.then_some(u64::from(speed) * (1_000_000 / 8))
}

fn has_address(entry: &libc::ifaddrs, ip: IpAddr) -> bool {
    // SAFETY: an entry's address is null or a socket address of its family.
    let Some(address) = (unsafe { entry.ifa_addr.as_ref() }) else {
        return false;
    };
    let size = match i32::from(address.sa_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return false,
    };
    let mut name = Name::EMPTY;
    // SAFETY: the family says that the address has `size` bytes; a name has room for either family.
    unsafe { entry.ifa_addr.cast::<u8>().copy_to_nonoverlapping(name.as_mut_ptr().cast(), size) };
    name.route().socket_addr().ip() == ip.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_that_nobody_knows_are_no_rates() {
        assert_eq!(byte_rate(100), Some(12_500_000));
        assert_eq!(byte_rate(10_000), Some(1_250_000_000));
        assert_eq!(byte_rate(800_000), Some(100_000_000_000));
        assert_eq!([0, 10, 65_535, u32::MAX].map(byte_rate), [None; 4]);
    }
}
