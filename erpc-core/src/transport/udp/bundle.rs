//! Bundles in the staging area.

use super::route::UdpRoute;
use super::steer;
use crate::mutants::mutant;
use crate::transport::bundles;
use crate::wire::{HEADER_LEN, HeaderWords};

/// The receiver of a bundle: one member of one peer.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) member: u8,
    pub(super) route: UdpRoute,
}

impl Destination {
    /// The receiver of a message.
    pub(super) fn of(route: &UdpRoute, header: HeaderWords) -> Self {
        Self { member: steer::member_of_message(header), route: *route }
    }

    /// Whether this is the receiver of a message.
    #[inline(always)]
    pub(super) fn gets(&self, route: &UdpRoute, header: HeaderWords) -> bool {
        (self.member == steer::member_of_message(header) || mutant!(BundleMixesMembers))
            && self.route == *route
    }
}

/// One or more whole messages. While the bundle is open,
/// [`MAX_BUNDLE`](crate::wire::bundle::MAX_BUNDLE) bytes of the staging area are its own.
#[derive(Clone, Copy)]
pub(super) struct OpenBundle {
    /// Where it begins in the staging area.
    pub(super) at: usize,
    /// Bytes of its messages, with headers and the gaps between them.
    pub(super) len: usize,
    pub(super) messages: u32,
}

impl OpenBundle {
    /// A bundle of one message, at `at` in the staging area.
    pub(super) fn new(header: HeaderWords, data: &[u8], staging: &mut [u8], at: usize) -> Self {
        let len = HEADER_LEN + data.len();
        bundles::write(header, data, &mut staging[at..][..len]);
        Self { at, len, messages: 1 }
    }

    /// Adds a message; false if it has no room.
    #[inline(always)]
    pub(super) fn append(&mut self, header: HeaderWords, data: &[u8], staging: &mut [u8]) -> bool {
        let Some(len) = bundles::joined(self.len, data.len()) else { return false };
        bundles::join(self.len, header, data, &mut staging[self.at..][..len]);
        self.len = len;
        self.messages += 1;
        true
    }
}
