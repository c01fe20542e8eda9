//! Boot memory: arrays never overlap, whatever the code that makes their elements does, and keep
//! their block alive.
use ptarmigan::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

/// A block on the heap that is never freed, at an address with little alignment.
fn block(bytes: usize) -> BootMemory {
    let memory = Box::leak(vec![0u64; bytes.div_ceil(8) + 1].into_boxed_slice());
    let base = NonNull::from(&mut memory[1..]).cast();
    // SAFETY: 1. the block was leaked just now: valid for ever, and no other code has it.
    unsafe { BootMemory::new(base, bytes) }
}

/// Says no, as an array does that finds no room.
const SHORT: BootMemoryShort = BootMemoryShort { wanted: 0, left: 0 };

fn bytes_of<T>(slice: &BootSlice<T>) -> std::ops::Range<usize> {
    let first = slice.as_ptr() as usize;
    first..first + size_of_val(&slice[..])
}

fn overlap<T, U>(a: &BootSlice<T>, b: &BootSlice<U>) -> bool {
    let (a, b) = (bytes_of(a), bytes_of(b));
    a.start < b.end && b.start < a.end
}

#[test]
fn an_array_carved_by_an_element_that_fails_afterwards_is_not_handed_out_again() {
    let mut boot = block(4096);
    let mut stolen: Option<BootSlice<usize>> = None;
    let failed = boot.take_with(1, |boot, _| -> Result<u8, _> {
        stolen = Some(boot.take(8, |_| 1)?);
        Err(SHORT)
    });
    assert!(failed.is_err());
    let mut stolen = stolen.expect("there was room");
    let other: BootSlice<&str> = boot.take(16, |_| "fine").expect("room");
    assert!(!overlap(&stolen, &other), "{:x?} and {:x?}", bytes_of(&stolen), bytes_of(&other));
    stolen.fill(0x1000);
    assert!(other.iter().all(|s| *s == "fine"));
}

#[test]
fn an_array_that_fails_with_nothing_carved_behind_it_takes_nothing() {
    let mut boot = block(4096);
    let before = boot.left();
    for n in [1, 3, 100] {
        let failed = boot.take_with(n, |_, i| if i + 1 == n { Err(SHORT) } else { Ok(i as u32) });
        assert_eq!((failed.err(), boot.left()), (Some(SHORT), before));
    }
    let wanted = boot.take::<u64>(usize::MAX / 4, |_| 0).err();
    assert_eq!(wanted, Some(BootMemoryShort { wanted: usize::MAX, left: before }));
    assert_eq!(boot.left(), before);
}

#[test]
fn a_block_that_an_element_puts_in_place_of_the_first_keeps_its_own_arrays() {
    let (mut first, mut second) = (block(4096), block(4096));
    let held: BootSlice<u64> = second.take(64, |_| 7).expect("room");
    let failed = first.take_with(1, |boot, _| -> Result<u8, _> {
        std::mem::swap(boot, &mut second);
        Err(SHORT)
    });
    assert!(failed.is_err());
    let more: BootSlice<u64> = first.take(64, |_| 8).expect("room");
    assert!(!overlap(&held, &more));
    assert!(held.iter().all(|n| *n == 7));
}

/// Counts how many of it exist.
struct Counted(Rc<Cell<i32>>);

