//! Keys, values, and which of them the load asks for.

/// The key with this number. Different numbers have different keys: each step can be reversed.
pub(crate) fn key(number: u64) -> [u8; 8] {
    scramble(number).to_be_bytes()
}

/// A value of the key with this number. The upper half names the key, so answers can be checked.
pub(crate) fn value(number: u64, version: u32) -> u64 {
    (scramble(!number) >> 32 << 32) | u64::from(version)
}

/// Whether this is a value of the key.
pub(crate) fn is_value(number: u64, value: u64) -> bool {
    value >> 32 == self::value(number, 0) >> 32
}

/// The keys and values that a server begins with.
pub(crate) fn entries(keys: u64) -> impl Iterator<Item = ([u8; 8], u64)> {
    (0..keys).map(|number| (key(number), value(number, 0)))
}

fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// What scans of the first entries return.
pub(crate) struct Order {
    /// The place of each number's key in the order of keys.
    places: Vec<usize>,
    /// The sums of the values before each place.
    sums: Vec<u64>,
}

impl Order {
    pub(crate) fn new(keys: u64) -> Self {
        let mut numbers: Vec<u64> = (0..keys).collect();
        numbers.sort_unstable_by_key(|&number| key(number));
        let (mut places, mut sums) = (vec![0; numbers.len()], vec![0_u64]);
        for (place, &number) in numbers.iter().enumerate() {
            places[number as usize] = place;
            sums.push(sums[place].wrapping_add(value(number, 0)));
        }
        Self { places, sums }
    }

    /// The number of keys and the sum of the values of a scan of so many keys from this one.
    pub(crate) fn scan(&self, from: u64, count: usize) -> (u32, u64) {
        let start = self.places[from as usize];
        let end = (start + count).min(self.places.len());
        ((end - start) as u32, self.sums[end].wrapping_sub(self.sums[start]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_knows_what_scans_return() {
        let order = Order::new(100);
        let mut numbers: Vec<u64> = (0..100).collect();
        numbers.sort_by_key(|&number| key(number));
        let sum = numbers[97..].iter().fold(0, |sum: u64, &n| sum.wrapping_add(value(n, 0)));
        assert_eq!(order.scan(numbers[97], 128), (3, sum));
        assert_eq!(order.scan(numbers[97], 1), (1, value(numbers[97], 0)));
    }
}
