//! The options of `ptarmigan replay`.
use super::arch::MachineName;
use super::high::HighArgs;
use super::memory;
use super::policy::{Choice, PolicyName, parse_trim};
use crate::baseline::BaselineArgs;
use crate::model;
use ptarmigan::params::Params;
use ptarmigan::quicklist::ListsConfig;
use ptarmigan::space::EmptyTables;
use ptarmigan::tlb::{CostModel, TlbConfig};
use ptarmigan_linux::Trim;
use ptarmigan_term::Failure;
use ptsan::HashLayout;
use std::path::PathBuf;

/// Options of replays on policies, which `--tables` does not take.
const OF_POLICIES: [&str; 24] = [
    "policy",
    "historic_lists",
    "historic_trim",
    "nodes",
    "arch",
    "hash_size",
    "hash_layout",
    "sanitize",
    "seed",
    "seeds",
    "touch_data",
    "idle_zero",
    "counters",
    "keep_going",
    "params",
    "model",
    "low",
    "kmap",
    "asids",
    "park",
    "cpus",
    "copies",
    "save",
    "compare",
];

/// Replay recorded programs on the library, policy against policy.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ReplayArgs {
    /// Traces to replay: files, names of shipped recordings (linux-build, compile,
    /// configure, rustc, fixture), or - for standard input [default: linux-build].
    pub(super) traces: Vec<PathBuf>,
    /// Allocation policies to compare.
    #[arg(help_heading = "Policies", long, value_delimiter = ',', value_name = "POLICY,...", default_values = ["plain", "v5", "ptarmigan"])]
    pub(super) policy: Vec<PolicyName>,
    /// NUMA nodes. Recorded CPU c is on node c * nodes / cpus.
    #[arg(help_heading = "Machine", long, default_value_t = 1, value_name = "N")]
    pub(super) nodes: usize,
    /// Memory of the machine, 1M to 8T: bytes, or a number with the suffix K, M, G or T. Frame
    /// records take 1/256 of it on the host.
    #[arg(help_heading = "Machine", long, default_value = "4G", value_parser = memory::parse, value_name = "SIZE")]
    pub(super) memory: u64,
    /// The machine: its tables, and how its CPUs find pages. Where addresses have fewer bits than
    /// the recorded ones, areas are packed, page for page. Where pages are larger, areas are
    /// rounded to them. Most machines need a build with the feature "formats".
    #[arg(help_heading = "Machine", long, value_enum, default_value = "x86-64", value_name = "MACHINE")]
    pub(super) arch: MachineName,
    #[command(flatten)]
    pub(super) hash: HashArgs,
    /// Also run under the sanitizer. A finding fails the run, except for historic policies.
    #[arg(help_heading = "Sanitizer", long)]
    pub(super) sanitize: bool,
    /// Back data frames with memory, and clear and copy them for real.
    #[arg(help_heading = "Data frames", long)]
    pub(super) touch_data: bool,
    /// Also print all counters of the policy: memory as in /proc/meminfo, and tables by node, CPU
    /// and level.
    #[arg(help_heading = "Output", long)]
    pub(super) counters: bool,
    /// Cache lines that a program writes in each fresh page, the faulting store included.
    #[arg(help_heading = "Data frames", long, value_name = "N", default_value_t = 1, requires = "touch_data",
          value_parser = clap::value_parser!(u8).range(0..=64))]
    pub(super) use_lines: u8,
    /// Map large pages where the recorded Linux had huge ones: in all private anonymous memory, or
    /// where programs asked for them. Where it had none (transparent_hugepage=never) only advice of
    /// programs counts, as with madvise.
    #[arg(help_heading = "Data frames", long)]
    pub(super) large_pages: bool,
    /// Empty tables that are given back before their space ends.
    #[arg(help_heading = "Machine", long, value_enum, default_value = "covered", value_name = "WHICH")]
    pub(super) empty_tables: EmptyTablesName,
    /// Frames that a CPU clears ahead of need each time it is idle. Their time is reported
    /// separately.
    #[arg(help_heading = "Data frames", long, value_name = "FRAMES", default_value_t = 0)]
    pub(super) idle_zero: u32,
    /// Continue when memory runs out, and skip the events that cannot be replayed.
    #[arg(help_heading = "Output", long)]
    pub(super) keep_going: bool,
    /// Lists of v5 and v2008, 1 to 3. Each number given makes a policy of its own [default: as the
    /// architecture has it in the patch, 2 on x86 and 1 elsewhere].
    #[arg(help_heading = "Policies", long, alias = "v5-lists", value_delimiter = ',', value_name = "N,...",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(super) historic_lists: Vec<u8>,
    /// Parameters of the trim of v5 and v2008: lists of up to MIN pages are left alone, and one
    /// trim frees at most MAX pages of a list [default: 25,16].
    #[arg(help_heading = "Policies", long, value_name = "MIN,MAX", value_parser = parse_trim)]
    pub(super) historic_trim: Option<Trim>,
    /// Seed for the sanitizer's pass: CPUs walk the tables speculatively at any time, and flush
    /// requests between CPUs arrive late and in any order.
    #[arg(help_heading = "Sanitizer", long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Number of sanitizer passes, each with the next seed.
    #[arg(help_heading = "Sanitizer", long, value_name = "K", default_value_t = 1, requires = "seed",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) seeds: u32,
    /// Boot parameters of the machine, e.g. "quicklist=on,magazine=16 tlb.model=always-full".
    /// quicklist (of policy ptarmigan): off, or on with magazine=1 to 64 pages. tlb.model: linux
    /// with ceiling=N pages, always-page, or always-full. userpte (of i386 and i386-pae): nohigh,
    /// high, or auto with beta, reserve, margin and share in percent of low memory. kmap.flush (of
    /// --kmap pool): how sweeps flush, auto, page, run, window or full.
    #[arg(help_heading = "Machine", long, value_name = "PARAMS", value_parser = parse_params)]
    pub(super) params: Option<Params>,
    /// Cost model by which TLBs are flushed: linux-33, power3-2001, always-full, always-page, or a
    /// file as `ptarmigan docs cost-models` says [default: linux-33; power3-2001 on ppc32].
    #[arg(help_heading = "Machine", long, value_name = "NAME|FILE")]
    pub(super) model: Option<String>,
    /// The contents of `model`, once it is loaded.
    #[arg(skip)]
    pub(super) costs: Option<CostModel>,
    /// Print the tables that the trace makes and frees on x86-64, one line an event, instead of
    /// replaying on policies. A program of yours can try a policy on them.
    #[arg(help_heading = "Output", long, value_enum, value_name = "FORMAT", conflicts_with = "json", conflicts_with_all = OF_POLICIES)]
    pub(super) tables: Option<TableFormat>,
    #[command(flatten)]
    pub(super) high: HighArgs,
    #[command(flatten)]
    pub(super) tags: Tags,
    #[command(flatten)]
    pub(super) spread: Spread,
    /// Where figures are kept, and what they are compared with.
    #[command(flatten)]
    pub baseline: BaselineArgs,
    /// Print JSON.
    #[arg(help_heading = "Output", long)]
    pub(super) json: bool,
}

