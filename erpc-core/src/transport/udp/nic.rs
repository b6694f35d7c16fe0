//! Information from the kernel about network interfaces.

use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use rustix::net::netdevice::index_to_name_inlined;

use super::route::Name;

/// A network interface of this host.
pub(super) struct Nic {
    /// An ioctl request with the interface's name filled in.
    request: libc::ifreq,
}

/// The kernel's answer to `ETHTOOL_GSET` (`struct ethtool_cmd`): its first fields, padded to the
/// full size that the kernel writes.
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

/// The command from `linux/ethtool.h`. Every kernel supports it, for every user.
const ETHTOOL_GSET: u32 = 1;

impl Nic {
    /// The interface with the address `ip`.
    pub(super) fn with_address(ip: IpAddr) -> Option<Self> {
        let mut list: *mut libc::ifaddrs = null_mut();
        // SAFETY: the call writes the list's head to `list`, which outlives it.
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
        // SAFETY: the list came from `getifaddrs`, and no reference into it is used afterwards:
        // `named` copies the name.
        unsafe { libc::freeifaddrs(list) };
        found
    }

    /// The interface with this `index`. `fd` is any socket.
    pub(super) fn with_index(index: u32, fd: BorrowedFd<'_>) -> Option<Self> {
        let name = index_to_name_inlined(fd, index).ok()?;
        // SAFETY: zero is a valid value of every field.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // The last byte remains 0 and terminates the name.
        let to = request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut();
        to.zip(name.as_bytes()).for_each(|(to, byte)| *to = *byte as libc::c_char);
        Some(Self { request })
    }

    fn named(entry: &libc::ifaddrs) -> Self {
        // SAFETY: zero is a valid value of every field.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // SAFETY: the source is the kernel's NUL-terminated name, and the copy writes at most
        // IFNAMSIZ - 1 bytes to a zeroed array of IFNAMSIZ bytes.
        unsafe { libc::strncpy(request.ifr_name.as_mut_ptr(), entry.ifa_name, libc::IFNAMSIZ - 1) };
        Self { request }
    }

    /// The interface's MTU in bytes, headers included. `fd` is any socket.
    pub(super) fn mtu(mut self, fd: BorrowedFd<'_>) -> Option<usize> {
        let request = &raw mut self.request;
        // SAFETY: SIOCGIFMTU reads the name of an `ifreq` and writes its `ifru_mtu`.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, request) } != 0 {
            return None;
        }
        // SAFETY: the call above wrote this member.
        usize::try_from(unsafe { self.request.ifr_ifru.ifru_mtu }).ok()
    }

    /// The rate of the interface's link, in bytes per second. `None` if there is no link, or the
    /// driver does not report a rate. `fd` is any socket: unlike the files below `/sys/class/net`,
    /// it is certain to be in the right network namespace.
    pub(super) fn link_rate(mut self, fd: BorrowedFd<'_>) -> Option<u64> {
        // SAFETY: zero is a valid value of every field.
        let mut settings: LinkSettings = unsafe { zeroed() };
        settings.command = ETHTOOL_GSET;
        self.request.ifr_ifru.ifru_data = (&raw mut settings).cast();
        let request = &raw mut self.request;
        // SAFETY: SIOCETHTOOL reads the name of an `ifreq` and the command that its `ifru_data`
        // points to. That is `settings`, which outlives the call and has the size that the kernel
        // writes for this command.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, request) } != 0 {
            return None;
        }
        byte_rate(u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low))
    }
}

/// Converts a driver's speed in megabits per second to bytes per second. Drivers report an unknown
/// speed as 0 or as all ones, in 16 or in 32 bits; tunnel drivers report 10. Speeds below 100 count
/// as unknown, because no current link is that slow.
fn byte_rate(speed: u32) -> Option<u64> {
    let known = (100..u32::MAX).contains(&speed) && speed != u32::from(u16::MAX);
    known.then_some(u64::from(speed) * (1_000_000 / 8))
}

fn has_address(entry: &libc::ifaddrs, ip: IpAddr) -> bool {
    // SAFETY: an entry's address is null or points to a socket address of its family, valid while
    // the list exists.
    let Some(address) = (unsafe { entry.ifa_addr.as_ref() }) else {
        return false;
    };
    let size = match i32::from(address.sa_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return false,
    };
    let mut name = Name::EMPTY;
    // SAFETY: the family guarantees that the address has `size` bytes; a name has room for either
    // family.
    unsafe { entry.ifa_addr.cast::<u8>().copy_to_nonoverlapping(name.as_mut_ptr().cast(), size) };
    name.route().socket_addr().ip() == ip.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_speeds_are_not_rates() {
        assert_eq!(byte_rate(100), Some(12_500_000));
        assert_eq!(byte_rate(10_000), Some(1_250_000_000));
        assert_eq!(byte_rate(800_000), Some(100_000_000_000));
        assert_eq!([0, 10, 65_535, u32::MAX].map(byte_rate), [None; 4]);
    }
}
