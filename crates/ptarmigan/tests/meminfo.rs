//! Memory in tables and lists as `/proc/meminfo` shows it: the format, and whether the figures are
//! right.
mod common;
mod physical;
use common::{At, small};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Format, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{ListsConfig, Policy};
use ptarmigan_hosted::{CpuSlot, Host};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

const PTE: Level = Level(0);
const PMD: Level = Level(1);

/// The system's allocator, counting the thread's requests.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// kB by node (`None`: the whole) and name, of lines as a tool that reads Linux's would take them
/// apart.
type Lines = BTreeMap<(Option<u8>, String), u64>;

fn parse(text: &str) -> Lines {
    let mut lines = Lines::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().peekable();
        let node = words.next_if_eq(&"Node").map(|_| {
            let number = words.next().expect("the node's number follows");
            number.parse().expect("a number")
        });
        let name = words.next().and_then(|name| name.strip_suffix(':')).expect("a name and a colon");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{line:?}");
        let kb = words.next().expect("a number").parse().expect("a number");
        assert_eq!((words.next(), words.next()), (Some("kB"), None), "{line:?}");
        let known = lines.insert((node, name.to_owned()), kb);
        assert_eq!(known, None, "{line:?} comes twice");
    }
    assert!(text.ends_with('\n'));
    lines
}

fn whole(lines: &Lines, name: &str) -> u64 {
    lines[&(None, name.to_owned())]
}

/// The sum over the nodes.
fn nodes(lines: &Lines, name: &str) -> u64 {
    lines.iter().filter(|((node, n), _)| node.is_some() && n == name).map(|(_, kb)| kb).sum()
}

fn alloc(policy: &impl Policy, cpu: &CpuSlot, level: Level, n: usize) -> Vec<Clean> {
    (0..n).map(|_| policy.at(&cpu.pin()).alloc(level, AllocFlags::NORMAL).expect("there is memory")).collect()
}

fn give(policy: &impl Policy, cpu: &CpuSlot, pages: impl IntoIterator<Item = Clean>) {
    pages.into_iter().for_each(|page| policy.at(&cpu.pin()).free_unlinked(page));
}

fn lists(magazine: usize) -> ListsConfig {
    ListsConfig { magazine, budget_divisor: 4, ..ListsConfig::new(2) }
}

#[test]
fn lines_are_those_of_linux_with_names_that_stay() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).expect("host");
    let policy = host.quicklists_with(lists(8)).expect("lists");
    let text = policy.meminfo().to_string();
    parse(&text);
    let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let of_node = ["LowTotal", "LowFree", "TableMemory", "Quicklists", "QuicklistsMax"];
    let expected: Vec<String> = [
        "MemTotal",
        "MemFree",
        "MemZero",
        "LowTotal",
        "LowFree",
        "TableMemory",
        "PageTables",
        "Quicklists",
        "QuicklistsCpu",
        "QuicklistsMax",
    ]
    .map(String::from)
    .into_iter()
    .chain((0..2).flat_map(|node| of_node.map(|name| format!("Node {node} {name}"))))
    .collect();
    assert_eq!(names, expected);
    // In columns, as Linux has them.
    assert!(text.starts_with("MemTotal:          16380 kB\n"), "{text}");
    assert!(text.contains("\nNode 0 LowTotal:           8188 kB\n"), "{text}");
}

#[test]
fn kilobytes_are_those_of_pages_taken_and_given_back() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).expect("host");
    let policy = host.quicklists_with(lists(8)).expect("lists");
    let cpus = host.slots();
    let top = X86_64::LAYOUT.root();
    let before = parse(&policy.meminfo().to_string());
    for name in ["MemZero", "TableMemory", "PageTables", "Quicklists", "QuicklistsCpu"] {
        assert_eq!(whole(&before, name), 0, "{name}");
    }
    let mut ptes = alloc(&policy, &cpus[0], PTE, 40);
    let pmds = alloc(&policy, &cpus[1], PMD, 8);
    let mut roots = alloc(&policy, &cpus[1], top, 3);
    let taken = parse(&policy.meminfo().to_string());
    assert_eq!(whole(&taken, "PageTables"), 51 * 4);
    assert_eq!(whole(&taken, "Quicklists"), 0, "as many as came in groups of four");
    give(&policy, &cpus[0], ptes.drain(..30));
    give(&policy, &cpus[1], roots.drain(..2));
    let given = parse(&policy.meminfo().to_string());
    let node = policy.node_counts(NodeId(0));
    assert!(node.depot_zero > 0, "30 are more than a CPU keeps");
    assert_eq!(whole(&given, "PageTables"), 19 * 4);
    assert_eq!(whole(&given, "Quicklists"), 32 * 4);
    assert_eq!(whole(&given, "TableMemory"), 51 * 4);
    assert_eq!(nodes(&given, "Quicklists"), u64::from(node.depot_zero + node.depot_roots) * 4);
    assert_eq!(whole(&given, "QuicklistsMax"), u64::from(policy.budget(NodeId(0))) * 4);
    for (name, less) in [("MemFree", 51 * 4), ("LowFree", 51 * 4), ("MemTotal", 0), ("LowTotal", 0)] {
        assert_eq!(whole(&before, name) - whole(&given, name), less, "{name}");
    }
    give(&policy, &cpus[0], ptes);
    give(&policy, &cpus[0], pmds);
    give(&policy, &cpus[0], roots);
    cpus.iter().for_each(|cpu| policy.at(&cpu.pin()).drain());
    policy.at(&cpus[0].pin()).reclaim(NodeId(0), u32::MAX);
    let after = parse(&policy.meminfo().to_string());
    assert_eq!(whole(&after, "MemZero"), 51 * 4, "they went back as known to be zero");
    assert_eq!((whole(&after, "TableMemory"), whole(&after, "QuicklistsCpu")), (0, 0));
    host.audit().expect("every frame is back");
}

