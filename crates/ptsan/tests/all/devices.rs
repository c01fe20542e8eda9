//! Devices that walk tables beside the CPUs: their caches, and invalidations that are queued.
use ptsan::{Access, Adversary, Arch, Config, Content, Flush, Format, Kind, Rule, Sanitizer, Stats};

const ROOT: u64 = 0x1000;
const TABLE: u64 = 0x2000;
const PAGE: u64 = 0x9000;
const DOMAIN: u64 = 3;

struct Machine {
    ram: Vec<u8>,
    san: Sanitizer,
    device: usize,
}

impl Machine {
    /// One page, mapped for a device alone or for a CPU as well.
    fn new(cpus: usize, config: impl Fn(Config) -> Config) -> Self {
        let arch = Arch::x86_2level();
        let san = Sanitizer::new(config(Config { cpus, devices: 1, ..Config::new(arch) }));
        let device = san.device(0);
        let mut m = Self { ram: vec![0; 1 << 16], san, device };
        m.san.table_allocated(&m.ram, ROOT, 4096, Some(1), Content::Zero);
        m.san.table_allocated(&m.ram, TABLE, 4096, Some(0), Content::Zero);
        for reader in 0..=cpus {
            m.san.switch(&m.ram, reader, ROOT, DOMAIN);
        }
        m.put(ROOT, TABLE | 7);
        m.put(TABLE, PAGE | 0x67);
        m
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..4].copy_from_slice(&(raw as u32).to_le_bytes());
        self.san.entry_written(&self.ram, at);
    }

    fn flush_cpus(&mut self, flush: Flush) {
        self.san.flush_everywhere(&self.ram, flush);
    }

    fn free_page(&mut self) {
        self.san.frame_freed(&self.ram, PAGE, 4096);
    }

    fn wait(&mut self) {
        self.san.queue_completed(&self.ram, self.device);
    }

    fn found(&self) -> Vec<(Kind, Rule)> {
        self.san.findings().iter().map(|f| (f.kind, f.rule)).collect()
    }

    fn report(&self) -> String {
        self.san.report_as(Format::Text).to_string().replace("\n    ", " ").replace("\n  ", " ")
    }
}

const FREED: (Kind, Rule) = (Kind::DataFreedBeforeFlush, Rule::DataNotFlushed);

