//! The hash table against a map, in both layouts and several sizes.
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::tlb::hash::{
    HashCounts, HashLayout, HashSizeError, HashTable, Hashed32, Hashed64, Inserted, Mapping, Refill, Tag,
};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// A table and its memory.
struct Owned<L: HashLayout> {
    table: HashTable<L>,
    base: NonNull<u8>,
    layout: Layout,
}

impl<L: HashLayout> Owned<L> {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, bytes).expect("a power of two");
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc(layout) }).expect("there is memory");
        // SAFETY: 1. allocated above, and freed after the table has gone.
        let table = unsafe { HashTable::new(base, bytes as u64) }.expect("a size that there is");
        Owned { table, base, layout }
    }
}

impl<L: HashLayout> Drop for Owned<L> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; no code uses the table any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Puts a page in, which was hashed before or not.
fn insert<L: HashLayout>(table: &HashTable<L>, tag: Tag, entry: Mapping, was_hashed: bool) -> Inserted {
    // SAFETY: 1. no MMU reads the table. 2. callers say it as it is.
    unsafe { table.insert(tag, Refill { entry, was_hashed }) }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Tag, Mapping),
    Remove(Tag),
    Wipe,
}

/// Few segments and pages in a few groups, so that groups fill up.
fn tag() -> impl Strategy<Value = Tag> {
    (0u32..6, 0u16..4, 0u16..64).prop_map(|(segment, low, high)| Tag::new(segment * 0x1357, high << 10 | low))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (tag(), any::<u32>()).prop_map(|(tag, raw)| Step::Insert(tag, Mapping(raw & Mapping::BITS))),
        40 => tag().prop_map(Step::Remove),
        1 => Just(Step::Wipe),
    ]
}

/// Runs the steps on a table and on a map. The table's answer for a page is the last one put there,
/// and a page that was taken out is not found; only eviction may lose one.
fn agree<L: HashLayout>(bytes: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let owned = Owned::<L>::new(bytes);
    let table = &owned.table;
    let mut map = BTreeMap::new();
    let (mut forgotten, mut removed) = (0, 0);
    let mut evicted = 0;
    for step in steps {
        match *step {
            Step::Insert(tag, mapping) => {
                let there = table.look_up(tag).is_some();
                let how = insert(table, tag, mapping, map.contains_key(&tag));
                prop_assert_eq!(how == Inserted::Again, there);
                evicted += usize::from(how == Inserted::Evicted);
                map.insert(tag, mapping);
                prop_assert_eq!(table.look_up(tag), Some(mapping), "what was just put in");
            }
            Step::Remove(tag) => {
                let before = table.look_up(tag);
                prop_assert_eq!(table.remove(tag, || forgotten += 1), before);
                removed += 1;
                map.remove(&tag);
                prop_assert_eq!(table.look_up(tag), None, "a page that was taken out");
            }
            Step::Wipe => {
                let valid = table.valid();
                prop_assert_eq!(table.wipe(|| forgotten += 1), valid);
                removed += 1;
                map.clear();
            }
        }
    }
    prop_assert_eq!(forgotten, removed, "TLBs forget each page, found or not");
    let mut found = 0;
    for segment in 0..6 {
        for page in 0..=u16::MAX {
            let tag = Tag::new(segment * 0x1357, page);
            if let Some(mapping) = table.look_up(tag) {
                prop_assert_eq!(map.get(&tag), Some(&mapping));
                found += 1;
            }
        }
    }
    prop_assert_eq!(found, table.valid(), "an entry that no page finds");
    prop_assert!(map.len() - found <= evicted, "a page is lost and was not evicted");
    prop_assert_eq!(table.counts().evicted, evicted);
    Ok(())
}

proptest! {
    // The same cases each time, and none saved: a case that says something has a name, below.
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default()
    })]

    #[test]
    fn the_table_says_what_a_map_says(steps in proptest::collection::vec(step(), 0..4000), shift in 0u32..3) {
        agree::<Hashed32>(64 << 10 << shift, &steps)?;
        agree::<Hashed64>(256 << 10 << shift, &steps)?;
    }
}

#[test]
fn a_million_random_steps() {
    let mut rng = fastrand::Rng::with_seed(20);
    let steps: Vec<_> = (0..1_000_000)
        .map(|_| {
            let tag = Tag::new(rng.u32(..6) * 0x1357, rng.u16(..64) << 10 | rng.u16(..4));
            match rng.u32(..10_000) {
                0 => Step::Wipe,
                1..6000 => Step::Insert(tag, Mapping(rng.u32(..1 << 20) & Mapping::BITS)),
                _ => Step::Remove(tag),
            }
        })
        .collect();
    agree::<Hashed32>(64 << 10, &steps).expect("the small layout");
    agree::<Hashed64>(256 << 10, &steps).expect("the large layout");
    // Every size up to that of the machine of 2001.
    for shift in 1..=6 {
        agree::<Hashed32>(64 << 10 << shift, &steps[..100_000]).expect("the small layout");
    }
    for shift in 1..=4 {
        agree::<Hashed64>(256 << 10 << shift, &steps[..100_000]).expect("the large layout");
    }
}

