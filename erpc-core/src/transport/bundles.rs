//! Bundles that further messages may join until the next doorbell.

use crate::buf::copy;
use crate::wire::bundle::MAX_BUNDLE;
use crate::wire::{HEADER_LEN, HeaderWords, bundle};

/// Most open bundles: for endpoints that send to several peers in turn.
pub(super) const BUNDLES: usize = 8;

/// A longer message, with its header, opens no bundle: few others would have room in it.
pub(super) const OPENS: usize = MAX_BUNDLE / 2;

/// The open bundles of a queue, each for another destination.
pub(super) struct OpenBundles<D, B> {
    places: [Option<(D, B)>; BUNDLES],
    /// The place of the bundle that the last message joined, or will open.
    last: usize,
    /// Number of open bundles.
    count: usize,
}

impl<D, B> OpenBundles<D, B> {
    pub(super) const fn new() -> Self {
        Self { places: [const { None }; BUNDLES], last: 0, count: 0 }
    }

    /// The bundle that the last message joined, if it `is_for` the next message's destination.
    #[inline(always)]
    pub(super) fn last(&mut self, is_for: impl FnOnce(&D) -> bool) -> Option<&mut B> {
        match &mut self.places[self.last % BUNDLES] {
            Some((to, bundle)) if is_for(to) => Some(bundle),
            _ => None,
        }
    }

    /// The bundle that `is_for` a destination, if there is one. [`Self::last`] returns it from now on.
    #[inline]
    pub(super) fn find(&mut self, is_for: impl Fn(&D) -> bool) -> Option<&mut B> {
        let is_own = |place: &Option<(D, B)>| place.as_ref().is_some_and(|(to, _)| is_for(to));
        self.last = self.places.iter().position(is_own)?;
        self.last(is_for)
    }

    /// Chooses the place for a new bundle, and takes out the bundle there, if there is one. If the
    /// destination `has_one`, which [`Self::find`] has just found, the place is that of this bundle,
    /// otherwise a free one, otherwise the last. So with more destinations in turn than places, all but
    /// one of the places keep their bundles.
    pub(super) fn make_room(&mut self, has_one: bool) -> Option<(D, B)> {
        if !has_one {
            let is_free = |place: &Option<(D, B)>| self.count < BUNDLES && place.is_none();
            self.last = self.places.iter().position(is_free).unwrap_or(BUNDLES - 1);
        }
        let bundle = self.places[self.last].take();
        self.count -= usize::from(bundle.is_some());
        bundle
    }

    /// Adds a bundle in the place that [`Self::make_room`] has chosen, before any other is opened.
    pub(super) fn open(&mut self, to: D, bundle: B) {
        debug_assert!(self.places[self.last].is_none(), "`make_room` has emptied the place");
        self.places[self.last] = Some((to, bundle));
        self.count += 1;
    }

    /// Takes one of the bundles out whose destination `ends`.
    #[inline]
    pub(super) fn take_if(&mut self, ends: impl Fn(&D) -> bool) -> Option<(D, B)> {
        if self.count == 0 {
            return None;
        }
        let bundle = self.places.iter_mut().find_map(|place| place.take_if(|(to, _)| ends(to)))?;
        self.count -= 1;
        Some(bundle)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Writes the packet of a message.
#[inline(always)]
pub(super) fn write(header: HeaderWords, data: &[u8], room: &mut [u8]) {
    let (head, body) = room.split_at_mut(HEADER_LEN);
    head.copy_from_slice(&header.to_bytes());
    copy(data, body);
}

/// The length of a bundle of `len` bytes after a message of `data` bytes has joined it. `None` if it
/// has no room.
#[inline(always)]
pub(super) const fn joined(len: usize, data: usize) -> Option<usize> {
    let len = bundle::next(len) + HEADER_LEN + data;
    if len <= MAX_BUNDLE { Some(len) } else { None }
}

/// Writes a message behind the first `len` bytes of a bundle. `room`: the bundle with the message.
#[inline(always)]
pub(super) fn join(len: usize, header: HeaderWords, data: &[u8], room: &mut [u8]) {
    // The gap. A fixed length is one store.
    room[len..][..bundle::ALIGN].fill(0);
    write(header, data, &mut room[bundle::next(len)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The destinations whose bundles leave, in this order, if messages for these come in turn and no
    /// bundle is ever full.
    fn leaves(messages: &[u8]) -> Vec<u8> {
        let mut bundles = OpenBundles::new();
        let mut left = Vec::new();
        for to in messages {
            let is_for = |other: &u8| other == to;
            if bundles.last(is_for).is_none() && bundles.find(is_for).is_none() {
                left.extend(bundles.make_room(false).map(|(to, ())| to));
                bundles.open(*to, ());
            }
        }
        while let Some((to, _)) = bundles.take_if(|_| true) {
            left.push(to);
        }
        left
    }

    #[test]
    fn each_destination_has_a_place_and_further_ones_share_the_last() {
        assert_eq!(leaves(&[]), []);
        assert_eq!(leaves(&[7, 7, 7]), [7]);
        assert_eq!(leaves(&[1, 2, 3, 4, 5, 6, 7, 8, 3, 1, 8, 8, 2]), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(leaves(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 9, 8]), [8, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_full_bundle_makes_room_for_the_next_one_to_its_destination() {
        let mut bundles = OpenBundles::new();
        for to in 1..=BUNDLES {
            assert_eq!(bundles.make_room(false), None);
            bundles.open(to, "first");
        }
        let is_for = |other: &usize| *other == 2;
        assert_eq!(bundles.find(is_for), Some(&mut "first"));
        assert_eq!(bundles.make_room(true), Some((2, "first")));
        bundles.open(2, "second");
        assert_eq!(bundles.last(is_for), Some(&mut "second"));
        assert_eq!(bundles.find(|other| *other == 9), None);
        assert_eq!(bundles.take_if(is_for), Some((2, "second")));
        assert_eq!(bundles.find(is_for), None);
        assert_eq!(bundles.count(), BUNDLES - 1);
        assert_eq!(bundles.take_if(is_for), None);
    }
}