#[test]
fn a_device_holds_what_a_flush_of_all_cpus_drops() {
    let mut m = Machine::new(2, |config| config);
    m.put(TABLE, 0);
    m.flush_cpus(Flush::all());
    m.free_page();
    assert_eq!(m.found(), [FREED]);
    assert!(m.report().contains("device 0 may still translate 0x0"), "{}", m.report());
    assert!(m.san.report_as(Format::Json).to_string().contains(r#""cpu":null,"device":0"#));
    assert!(m.san.report_as(Format::Short).to_string().contains(" device 0"));
    // With its own, all is well.
    let mut m = Machine::new(2, |config| config);
    m.put(TABLE, 0);
    m.flush_cpus(Flush::all());
    m.san.flush(&m.ram, m.device, Flush::page(DOMAIN, 0));
    m.free_page();
    assert_eq!(m.found(), []);
}

#[test]
fn a_cpu_and_a_device_that_owe_are_named_together() {
    let mut m = Machine::new(2, |config| config);
    m.put(TABLE, 0);
    m.san.flush(&m.ram, 0, Flush::all());
    m.free_page();
    assert!(m.report().contains("CPU 1, device 0 may still translate"), "{}", m.report());
}

#[test]
fn an_invalidation_that_is_queued_helps_when_it_was_waited_for() {
    for (waits, silent) in [(false, false), (true, true)] {
        let mut m = Machine::new(0, |config| config);
        m.put(TABLE, 0);
        m.san.flush_queued(m.device, Flush::page(DOMAIN, 0));
        if waits {
            m.wait();
        }
        m.free_page();
        assert_eq!(m.found(), [FREED][usize::from(silent)..]);
        assert_eq!(m.report().contains("its queue was not waited for"), !silent, "{}", m.report());
    }
}

#[test]
fn an_invalidation_queued_before_the_store_is_useless() {
    let mut m = Machine::new(0, |config| config);
    m.san.flush_queued(m.device, Flush::page(DOMAIN, 0));
    m.put(TABLE, 0);
    m.wait();
    m.free_page();
    assert_eq!(m.found(), [FREED]);
    assert!(m.report().contains("was queued before the store"), "{}", m.report());
}

#[test]
fn a_table_in_the_walk_cache_of_a_device_is_not_freed() {
    for (flush, silent) in [
        (Flush::page(DOMAIN, 0), true),
        (Flush::space(DOMAIN), true),
        (Flush::space(9), false),
        // VT-d's hint IH, or AMD's PDE clear: the IOMMU keeps its links, as no CPU of x86 does.
        (Flush::page(DOMAIN, 0).leaf_only(), false),
        (Flush::range(DOMAIN, 0, 1 << 31, 4096).leaf_only(), false),
        (Flush::space(DOMAIN).leaf_only(), false),
    ] {
        let mut m = Machine::new(1, |config| config);
        m.san.translate(&m.ram, m.device, 0x123, Access::WRITE).unwrap();
        m.put(ROOT, 0);
        m.flush_cpus(Flush::all());
        m.san.space_created(9);
        m.san.flush(&m.ram, m.device, flush);
        m.san.table_freed(&m.ram, TABLE, 4096);
        assert_eq!(m.san.count(Kind::FreeBeforeFlush) == 0, silent, "{}", m.report());
        assert!(silent || m.report().contains("device 0"), "{}", m.report());
    }
}

#[test]
fn a_queued_last_level_invalidation_keeps_earlier_flushes() {
    for (first, silent) in [(Flush::space(DOMAIN), true), (Flush::space(DOMAIN).leaf_only(), false)] {
        let mut m = Machine::new(1, |config| config);
        m.san.translate(&m.ram, m.device, 0x123, Access::WRITE).unwrap();
        m.put(ROOT, 0);
        m.flush_cpus(Flush::all());
        m.san.flush_queued(m.device, first);
        m.san.flush_queued(m.device, Flush::space(DOMAIN).leaf_only());
        m.wait();
        m.san.table_freed(&m.ram, TABLE, 4096);
        assert_eq!(m.san.total() == 0, silent, "{}", m.report());
    }
}

#[test]
fn an_iotlb_keeps_a_domain_while_another_one_is_attached() {
    // CPUs have no numbers here, so that a load of a root drops their entries. A device has.
    for (flushes, silent) in [(false, false), (true, true)] {
        let mut m = Machine::new(0, |config| config);
        m.san.translate(&m.ram, m.device, 0x123, Access::READ).unwrap();
        m.san.table_allocated(&m.ram, 0x4000, 4096, Some(1), Content::Zero);
        m.san.switch(&m.ram, m.device, 0x4000, DOMAIN + 1);
        m.put(TABLE, 0);
        if flushes {
            m.san.flush(&m.ram, m.device, Flush::space(DOMAIN));
        }
        m.san.switch(&m.ram, m.device, ROOT, DOMAIN);
        let _ = m.san.translate(&m.ram, m.device, 0x123, Access::READ);
        assert_eq!(m.san.total() == 0, silent, "{}", m.report());
    }
}

#[test]
fn a_global_page_is_one_of_the_domain_for_a_device() {
    let mut m = Machine::new(1, |config| config);
    m.put(TABLE + 4, 0xa000 | 0x163);
    m.san.translate(&m.ram, m.device, 0x1000, Access::READ.kernel()).unwrap();
    m.put(TABLE + 4, 0);
    m.flush_cpus(Flush::all());
    m.san.flush(&m.ram, m.device, Flush::space(DOMAIN));
    m.san.frame_freed(&m.ram, 0xa000, 4096);
    assert_eq!(m.found(), []);
    let mut m = Machine::new(1, |config| config);
    m.put(TABLE + 4, 0xa000 | 0x163);
    m.put(TABLE + 4, 0);
    m.flush_cpus(Flush::all());
    m.san.frame_freed(&m.ram, 0xa000, 4096);
    assert_eq!(m.found(), [FREED]);
}

#[test]
fn a_plain_store_loses_a_dirty_bit_that_a_device_sets() {
    for cpus in [0, 1] {
        let mut m = Machine::new(cpus, |config| Config { accessed_dirty: true, ..config });
        if cpus > 0 {
            m.san.running_on(0);
        }
        m.put(TABLE + 4, 0xa000 | 0x27); // writable, accessed, clean
        m.put(TABLE + 4, 0xa000 | 0x25);
        assert_eq!(m.found(), [(Kind::BitLost, Rule::DirtyLost)], "{cpus}: {}", m.report());
        assert!(m.report().contains("device 0 may write the page"), "{}", m.report());
    }
}

#[test]
fn the_adversary_walks_for_devices_too() {
    let mut found = 0;
    for seed in 0..50 {
        let adversary = Some(Adversary { rate: 3000, seed });
        let mut m = Machine::new(0, |config| Config { adversary, ..config });
        // Not told: only a walk of the device can have cached the page.
        m.ram[TABLE as usize..][..4].fill(0);
        m.free_page();
        found += m.san.total();
        let Stats { adversary_steps, .. } = m.san.stats();
        assert!(adversary_steps > 0);
    }
    assert!(found > 10, "{found}");
}

#[test]
fn hooks_of_devices_refuse_cpus_and_numbers_that_are_none() {
    let mut m = Machine::new(2, |config| config);
    m.san.flush_queued(1, Flush::all());
    m.san.queue_completed(&m.ram, 1);
    m.san.flush_queued(m.san.device(1), Flush::all());
    m.san.flush_queued(m.san.device(usize::MAX), Flush::all());
    let rules: Vec<_> = m.found().into_iter().map(|(_, rule)| rule).collect();
    assert_eq!(rules[..2], [Rule::BadArgument; 2], "{}", m.report());
    assert!(rules[2..].iter().all(|rule| *rule == Rule::NoSuchCpu) && rules.len() == 4, "{}", m.report());
}
