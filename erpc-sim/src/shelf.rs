//! Things that wait for their event.

/// Things by number; numbers are used again.
pub(crate) struct Shelf<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Shelf<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn put(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(thing);
                place
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() as u32 - 1
            }
        }
    }

    /// Takes a thing away.
    ///
    /// # Panics
    /// If there is none: every event takes its thing once.
    pub(crate) fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.places[place as usize].take().expect("every event takes its thing once")
    }
}
