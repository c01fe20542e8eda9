//! Keeps the values that told stores left in the entries of a table.

/// The number of entries in a chunk.
const CHUNK: usize = 64;

/// The content that the last told store left in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) raw: u64,
    /// Event of the store.
    pub(crate) since: u64,
}

#[derive(Clone, Copy)]
struct Chunk {
    known: u64,
    entries: [Told; CHUNK],
}

/// The entries of a table to which stores were told, in chunks that are made when they are needed.
#[derive(Default)]
pub(crate) struct ToldEntries {
    chunks: Vec<Option<Box<Chunk>>>,
}

impl ToldEntries {
    /// Records a store, and returns the value that the store before it left.
    pub(crate) fn replace(&mut self, index: usize, new: Told) -> Option<Told> {
        let (chunk, slot) = (index / CHUNK, index % CHUNK);
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, None);
        }
        let empty = || Box::new(Chunk { known: 0, entries: [Told { raw: 0, since: 0 }; CHUNK] });
        let chunk = self.chunks[chunk].get_or_insert_with(empty);
        let known = chunk.known & 1 << slot != 0;
        chunk.known |= 1 << slot;
        let old = std::mem::replace(&mut chunk.entries[slot], new);
        known.then_some(old)
    }

    /// Returns the value that the last told store left in an entry.
    #[cfg(any(feature = "watch", test))]
    pub(crate) fn get(&self, index: usize) -> Option<Told> {
        let chunk = self.chunks.get(index / CHUNK)?.as_ref()?;
        (chunk.known & 1 << (index % CHUNK) != 0).then_some(chunk.entries[index % CHUNK])
    }

    /// Returns whether no store was told.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Lists the entries to which stores were told, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Told)> + '_ {
        let chunks = self.chunks.iter().enumerate().filter_map(|(n, chunk)| Some((n, chunk.as_ref()?)));
        chunks.flat_map(|(n, chunk)| {
            let known = (0..CHUNK).filter(|slot| chunk.known & 1 << slot != 0);
            known.map(move |slot| (n * CHUNK + slot, chunk.entries[slot]))
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_known_from_its_first_store_on() {
        let mut told = ToldEntries::default();
        let store = |raw| Told { raw, since: raw };
        assert_eq!(told.get(700), None);
        assert_eq!(told.replace(700, store(1)), None);
        assert_eq!(told.replace(700, store(2)), Some(store(1)));
        assert_eq!((told.get(700), told.get(701), told.get(5)), (Some(store(2)), None, None));
        told.replace(64, store(9));
        assert_eq!(told.iter().collect::<Vec<_>>(), [(64, store(9)), (700, store(2))]);
        told.clear();
        assert_eq!(told.replace(700, store(3)), None);
    }
}
