//! Translations that a CPU has combined of both stages, for each kind of second stage, and the
//! numbers of guests.
use ptsan::{
    Access, Arch, Config, Content, Fault, Flush, Granule, GuestMemory, Kind, Rule, Sanitizer, Shared,
};

const PAGE: u64 = 4096;
/// The guest's table, and the page that it maps at its address 0x5000.
const TABLE: u64 = PAGE;
const GPA: u64 = 8 * PAGE;
/// Frames of the host: the guest's memory begins here.
const GUEST: u64 = 0x10_0000;

/// A second stage: its format, and how it links a table and maps a page.
struct Format {
    arch: Arch,
    link: fn(u64) -> u64,
    page: fn(u64) -> u64,
    /// Bytes of the root.
    root: u64,
}

fn ept() -> Format {
    Format { arch: Arch::ept(), link: |t| t | 7, page: |p| p | 0x37, root: PAGE }
}

fn npt() -> Format {
    Format { arch: Arch::npt(), link: |t| t | 7, page: |p| p | 7, root: PAGE }
}

fn g_stage() -> Format {
    let arch = Arch::riscv_sv39x4();
    Format { arch, link: |t| t >> 2 | 1, page: |p| p >> 2 | 0xdf, root: 4 * PAGE }
}

fn stage2() -> Format {
    let arch = Arch::aarch64_stage2(Granule::K4, 39, 1);
    Format { arch, link: |t| t | 3, page: |p| p | 0x4c3, root: PAGE }
}

fn all() -> [Format; 4] {
    [ept(), npt(), g_stage(), stage2()]
}

struct Host {
    ram: Vec<u8>,
    stage2: Shared,
    guest: Sanitizer,
    format: Format,
    /// The last table.
    leaves: u64,
}

impl Host {
    /// A guest of 16 pages under number 7, whose own table maps 0x5000. Stores are told, or not.
    fn new(format: Format, told: bool) -> Self {
        let two_stages =
            Config { cpus: 2, asids: true, two_stages: true, ..Config::new(format.arch.clone()) };
        let stage2 = Shared::new(two_stages);
        let mut ram = vec![0u8; 2 << 20];
        let levels = format.arch.levels.len() as u64;
        // The root first, at a multiple of its size.
        let at = |n: u64| if n == 0 { 0x4000 } else { 0x8000 + n * PAGE };
        for n in 0..levels {
            let bytes = if n == 0 { format.root } else { PAGE };
            let level = Some((levels - 1 - n) as u8);
            stage2.table_allocated(&ram, at(n), bytes, level, Content::Zero);
        }
        for cpu in 0..2 {
            stage2.switch(&ram, cpu, at(0), 7);
        }
        let mut put = |entry: u64, raw: u64| {
            ram[entry as usize..][..8].copy_from_slice(&raw.to_le_bytes());
            if told {
                stage2.entry_written(&ram, entry);
            }
        };
        for n in 0..levels - 1 {
            put(at(n), (format.link)(at(n + 1)));
        }
        for page in 0..16 {
            put(at(levels - 1) + 8 * page, (format.page)(GUEST + page * PAGE));
        }
        // The guest: one level of AArch64 on every host.
        let entry = (GUEST + TABLE) as usize + 5 * 8;
        ram[entry..][..8].copy_from_slice(&(GPA | 0xc43).to_le_bytes());
        let mut guest = Sanitizer::new(Config { cpus: 2, ..Config::new(Arch::aarch64_4k(21)) });
        {
            let memory = GuestMemory::new(&stage2, 0, &ram);
            guest.table_allocated(&memory, TABLE, PAGE, Some(0), Content::Unchecked);
        }
        for cpu in 0..2 {
            let memory = GuestMemory::new(&stage2, cpu, &ram);
            guest.switch(&memory, cpu, TABLE, 1);
        }
        let leaves = at(levels - 1);
        Self { ram, stage2, guest, format, leaves }
    }

    fn read(&mut self, cpu: usize) -> Result<u64, Fault> {
        let memory = GuestMemory::new(&self.stage2, cpu, &self.ram);
        memory.access(&mut self.guest, 1, 0x5123, Access::READ)
    }

    /// Maps the page of the guest elsewhere.
    fn remap(&mut self, told: bool) {
        let entry = self.leaves + 8 * (GPA / PAGE);
        let raw = (self.format.page)(0x18_0000);
        for raw in [0, raw] {
            self.ram[entry as usize..][..8].copy_from_slice(&u64::to_le_bytes(raw));
            if told {
                self.stage2.entry_written(&self.ram, entry);
            }
            if !told {
                break; // an unmapped page is enough
            }
        }
    }

    fn flush(&self, flush: Flush) {
        (0..2).for_each(|cpu| self.stage2.flush(&self.ram, cpu, flush));
    }

