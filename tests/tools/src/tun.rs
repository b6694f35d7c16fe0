//! TUN devices: an interface whose packets are read from a file, and to which packets come that are written to it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `struct ifreq`, as far as `TUNSETIFF` reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    _rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);

/// Names the device. The kernel reads a request, and writes the name back, whatever the number says.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
/// Whole IP packets, with nothing in front of them.
const IFF_TUN: u16 = 1;
const IFF_NO_PI: u16 = 0x1000;

/// A device called `name`, of at most 15 bytes, in the namespace of the calling thread. Reads and writes are of one IP packet
/// each and do not block. It goes when the file is closed.
///
/// # Errors
/// What the machine says against it.
pub fn open(name: &str) -> Result<File, String> {
    let failed = |error| format!("no TUN device: {error}");
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(flags);
    let file = options.open("/dev/net/tun").map_err(failed)?;
    let mut request =
        InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, _rest: [0; 22] };
    request.name[..15].iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
    // SAFETY: this opcode takes a pointer to an `ifreq`, which is what is passed.
    let call = unsafe { Updater::<'_, TUNSETIFF, InterfaceRequest>::new(&mut request) };
    // SAFETY: the file is the device that the opcode belongs to; the kernel reads and writes the request alone.
    unsafe { ioctl(file.as_fd(), call) }.map_err(|errno| failed(errno.into()))?;
    Ok(file)
}
