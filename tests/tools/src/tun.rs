//! TUN devices: network interfaces that are files. Reading returns a packet that the host sends,
//! writing delivers a packet to the host.

use std::fs::{File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::netns::Namespace;

/// `struct ifreq`, with the fields that `TUNSETIFF` reads.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    _rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);

/// The operation that names a device. The opcode encodes an `i32`, but the kernel reads an `ifreq`,
/// and writes the name back to it.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
/// A device for IP packets.
const IFF_TUN: u16 = 1;
/// No header in front of packets.
const IFF_NO_PI: u16 = 0x1000;

/// Creates a device in the namespace of the calling thread. `name` has at most 15 bytes. Each read
/// and each write is one IP packet; neither blocks. Closing the file deletes the device.
///
/// # Errors
/// The reason why the machine cannot create the device.
pub fn open(name: &str) -> Result<File, String> {
    let failed = |error| format!("no TUN device: {error}");
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(flags);
    let file = options.open("/dev/net/tun").map_err(failed)?;
    let mut request =
        InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, _rest: [0; 22] };
    request.name[..15].iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
    // SAFETY: this opcode takes a pointer to an `ifreq`. `request` has its layout, and its size of
    // 40 bytes, which is asserted above.
    let call = unsafe { Updater::<'_, TUNSETIFF, InterfaceRequest>::new(&mut request) };
    // SAFETY: the file is the device that the opcode belongs to. The kernel reads and writes only
    // `request`, which outlives the call.
    unsafe { ioctl(file.as_fd(), call) }.map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

/// Creates the device `name` as the only way out of `host`, which has the address `ip` there. The
/// longest packet has `mtu` bytes.
///
/// # Errors
/// The reason why the machine cannot create the device.
pub fn attach(host: &Namespace, name: &str, ip: Ipv4Addr, mtu: usize) -> Result<File, String> {
    let device = host.within(|| open(name))?;
    host.ip(&format!("address add {ip}/32 dev {name}"))?;
    // A queue that is long enough: packets do not wait in it for long, and none may be dropped.
    host.ip(&format!("link set {name} mtu {mtu} txqueuelen 4096 up"))?;
    host.ip(&format!("route add default dev {name}"))?;
    Ok(device)
}
