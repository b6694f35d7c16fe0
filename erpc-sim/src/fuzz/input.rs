//! Fuzzer input as a source of decisions.

/// The bytes of a fuzzer, read from front to back. After the end every byte is 0, which selects the
/// honest choice wherever there is one.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Unread bytes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.u8()))
    }

    /// Up to `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// One of `choices`. Reads no byte if there is only one.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        if let [only] = choices {
            return *only;
        }
        choices[usize::from(self.u8()) % choices.len()]
    }

    /// Usually `truth`; else a value near it, an extreme value, or any value.
    pub(super) fn near(&mut self, truth: u32) -> u32 {
        match self.u8() {
            0..=191 => truth,
            192..=207 => truth.wrapping_add(1),
            208..=219 => truth.wrapping_sub(1),
            220..=227 => truth.wrapping_add(8),
            228..=235 => truth.wrapping_sub(8),
            236..=239 => 0,
            240..=243 => u32::MAX,
            244..=255 => self.u32(),
        }
    }
}