#[test]
fn nodes_add_up_to_the_whole() {
    let host = Host::<X86_64>::new(small(4, 2, 16)).expect("host");
    let policy = host.quicklists_with(ListsConfig { magazine: 8, budget_divisor: 4, ..ListsConfig::new(4) });
    let policy = policy.expect("lists");
    let cpus = host.slots();
    let top = X86_64::LAYOUT.root();
    let mut out: Vec<Vec<Clean>> = cpus.iter().map(|cpu| alloc(&policy, cpu, PTE, 37)).collect();
    let roots: Vec<Vec<Clean>> = cpus.iter().map(|cpu| alloc(&policy, cpu, top, 5)).collect();
    // Some at home, some to another node, from where they go home.
    for (cpu, pages) in cpus.iter().zip(&mut out) {
        give(&policy, cpu, pages.drain(..20));
    }
    for (cpu, pages) in cpus.iter().rev().zip(roots) {
        give(&policy, cpu, pages);
    }
    let lines = parse(&policy.meminfo().to_string());
    assert!((0..2).all(|node| policy.node_counts(NodeId(node)).remote_returns_roots > 0));
    for name in ["LowTotal", "LowFree", "TableMemory", "QuicklistsMax"] {
        assert_eq!(nodes(&lines, name), whole(&lines, name), "{name}");
    }
    assert_eq!(whole(&lines, "QuicklistsCpu") + nodes(&lines, "Quicklists"), whole(&lines, "Quicklists"));
    assert_eq!(whole(&lines, "PageTables") + whole(&lines, "Quicklists"), whole(&lines, "TableMemory"));
    assert_eq!(whole(&lines, "PageTables"), 4 * 17 * 4);
    assert!(whole(&lines, "QuicklistsCpu") > 0 && nodes(&lines, "Quicklists") > 0);
    for (cpu, pages) in cpus.iter().zip(out) {
        give(&policy, cpu, pages);
        policy.at(&cpu.pin()).drain();
    }
    for node in [NodeId(0), NodeId(1)] {
        policy.at(&cpus[0].pin()).reclaim(node, u32::MAX);
    }
    host.audit().expect("every frame is back");
}

#[test]
fn tops_that_are_no_frames_count_by_their_size() {
    let host = Host::<X86Pae>::new(small(1, 1, 16)).expect("host");
    let policy = host.quicklists_with(lists(8)).expect("lists");
    let cpus = host.slots();
    let top = X86Pae::LAYOUT.root();
    assert_eq!(X86Pae::LAYOUT.table_bytes(top), 32);
    let ptes = alloc(&policy, &cpus[0], PTE, 4);
    let mut roots = alloc(&policy, &cpus[0], top, 7);
    give(&policy, &cpus[0], roots.drain(..3));
    let memory = policy.memory();
    assert_eq!((memory.page_tables, memory.quicklists), (4 * 4096 + 4 * 32, 3 * 32));
    assert_eq!((memory.tables, memory.at_hand), (4 * 4096 + 7 * 32, 3 * 32));
    assert_eq!(policy.node_memory(NodeId(0)).tables, memory.tables);
    let lines = parse(&policy.meminfo().to_string());
    assert_eq!((whole(&lines, "PageTables"), whole(&lines, "Quicklists")), (17, 1), "rounded up");
    give(&policy, &cpus[0], ptes);
    give(&policy, &cpus[0], roots);
    policy.at(&cpus[0].pin()).drain();
    policy.at(&cpus[0].pin()).reclaim(NodeId(0), u32::MAX);
    host.audit().expect("every frame is back");
}

/// Text of at most so many bytes.
struct Page {
    bytes: [u8; 4096],
    n: usize,
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.n + text.len();
        self.bytes.get_mut(self.n..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.n = end;
        Ok(())
    }
}

#[test]
fn writing_it_allocates_nothing() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).expect("host");
    let policy = host.quicklists_with(lists(8)).expect("lists");
    let mut page = Page { bytes: [0; 4096], n: 0 };
    let before = ASKED.get();
    write!(page, "{}", policy.meminfo()).expect("it fits a page");
    assert_eq!(ASKED.get(), before);
    assert_eq!(parse(std::str::from_utf8(&page.bytes[..page.n]).expect("text")).len(), 20);
}
