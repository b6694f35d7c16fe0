//! Bundles that further messages may join.

use super::route::UdpRoute;
use super::steer;
use crate::buf::copy;
use crate::mutants::mutant;
use crate::wire::bundle::MAX_BUNDLE;
use crate::wire::{HEADER_LEN, HeaderWords, bundle};

/// Most open bundles: for endpoints that send to several peers in turn.
pub(super) const BUNDLES: usize = 4;

/// The open bundles of a queue, each for another member or peer.
#[derive(Default)]
pub(super) struct OpenBundles {
    places: [Option<OpenBundle>; BUNDLES],
    /// The place of the bundle that the last message joined.
    last: usize,
}

/// One or more whole messages for one member of one peer. While the bundle is open,
/// [`MAX_BUNDLE`] bytes of the staging area are its own.
#[derive(Clone, Copy)]
pub(super) struct OpenBundle {
    pub(super) route: UdpRoute,
    pub(super) member: u8,
    /// Where it begins in the staging area.
    pub(super) at: usize,
    /// Bytes of its messages, with headers and the gaps between them.
    pub(super) len: usize,
    pub(super) messages: u32,
}

impl OpenBundle {
    #[inline(always)]
    fn is_for(&self, route: &UdpRoute, header: HeaderWords) -> bool {
        (self.member == steer::member_of_message(header) || mutant!(BundleMixesMembers))
            && self.route == *route
    }

    /// Adds a message; false if it has no room.
    #[inline(always)]
    fn append(&mut self, header: HeaderWords, data: &[u8], staging: &mut [u8]) -> bool {
        let at = bundle::next(self.len);
        let len = at + HEADER_LEN + data.len();
        if len > MAX_BUNDLE {
            return false;
        }
        let room = &mut staging[self.at..][..len];
        // The gap. A fixed length is one store.
        room[self.len..][..bundle::ALIGN].fill(0);
        write(header, data, &mut room[at..]);
        self.len = len;
        self.messages += 1;
        true
    }
}

impl OpenBundles {
    /// Adds a message to the bundle that the last message joined. False if that is for another
    /// member or peer, or has no room.
    #[inline(always)]
    pub(super) fn append_to_last(
        &mut self,
        route: &UdpRoute,
        header: HeaderWords,
        data: &[u8],
        staging: &mut [u8],
    ) -> bool {
        let last = self.places[self.last].as_mut().filter(|bundle| bundle.is_for(route, header));
        last.is_some_and(|bundle| bundle.append(header, data, staging))
    }

    /// The place of the bundle for the member of the peer.
    pub(super) fn find(&self, route: &UdpRoute, header: HeaderWords) -> Option<usize> {
        let is_own = |bundle: &OpenBundle| bundle.is_for(route, header);
        self.places.iter().position(|place| place.as_ref().is_some_and(is_own))
    }

    /// Adds a message to the bundle at `place`; false if it has no room.
    pub(super) fn append(
        &mut self,
        place: usize,
        header: HeaderWords,
        data: &[u8],
        staging: &mut [u8],
    ) -> bool {
        self.last = place;
        self.places[place].as_mut().is_some_and(|bundle| bundle.append(header, data, staging))
    }

    /// The place for another peer's bundle, which may be taken. With more peers in turn than places,
    /// they share the last place, and the others go on.
    pub(super) fn place(&self) -> usize {
        self.places.iter().position(Option::is_none).unwrap_or(BUNDLES - 1)
    }

    /// Opens a bundle with one message at `at` in the staging area, where [`MAX_BUNDLE`] bytes are
    /// free.
    pub(super) fn open(
        &mut self,
        place: usize,
        route: &UdpRoute,
        header: HeaderWords,
        data: &[u8],
        (staging, at): (&mut [u8], usize),
    ) {
        let (member, len) = (steer::member_of_message(header), HEADER_LEN + data.len());
        write(header, data, &mut staging[at..][..len]);
        self.places[place] = Some(OpenBundle { route: *route, member, at, len, messages: 1 });
        self.last = place;
    }

    /// Takes the bundle at `place` out, if there is one and it `ends`.
    #[inline]
    pub(super) fn take_if(
        &mut self,
        place: usize,
        ends: impl FnOnce(&OpenBundle) -> bool,
    ) -> Option<OpenBundle> {
        self.places[place].take_if(|bundle| ends(bundle))
    }

    pub(super) fn count(&self) -> usize {
        self.places.iter().flatten().count()
    }
}

/// Writes a packet of one message.
#[inline(always)]
fn write(header: HeaderWords, data: &[u8], room: &mut [u8]) {
    let (head, body) = room.split_at_mut(HEADER_LEN);
    head.copy_from_slice(&header.to_bytes());
    copy(data, body);
}