    fn stage1(&self) {
        (0..2).for_each(|cpu| self.stage2.lock().stage1_flushed(cpu));
    }

    fn rules(&self) -> Vec<(Kind, Rule)> {
        self.stage2.lock().findings().iter().map(|f| (f.kind, f.rule)).collect()
    }
}

#[test]
fn a_combined_translation_answers_until_its_flush() {
    for format in all() {
        let name = format.arch.name;
        let mut host = Host::new(format, false);
        assert_eq!(host.read(0), Ok(GUEST + GPA + 0x123), "{name}");
        let hits = host.stage2.lock().stats().tlb_hits;
        assert_eq!(host.read(0), Ok(GUEST + GPA + 0x123));
        assert!(host.stage2.lock().stats().tlb_hits > hits);
        host.remap(false);
        // The guest's own flush reaches combined translations, and none of stage 2 alone.
        host.stage1();
        assert_eq!(host.read(0), Ok(GUEST + GPA + 0x123), "{name}: cached for stage 2");
        assert_eq!(host.rules()[0], (Kind::StaleUse, Rule::Unmapped), "{name}");
        let mut host = Host::new(all().into_iter().find(|f| f.arch.name == name).unwrap(), false);
        host.read(0).unwrap();
        host.remap(false);
        host.flush(Flush::space(7));
        assert_eq!(host.read(0).map_err(|_| ()), Err(()), "{name}");
        assert_eq!(host.rules(), [], "{name}");
    }
}

#[test]
fn a_stage_2_address_spares_combined_entries_on_aarch64_alone() {
    let mut host = Host::new(stage2(), false);
    host.read(0).unwrap();
    host.remap(false);
    host.flush(Flush::page(7, GPA));
    assert_eq!(host.read(0), Ok(GUEST + GPA + 0x123), "combined");
    assert_eq!(host.rules(), [(Kind::StaleUse, Rule::CombinedStale)]);
    let report = host.stage2.lock().to_string();
    let report = report.replace("\n    ", " ");
    assert!(report.contains("0x5000 in space 0x1 of the guest"), "{report}");
    assert!(report.contains("spares what was combined"), "{report}");
    // With the second half of the sequence.
    let mut host = Host::new(stage2(), false);
    host.read(0).unwrap();
    host.remap(false);
    host.flush(Flush::page(7, GPA));
    host.stage1();
    assert!(host.read(0).is_err() && host.rules().is_empty());
    // RISC-V takes the address as one of both.
    let mut host = Host::new(g_stage(), false);
    host.read(0).unwrap();
    host.remap(false);
    host.flush(Flush::range(7, GPA, GPA + PAGE, PAGE));
    assert!(host.read(0).is_err() && host.rules().is_empty());
    // Another address does not help.
    let mut host = Host::new(g_stage(), false);
    host.read(0).unwrap();
    host.remap(false);
    host.flush(Flush::page(7, GPA + PAGE));
    assert!(host.read(0).is_ok());
    assert_eq!(host.rules(), [(Kind::StaleUse, Rule::CombinedStale)]);
}

#[test]
fn a_frame_stays_while_a_combined_translation_reaches_it() {
    for (stage1, silent) in [(false, false), (true, true)] {
        let mut host = Host::new(stage2(), false);
        host.read(1).unwrap();
        host.remap(false);
        host.flush(Flush::page(7, GPA));
        if stage1 {
            host.stage1();
        }
        let memory = &host.ram;
        host.stage2.lock().frame_freed(memory, GUEST + GPA, PAGE);
        let expected = [(Kind::DataFreedBeforeFlush, Rule::DataNotFlushed)];
        assert_eq!(host.rules(), expected[usize::from(silent)..]);
    }
}

#[test]
fn a_change_of_stage_2_is_owed_until_the_flush_of_that_format() {
    let missing = (Kind::FlushMissing, Rule::UnmapNotFlushed);
    for format in [ept(), npt(), g_stage()] {
        let name = format.arch.name;
        for (flush, silent) in [(None, false), (Some(Flush::space(8)), false), (Some(Flush::space(7)), true)]
        {
            let format = all().into_iter().find(|f| f.arch.name == name).unwrap();
            let mut host = Host::new(format, true);
            host.stage2.lock().space_created(8);
            host.read(0).unwrap();
            host.remap(true);
            // INVVPID, INVLPGA and HFENCE.VVMA are of no use against a change of stage 2.
            host.stage1();
            flush.into_iter().for_each(|flush| host.flush(flush));
            host.stage2.lock().flushes_done(&host.ram);
            assert_eq!(host.rules(), [missing][usize::from(silent)..], "{name} {flush:?}");
        }
    }
}