impl ReplayArgs {
    /// Returns the shape of TLBs for `cpus` CPUs.
    pub(super) fn tlb(&self, cpus: usize) -> TlbConfig {
        let Tags { asids, park } = self.tags;
        let config = TlbConfig { asids, park, ..TlbConfig::new(cpus) };
        let config = config.with_params(&self.params.unwrap_or_default());
        TlbConfig { costs: self.costs.unwrap_or(config.costs), ..config }
    }

    /// Loads the cost model.
    ///
    /// # Errors
    /// If it cannot be used, or `--params` names another one.
    pub(super) fn with_costs(&self) -> Result<Self, Failure> {
        let mut args = self.clone();
        if self.arch != MachineName::Ppc32
            && (self.hash.hash_size.is_some() || self.hash.hash_layout.is_some())
        {
            return Err(Failure::new("--hash-size and --hash-layout are for --arch ppc32"));
        }
        if !self.is_small_x86() && self.params.is_some_and(|params| params.userpte.is_some()) {
            return Err(Failure::new("userpte= in --params is for --arch i386 and i386-pae"));
        }
        let has_pool = self.high.has_pool(self.is_small_x86());
        if !has_pool && self.params.is_some_and(|params| params.kmap.is_some()) {
            return Err(Failure::new(
                "kmap.flush= in --params is for pools: give --low SIZE and --kmap pool",
            ));
        }
        let flush = self.params.and_then(|params| params.flush);
        if self.arch == MachineName::Ppc32 && self.model.is_none() && flush.is_none() {
            args.model = Some("power3-2001".to_owned());
        }
        if let Some(name) = args.model.clone() {
            if self.params.is_some_and(|params| params.flush.is_some()) {
                return Err(Failure::new("--model and tlb.model= in --params: give one of both"));
            }
            args.costs = Some(model::load(&name).map_err(|e| Failure::new(e.to_string()))?.rule);
        }
        Ok(args)
    }

