//! A set of events of a recording, one bit for each.

/// Events by their number.
#[derive(Clone, Default)]
pub struct EventSet {
    words: Vec<u64>,
    len: u64,
}

impl EventSet {
    /// Adds an event.
    pub fn add(&mut self, event: u32) {
        let (word, bit) = ((event / 64) as usize, 1 << (event % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += u64::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    /// Returns whether it has an event.
    pub fn has(&self, event: u32) -> bool {
        self.words.get((event / 64) as usize).is_some_and(|word| word >> (event % 64) & 1 != 0)
    }

    /// Returns the number of events.
    pub fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_once() {
        let mut set = EventSet::default();
        [700, 3, 700, 64].into_iter().for_each(|event| set.add(event));
        let has: Vec<u32> = (0..1000).filter(|event| set.has(*event)).collect();
        assert_eq!((has, set.len()), (vec![3, 64, 700], 3));
    }
}