#[test]
fn x86_has_no_invalidation_of_one_guest_physical_address() {
    for format in [ept(), npt()] {
        let mut host = Host::new(format, true);
        host.read(0).unwrap();
        host.stage2.flush(&host.ram, 0, Flush::page(7, GPA));
        assert_eq!(host.rules(), [(Kind::Misuse, Rule::NoSuchFlush)]);
        let report = host.stage2.lock().to_string().replace("\n  ", " ");
        assert!(report.contains("call flush with Flush::space"), "{report}");
    }
}

#[test]
fn a_part_of_stage_1_drops_what_it_names() {
    let dropped = |number: Option<u64>, va: Option<u64>| {
        let mut host = Host::new(stage2(), false);
        host.read(0).unwrap();
        host.remap(false);
        host.flush(Flush::page(7, GPA));
        host.stage2.lock().stage1_part_flushed(0, number, va);
        host.read(0).is_err()
    };
    assert!(dropped(Some(1), Some(0x5000)) && dropped(Some(1), None) && dropped(None, Some(0x5fff)));
    assert!(!dropped(Some(2), None) && !dropped(Some(1), Some(0x6000)));
}

fn with_roots(arch: Arch, cpus: usize, common_numbers: bool) -> (Sanitizer, Vec<u8>) {
    let mut san = Sanitizer::new(Config { cpus, asids: true, common_numbers, ..Config::new(arch) });
    let ram = vec![0u8; 1 << 16];
    for root in [0x1000, 0x2000] {
        san.table_allocated(&ram, root, PAGE, Some(3), Content::Zero);
    }
    (san, ram)
}

fn rules(san: &Sanitizer) -> Vec<Rule> {
    san.findings().iter().map(|f| f.rule).collect()
}

#[test]
fn a_number_belongs_to_one_root() {
    let (mut san, ram) = with_roots(Arch::aarch64_4k(48), 1, false);
    san.number_given(0x1000, 5);
    san.number_given(0x2000, 5);
    assert_eq!(rules(&san), [Rule::NumberTaken]);
    let (mut san, ram2) = with_roots(Arch::aarch64_4k(48), 1, false);
    san.number_given(0x1000, 5);
    san.number_given(0x2000, 6);
    san.switch(&ram2, 0, 0x1000, 5);
    san.switch(&ram2, 0, 0x2000, 6);
    assert_eq!(rules(&san), []);
    san.switch(&ram2, 0, 0x2000, 7);
    assert_eq!(rules(&san), [Rule::OtherNumber]);
    // A root without a number of its own takes another one's.
    let (mut san, _) = with_roots(Arch::aarch64_4k(48), 1, false);
    san.number_given(0x1000, 5);
    san.switch(&ram, 0, 0x2000, 5);
    assert_eq!(rules(&san), [Rule::OtherNumber]);
}

#[test]
fn a_number_goes_with_its_root_or_when_all_are_taken_back() {
    let (mut san, ram) = with_roots(Arch::aarch64_4k(48), 2, false);
    san.number_given(0x1000, 5);
    san.number_given(0x1000, 6); // another one
    san.number_given(0x2000, 5);
    assert_eq!(rules(&san), []);
    san.table_freed(&ram, 0x2000, PAGE);
    san.table_allocated(&ram, 0x3000, PAGE, Some(3), Content::Zero);
    san.number_given(0x3000, 5);
    assert_eq!(rules(&san), []);
    // The root that CPU 0 has loaded keeps its number.
    san.switch(&ram, 0, 0x1000, 6);
    san.numbers_taken_back();
    san.table_allocated(&ram, 0x4000, PAGE, Some(3), Content::Zero);
    san.number_given(0x4000, 5);
    assert_eq!(rules(&san), []);
    san.number_given(0x4000, 6);
    assert_eq!(rules(&san), [Rule::NumberTaken]);
}

#[test]
fn cpus_with_common_numbers_run_one_root_under_each() {
    for (common, expected) in [(true, &[Rule::NumberShared][..]), (false, &[])] {
        let (mut san, ram) = with_roots(Arch::aarch64_4k(48), 2, common);
        san.switch(&ram, 0, 0x1000, 5);
        san.switch(&ram, 1, 0x2000, 5);
        assert_eq!(rules(&san), expected);
    }
    let (mut san, ram) = with_roots(Arch::aarch64_4k(48), 2, true);
    san.switch(&ram, 0, 0x1000, 5);
    san.switch(&ram, 1, 0x1000, 5);
    assert_eq!(rules(&san), []);
}

#[test]
fn a_guest_has_not_the_number_of_the_host() {
    let (mut san, ram) = with_roots(Arch::npt(), 1, false);
    san.switch(&ram, 0, 0x1000, 0);
    assert_eq!(rules(&san), [Rule::NumberOfHost]);
    let (mut san, ram) = with_roots(Arch::ept(), 1, false);
    san.switch(&ram, 0, 0x1000, 0);
    assert_eq!(rules(&san), [], "EPT has no numbers: the root is one");
}
