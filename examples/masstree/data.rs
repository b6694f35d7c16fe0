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

/// xorshift64*.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(scramble(seed) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Numbers with Zipf's distribution: rank `k` is chosen with a probability that falls with
/// `k^0.99`, as in YCSB (Gray et al., "Quickly generating billion-record synthetic databases",
/// SIGMOD'94, section 3).
#[derive(Clone)]
pub(crate) struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    pub(crate) fn new(count: u64) -> Self {
        let zeta =
            |count: u64| (1..=count).map(|rank| (rank as f64).powf(-Self::THETA)).sum::<f64>();
        let all = zeta(count);
        let alpha = 1.0 / (1.0 - Self::THETA);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - Self::THETA)) / (1.0 - zeta(2) / all);
        Self { count, zeta: all, alpha, eta }
    }

    /// A rank below the count; 0 is the most frequent.
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(Self::THETA) {
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }

    /// A number below the count. Frequent numbers are spread over all.
    pub(crate) fn number(&self, random: &mut Random) -> u64 {
        scramble(self.rank(random)) % self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ranks_have_the_frequencies_of_zipf() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.rank(&mut random) as usize] += 1);
        // The sum of the first 1,000 terms is 7.73, so the first rank has 12.9 % of all.
        assert!((12_000..14_000).contains(&counts[0]), "{}", counts[0]);
        assert!((6_000..7_200).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[500..].iter().sum::<u32>() > 5_000, "the tail is chosen too");
    }

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