/// Pages of one segment with the same low bits are in the same group of the smallest table.
fn neighbours(n: u16) -> impl Iterator<Item = Tag> {
    (0..n).map(|i| Tag::new(0, i << 11 | 5))
}

#[test]
fn a_page_goes_to_its_primary_group_then_secondary_then_evicts() {
    let owned = Owned::<Hashed32>::new(64 << 10);
    let table = &owned.table;
    let how: Vec<_> = neighbours(20).map(|tag| insert(table, tag, Mapping(0x1000), false)).collect();
    assert_eq!(how[..8], [Inserted::Primary; 8]);
    assert_eq!(how[8..16], [Inserted::Secondary; 8]);
    assert_eq!(how[16..], [Inserted::Evicted; 4]);
    // In turn, in the primary group: four that were put there, from the second on.
    let found: Vec<_> = neighbours(20).map(|tag| table.look_up(tag).is_some()).collect();
    assert_eq!(found[..5], [true, false, false, false, false]);
    assert!(found[5..].iter().all(|found| *found));
    // No page was hashed before, so none was searched: 1 to 8 entries, 9 to 16, all 16.
    assert_eq!(table.counts().probes, 36 + 100 + 4 * 16);
    assert_eq!(table.counts().evicted, 4);
    // A page that had to go is flushed all the same.
    let mut forgotten = 0;
    assert_eq!(neighbours(2).nth(1).map(|tag| table.remove(tag, || forgotten += 1)), Some(None));
    assert_eq!((forgotten, table.counts().missing), (1, 1));
}

#[test]
fn a_page_that_is_put_in_again_has_one_entry() {
    let owned = Owned::<Hashed64>::new(256 << 10);
    let tag = Tag::of(3, 0x1234_5000);
    assert_eq!(insert(&owned.table, tag, Mapping(0x1002), false), Inserted::Primary);
    assert_eq!(insert(&owned.table, tag, Mapping(0x2000), true), Inserted::Again);
    assert_eq!((owned.table.valid(), owned.table.look_up(tag)), (1, Some(Mapping(0x2000))));
    let HashCounts { stores, inserted, probes, .. } = owned.table.counts();
    // The first free entry, with no search for the page; then its entry, which is the first.
    assert_eq!((stores, inserted, probes), (2, 2, 1 + 1));
    // A page that was hashed once and is not there is looked for in both groups.
    let other = Tag::of(3, 0x0765_4000);
    assert_eq!(insert(&owned.table, other, Mapping(0x3000), true), Inserted::Primary);
    assert_eq!(owned.table.counts().probes - probes, 16 + 1);
}

#[test]
fn memory_of_another_size_or_place_is_refused_and_not_touched() {
    let bytes = 128 << 10;
    let layout = Layout::from_size_align(2 * bytes, 2 * bytes).expect("a power of two");
    // SAFETY: the size is not zero.
    let base = NonNull::new(unsafe { alloc(layout) }).expect("there is memory");
    // SAFETY: just allocated, that large.
    unsafe { base.write_bytes(0x5a, 2 * bytes) };
    let refused = |offset: usize, bytes: u64| {
        // SAFETY: within the allocation, or one past it, and refused before it is used.
        let at = unsafe { base.add(offset) };
        // SAFETY: 1. as above.
        unsafe { HashTable::<Hashed32>::new(at, bytes) }.map(|_| ())
    };
    let error = |bytes| Err(HashSizeError { bytes, least: 64 << 10 });
    assert_eq!(refused(64 << 10, bytes as u64), error(bytes as u64), "not aligned to its size");
    for bytes in [0, 4096, 96 << 10, 1 << 40] {
        assert_eq!(refused(0, bytes), error(bytes));
    }
    // SAFETY: allocated above, and no table has taken it over.
    assert!(unsafe { std::slice::from_raw_parts(base.as_ptr(), 2 * bytes) }.iter().all(|b| *b == 0x5a));
    // SAFETY: allocated above with this layout.
    unsafe { dealloc(base.as_ptr(), layout) };
}

/// Removes segments of a context from a table with pages of two contexts.
fn segments_go<L: HashLayout>(bytes: usize) {
    let owned = Owned::<L>::new(bytes);
    let table = &owned.table;
    // Pages of context 0 and segment 0 have the number 0, as entries without a page have.
    let tags: Vec<(u32, u32, Tag)> = (0..2)
        .flat_map(|context| (0..4).map(move |segment| (context, segment)))
        .flat_map(|(context, segment)| {
            [0, 5].map(|page| (context, segment, Tag::of(context, segment << 28 | page << 12)))
        })
        .collect();
    tags.iter().for_each(|(_, _, tag)| _ = insert(table, *tag, Mapping(1 << 12), false));
    assert!(table.remove(tags[1].2, || {}).is_some(), "its words may be left");
    assert_eq!(table.remove_segments(0, 0..2, || {}), 3);
    for (context, segment, tag) in &tags {
        let is_left = table.remove(*tag, || {}).is_some();
        assert_eq!(is_left, *context == 1 || *segment >= 2, "segment {segment} of context {context}");
    }
    assert_eq!(table.remove_segments(0, 0..16, || {}), 0);
}

#[test]
fn pages_of_segments_go_and_no_others() {
    segments_go::<Hashed32>(1 << 16);
    segments_go::<Hashed64>(1 << 18);
}
