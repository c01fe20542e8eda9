//! A fast hasher for integer keys. It does not resist keys that are chosen to collide.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<MixHasher>>;

/// Multiplies by an odd constant and folds the high half down. Page numbers differ in few low bits,
/// and the hash map looks at both ends of the hash.
#[derive(Default, Clone, Copy)]
pub(crate) struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ n) * 0xd1b5_4a32_d192_ed03;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
