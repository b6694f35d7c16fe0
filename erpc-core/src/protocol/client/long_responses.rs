//! The methods of a session whose last responses were long.

use crate::mutants::mutant;

/// Number of methods that a session remembers.
const METHODS: usize = 4;

/// The methods whose last responses had several packets, and how long these were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongResponses {
    /// Method and bytes of its last response; 0 bytes if the place is free. The place of a method
    /// depends on its id only.
    places: [(u32, u32); METHODS],
}

impl LongResponses {
    /// The bytes of the method's last response; 0 if it was short.
    #[inline(always)]
    pub(super) fn last(&self, method: u32) -> u32 {
        let (known, bytes) = self.places[method as usize % METHODS];
        if known == method { bytes } else { 0 }
    }

    /// A response of `bytes` bytes has begun, which has several packets and was not announced.
    pub(super) fn note(&mut self, method: u32, bytes: u32) {
        self.places[method as usize % METHODS] = (method, bytes);
    }

    /// A response had one packet, or came so late that it was announced.
    #[inline(always)]
    pub(super) fn forget(&mut self, method: u32) {
        if self.last(method) > 0 && !mutant!(LongResponseExpectedForever) {
            self.places[method as usize % METHODS] = (0, 0);
        }
    }
}