impl Counted {
    fn new(count: &Rc<Cell<i32>>) -> Self {
        count.set(count.get() + 1);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn elements_are_dropped_with_their_array_and_when_it_fails_half_way() {
    let count = Rc::new(Cell::new(0));
    let mut boot = block(4096);
    let array = boot.take(10, |_| Counted::new(&count)).expect("room");
    assert_eq!(count.get(), 10);
    let failed = boot.take_with(10, |_, i| if i < 6 { Ok(Counted::new(&count)) } else { Err(SHORT) });
    assert!(failed.is_err());
    assert_eq!(count.get(), 10);
    let died = catch_unwind(AssertUnwindSafe(|| {
        boot.take(10, |i| if i < 6 { Counted::new(&count) } else { panic!("in the middle") }).map(drop)
    }));
    assert!(died.is_err());
    assert_eq!(count.get(), 10);
    drop(array);
    assert_eq!(count.get(), 0);
}

#[test]
fn a_block_of_as_many_bytes_as_an_array_says_suffices_wherever_it_begins() {
    #[derive(Clone, Copy)]
    #[repr(align(128))]
    struct Line(#[allow(dead_code)] u8);
    for n in [0, 1, 5, 64] {
        block(BootMemory::bytes::<u8>(n)).take(n, |_| 0u8).expect("`bytes` suffices");
        block(BootMemory::bytes::<Line>(n)).take(n, |_| Line(0)).expect("`bytes` suffices");
        let sum = BootMemory::bytes::<u16>(n) + BootMemory::bytes::<Line>(n) + BootMemory::bytes::<u64>(n);
        let mut boot = block(sum);
        let a = boot.take(n, |i| i as u16).expect("`bytes` suffices");
        let b = boot.take(n, |_| Line(0)).expect("`bytes` suffices");
        let c = boot.take(n, |i| i as u64).expect("`bytes` suffices");
        assert!(n == 0 || !(overlap(&a, &b) || overlap(&b, &c) || overlap(&a, &c)));
    }
}

#[cfg(not(miri))]
#[test]
fn what_is_carved_of_a_hosts_memory_outlives_the_host() {
    use ptarmigan::format::X86_64;
    use ptarmigan_hosted::{Host, HostConfig};
    let host = Host::<X86_64>::new(HostConfig { bytes: 4 << 20, ..HostConfig::default() }).unwrap();
    let mut boot = host.boot(4096).unwrap();
    let array = boot.take(8, |i| i).unwrap();
    let nested = boot.take_with(2, |boot, _| boot.take(4, |i| i as u8)).unwrap();
    drop(host);
    drop(boot);
    assert_eq!(array[..], [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(nested.iter().all(|inner| inner[..] == [0, 1, 2, 3]));
    drop(array);
    assert_eq!(nested[1][3], 3);
}

/// Address spaces of ended machines take no memory.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_block_goes_when_all_that_was_carved_of_it_is_gone() {
    use ptarmigan::format::X86_64;
    use ptarmigan_hosted::{Host, HostConfig};
    let mapped = |at: usize| {
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| {
            let (start, end) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).unwrap();
            let parse = |s| usize::from_str_radix(s, 16).unwrap();
            (parse(start)..parse(end)).contains(&at)
        })
    };
    let host = Host::<X86_64>::new(HostConfig { bytes: 4 << 20, ..HostConfig::default() }).unwrap();
    // Larger than any mapping that the C library might make there next.
    let mut boot = host.boot(64 << 20).unwrap();
    let outer = boot.take_with(3, |boot, _| boot.take(1 << 20, |_| 0u64)).unwrap();
    let at = outer[2].as_ptr() as usize;
    drop(boot);
    assert!(mapped(at));
    drop(outer);
    assert!(!mapped(at), "the block is still there");
}

/// All parts of a machine in one block, whose size is known before it is handed over.
mod a_machine {
    use super::block;
    use ptarmigan::addr::Pfn;
    use ptarmigan::cpu::{MachineId, NodeId};
    use ptarmigan::format::{Format, X86_64};
    use ptarmigan::frames::{DataFrames, Frames, MemoryRun, MemorySize, ZoneClass};
    use ptarmigan::page::NoConstruct;
    use ptarmigan::parking::Parking;
    use ptarmigan::quicklist::{CheckConfig, Checked, ListsConfig, Quicklists, Source};
    use ptarmigan::tlb::{Tlb, TlbConfig};
    use ptarmigan::window::DirectMap;
    use ptarmigan_hosted::NoTlb;
    use ptarmigan_linux::{Historic, Plain, Rules};

    type Lists<'m> = Quicklists<'m, DirectMap, NoConstruct>;
    type CheckedLists<'m> = Quicklists<'m, DirectMap, NoConstruct, Checked>;

    #[test]
    fn fits_into_as_many_bytes_as_its_parts_say() {
        let machines = [(1, 1, 64), (1, 1, 5000), (4, 2, 1000), (7, 3, 333), (16, 4, 4096)];
        // Interpreted, arrays of half a megabyte take their time.
        let machines = if cfg!(miri) { &machines[..0] } else { &machines[..] };
        for &(cpus, nodes, per_node) in machines {
            let run = |node: u32, hole: u32| MemoryRun {
                start: Pfn(1 + node * (per_node + hole)),
                frames: per_node,
                node: NodeId(node as u8),
                class: ZoneClass::Low,
            };
            for hole in [0, 1, 100_000] {
                let runs: Vec<MemoryRun> = (0..nodes).map(|node| run(node, hole)).collect();
                let size = MemorySize::of(&runs);
                let tlb = TlbConfig::new(cpus);
                let lists = ListsConfig::new(cpus);
                let bytes = Frames::bytes(&size)
                    + DataFrames::bytes(cpus, size.nodes())
                    + Tlb::<NoTlb>::bytes(&tlb)
                    + Parking::bytes(cpus)
                    + Plain::<DirectMap, NoConstruct>::bytes(cpus)
                    + Historic::<DirectMap, NoConstruct>::bytes(cpus)
                    + Lists::bytes(&size, &lists)
                    + Checked::bytes(&size)
                    + CheckedLists::bytes(&size, &lists);
                let mut boot = block(bytes);
                let boot = &mut boot;
                let machine = MachineId::new();
                // SAFETY: 1. no frame is ever taken. 2. the identity is new.
                let frames = unsafe { Frames::new(boot, machine, &runs) }.expect("`bytes` suffices");
                let source = || {
                    // SAFETY: 1. and 2. no memory is reached: no page is ever made.
                    let window = unsafe { DirectMap::new(std::ptr::null_mut(), 1 << 30) }.expect("it fits");
                    // SAFETY: 1. to 4. as above.
                    unsafe { Source::new(&frames, window, NoConstruct, X86_64::LAYOUT) }
                };
                DataFrames::new(boot, &frames, cpus).expect("`bytes` suffices");
                // SAFETY: 1. the identity is new.
                unsafe { Tlb::new(boot, machine, tlb, NoTlb) }.expect("`bytes` suffices");
                Parking::new(boot, machine, cpus, 64).expect("`bytes` suffices");
                Plain::new(boot, cpus, source()).expect("`bytes` suffices");
                let on: Vec<_> = (0..cpus).map(|cpu| NodeId((cpu * nodes as usize / cpus) as u8)).collect();
                // SAFETY: 1. as above.
                unsafe { Historic::new(boot, Rules::V5, &on, 3, source()) }.expect("`bytes` suffices");
                Lists::new(boot, lists, source()).expect("`bytes` suffices");
                let checked =
                    Checked::new(boot, &frames, CheckConfig::new(|_| ())).expect("`bytes` suffices");
                CheckedLists::with_check(boot, lists, source(), checked).expect("`bytes` suffices");
                // And not much more than suffices: lines that arrays begin at, and the rounding of
                // each node's depot.
                assert!(boot.left() < bytes / 4 + 16_384, "{} of {bytes} bytes are left", boot.left());
            }
        }
    }
}
