//! A format of one's own, here Alpha (Architecture Handbook, "Page Table Entry"), from both sides.
#[rustfmt::skip] #[path = "../tests/formats/drive.rs"] mod drive;
#[rustfmt::skip] #[path = "../tests/formats/map.rs"] mod map;
#[rustfmt::skip] #[path = "../../ptarmigan/tests/common/objects.rs"] mod objects;
#[rustfmt::skip] #[path = "../tests/driver/rng.rs"] mod rng;

use drive::{Drive, Ran, drive};
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Access, Attr, Format, Slot64};
use ptarmigan::page::{Layout, Level};
use ptarmigan_ptsan::{Refilled, Watchable, conform};
use ptsan::{Arch, Canonical, Entry, MemoryType, Perms};

#[derive(Clone, Copy, Default)]
struct Alpha;
/// V, KWE, FOE, URE, ASM; software: used, FOW, software: special. FOE and FOW forbid.
const BITS: [u32; 8] = [0, 12, 3, 9, 4, 16, 2, 17];
const FORBID: u64 = 1 << 3 | 1 << 2;

#[rustfmt::skip]
// SAFETY: 1. to 3. and 5. The frame has 32 bits of its own, links have none but V and KRE, leaves
// have bit 18. 4. The handbook. 6. PALcode fills the TLB.
unsafe impl Format for Alpha {
    type Slot = Slot64; const NAME: &'static str = "Alpha";
    const LAYOUT: Layout = Layout { levels: 3, table_shift: [13, 13, 13, 0, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pgd"];
    const PAGE_SHIFT: u32 = 13; const INDEX_BITS: [u8; 5] = [10, 10, 10, 0, 0];
    const USER_END: u64 = 1 << 42; const KERNEL_START: u64 = u64::MAX << 42;
    const USER_ROOT_ENTRIES: usize = 512; const PHYS_BITS: u32 = 45;
    fn link(_: Level, at: PhysAddr) -> u64 { at.0 >> 13 << 32 | 0x101 }
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> { (raw as u32 == 0x101).then_some(PhysAddr(raw >> 32 << 13)) }
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let bits = (0..8).filter(|n| attr.0 >> n & 1 != 0).fold(FORBID, |raw, n| raw ^ 1 << BITS[n]);
        // KRE; UWE of a page that the kernel may write and the user may read.
        pfn.addr().0 >> 13 << 32 | 1 << 18 | 1 << 8 | bits | (bits >> 12 & bits >> 9 & 1) << 13
    }
    fn frame(_: Level, raw: u64) -> Pfn { PhysAddr(raw >> 32 << 13).pfn() }
    fn attr(_: Level, raw: u64) -> Attr { Attr((0..8).map(|n| ((raw ^ FORBID) >> BITS[n] & 1) << n).sum::<u64>() as u32) }
    fn is_present(_: Level, raw: u64) -> bool { raw & 1 != 0 }
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let write = raw & (1 << 13 | 1 << 2) == 1 << 13;
        raw & 0x201 == 0x201 && match access { Access::Read => true, Access::Write => write, Access::Exec => raw & 8 == 0 }
    }
    fn write_protected(_: Level, raw: u64) -> u64 { raw & !(3 << 12) }
    fn is_special(_: Level, raw: u64) -> bool { raw >> 17 & 1 != 0 }
}

#[rustfmt::skip]
impl Watchable for Alpha {
    // Levels and TLB are like those of SPARC.
    fn arch() -> Arch { Arch { name: "Alpha", canonical: Canonical::SignExtended, memory: |_| MemoryType::WriteBack, decode, ..Arch::sparc64() } }
}

/// The handbook once more, independent of the above.
fn decode(level: u8, raw: u64) -> Entry {
    let (phys, bit) = (raw >> 32 << 13, |n: u32| raw >> n & 1 != 0);
    let write = bit(if bit(9) { 13 } else { 12 }) && !bit(2);
    let perms = Perms::READ.with_if(Perms::USER, bit(9)).with_if(Perms::WRITE, write);
    let perms = perms.with_if(Perms::EXEC, !bit(3));
    match level {
        _ if !bit(0) => Entry::Empty,
        // The kernel reads all that is valid, tables too; no page is written that is not read.
        _ if !bit(8) || bit(13) && !bit(9) => Entry::Malformed,
        0 => Entry::Leaf { phys, perms, global: bit(4), accessed: true, memory_type: 0 },
        _ => Entry::Table { phys, perms: Perms::ALL },
    }
}

fn main() {
    conform::<Alpha>();
    let run = Drive { seed: 1, steps: 20_000, asids: 3, cpus: 2, large: false };
    let Ran { served, passed, denied, findings, report, .. } = drive::<Alpha, Refilled>(Alpha::arch(), &run);
    println!("{served} served, {passed} passed, {denied} denied, {findings} findings");
    assert_eq!(findings, 0, "{report}");
}
