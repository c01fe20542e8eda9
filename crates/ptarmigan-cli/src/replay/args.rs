//! What `ptarmigan replay` is asked for.
use super::policy::PolicyName;
use ptarmigan::tlb::TlbConfig;
use std::path::PathBuf;

/// Replay recorded programs on the library.
#[derive(clap::Args, Debug, Default)]
pub struct ReplayArgs {
    /// Traces; without any, the shipped compile.
    pub(super) traces: Vec<PathBuf>,
    /// Policies: plain, v5, v2008, ptarmigan.
    #[arg(long, value_delimiter = ',', value_name = "POLICY,...", default_values = ["plain", "v5", "ptarmigan"])]
    pub(super) policy: Vec<PolicyName>,
    /// NUMA nodes; recorded CPU c is on node c * nodes / cpus.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) nodes: usize,
    /// Memory of the machine: bytes, or with K, M, G or T behind the number.
    #[arg(long, default_value = "4G", value_parser = parse_size, value_name = "SIZE")]
    pub(super) memory: u64,
    /// Run under the sanitizer, too; a finding fails the run, except for historic policies.
    #[arg(long)]
    pub(super) sanitize: bool,
    /// Give data frames memory: clear and copy them for real.
    #[arg(long)]
    pub(super) touch_data: bool,
    /// Say all that the policy has counted, too: memory as /proc/meminfo does, and tables by node, CPU and level.
    #[arg(long)]
    pub(super) counters: bool,
    /// Cache lines of each fresh page that its program writes to at once. The store that faults is one.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "touch_data",
          value_parser = clap::value_parser!(u8).range(0..=64))]
    pub(super) use_lines: u8,
    /// Frames that a CPU clears ahead each time it has nothing to do; the time it takes is shown apart.
    #[arg(long, value_name = "FRAMES", default_value_t = 0)]
    pub(super) idle_zero: u32,
    /// Go on when memory runs out, leaving out what could not be done.
    #[arg(long)]
    pub(super) keep_going: bool,
    /// Lists of the historic policies, 1 to 3; with several numbers each is a policy of its own.
    #[arg(long, alias = "v5-lists", value_delimiter = ',', default_values_t = [2], value_name = "N,...",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(super) historic_lists: Vec<u8>,
    /// Seed for the sanitizer's pass: CPUs walk the tables of their own accord, at any instant, and requests between
    /// CPUs come late, one by one and in any order.
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Sanitizer's passes, each with the next seed.
    #[arg(long, value_name = "K", default_value_t = 1, requires = "seed",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) seeds: u32,
    #[command(flatten)]
    pub(super) tags: Tags,
    #[command(flatten)]
    pub(super) spread: Spread,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What the TLBs of the machine are like.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Tags {
    /// Numbers (ASIDs, PCIDs) by which each CPU's TLB keeps spaces apart; 0: every switch drops everything.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(super) asids: u16,
    /// Frames that each CPU leaves parked until lazy CPUs let go of a space; 0: these are interrupted at once.
    #[arg(long, default_value_t = 0, value_name = "FRAMES")]
    pub(super) park: u32,
}

impl Tags {
    pub(super) fn config(self, cpus: usize) -> TlbConfig {
        TlbConfig { asids: self.asids, park: self.park, ..TlbConfig::new(cpus) }
    }
}

/// On how many CPUs, and how many times at once.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Spread {
    /// Logical CPUs, each with a worker of its own, 1 to 256. Fewer than recorded: recorded CPU c becomes c modulo N;
    /// more: the tasks of a recorded CPU are spread over its share. Without it: the recorded CPUs and one worker.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) cpus: Option<u16>,
    /// Independent copies of the trace at once on one machine, each with tasks, spaces and CPUs of its own.
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) copies: u16,
}

impl Default for Spread {
    fn default() -> Self {
        Spread { cpus: None, copies: 1 }
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim().to_ascii_uppercase() {
        t if t.ends_with('K') => (t, 10),
        t if t.ends_with('M') => (t, 20),
        t if t.ends_with('G') => (t, 30),
        t if t.ends_with('T') => (t, 40),
        t => (t, 0),
    };
    let number = digits.trim_end_matches(['K', 'M', 'G', 'T']);
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| "a number of bytes, such as 4194304, 512M or 4G, is expected".to_owned())
}
