//! A generator of numbers. Tests that use it have to meet rare events so many times: another
//! sequence meets them less often.

/// Numbers that follow from a seed.
pub struct Rng(u64);

impl Rng {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}