    /// Returns the policies to replay on.
    pub(super) fn policies(&self) -> Vec<Choice> {
        let of_arch = [if self.arch.is_x86() { 2 } else { 1 }];
        let lists = if self.historic_lists.is_empty() { &of_arch[..] } else { &self.historic_lists };
        Choice::all(&self.policy, lists, self.historic_trim.unwrap_or(Trim::ARCHES))
    }

    /// Returns whether the machine is a 32-bit x86.
    fn is_small_x86(&self) -> bool {
        matches!(self.arch, MachineName::I386 | MachineName::I386Pae)
    }

    /// Returns the default low memory of such a machine.
    pub(super) fn usual_low(&self) -> Option<u64> {
        self.is_small_x86().then_some(768 << 20)
    }

    /// Returns the sizes of the library's lists for `cpus` CPUs.
    pub(super) fn lists(&self, cpus: usize) -> ListsConfig {
        ListsConfig::new(cpus).with_params(&self.params.unwrap_or_default())
    }
}

/// A form of the events of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TableFormat {
    /// Columns event, task, cpu, level (0: leaf tables), call (alloc or free), page (its number)
    Csv,
}

fn parse_params(text: &str) -> Result<Params, String> {
    Params::parse(text).map_err(|e| e.to_string())
}

/// The hash table of the machine.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct HashArgs {
    /// Size of the hash table of ppc32: a power of two of bytes, or a number with the suffix K or
    /// M, at least 64K (256K for power3) [default: 1/512 of the memory, 1/256 for power3].
    #[arg(help_heading = "Hash table", long, value_name = "SIZE", value_parser = memory::parse_bytes)]
    pub(super) hash_size: Option<u64>,
    /// Layout of the hash table of ppc32: entries of 8 bytes in groups of 64, or of 16 in groups of
    /// 128 [default: 604].
    #[arg(help_heading = "Hash table", long, value_enum, value_name = "LAYOUT")]
    pub(super) hash_layout: Option<HashLayoutName>,
}

/// The empty tables that are given back, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EmptyTablesName {
    /// Those in whose span munmap or mremap leaves no area, as in Linux up to 6.13
    Kept,
    /// Also leaf tables whose whole span one MADV_DONTNEED covers, as in Linux 6.14 and later
    #[default]
    Covered,
    /// Each table that a call leaves empty
    Freed,
}

impl From<EmptyTablesName> for EmptyTables {
    fn from(name: EmptyTablesName) -> Self {
        match name {
            EmptyTablesName::Kept => EmptyTables::Kept,
            EmptyTablesName::Covered => EmptyTables::Covered,
            EmptyTablesName::Freed => EmptyTables::Freed,
        }
    }
}

/// A layout by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum HashLayoutName {
    /// Entries of 8 bytes
    #[value(name = "604")]
    Bits32,
    /// Entries of 16 bytes
    #[value(name = "power3")]
    Bits64,
}

impl HashArgs {
    /// Returns the layout.
    pub(super) fn layout(self) -> HashLayout {
        match self.hash_layout {
            Some(HashLayoutName::Bits64) => HashLayout::Bits64,
            Some(HashLayoutName::Bits32) | None => HashLayout::Bits32,
        }
    }
}

/// The TLBs of the machine.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Tags {
    /// Address-space identifiers (ASIDs, PCIDs) in each CPU's TLB. With 0, every switch flushes the
    /// TLB.
    #[arg(help_heading = "TLBs", long, default_value_t = 0, value_name = "N")]
    pub(super) asids: u16,
    /// Frames that each CPU keeps parked until lazy CPUs leave their space. With 0, lazy CPUs are
    /// interrupted at once.
    #[arg(help_heading = "TLBs", long, default_value_t = 0, value_name = "FRAMES")]
    pub(super) park: u32,
}

/// The number of CPUs and of copies.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Spread {
    /// Logical CPUs, 1 to 256, each with its own worker. With fewer than recorded, recorded CPU c
    /// becomes c modulo N. With more, the tasks of a recorded CPU are spread over several. Without
    /// this option: the recorded CPUs and one worker.
    #[arg(help_heading = "CPUs", long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) cpus: Option<u16>,
    /// Independent copies of the trace that run at once on one machine, each with its own tasks,
    /// spaces and CPUs.
    #[arg(help_heading = "CPUs", long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) copies: u16,
}

impl Default for Spread {
    fn default() -> Self {
        Spread { cpus: None, copies: 1 }
    }
}
