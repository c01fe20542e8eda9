//! Which nodes the host has, and on which the calling thread is.
use ptarmigan::cpu::NodeId;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Nodes that a pool can tell apart.
const MOST_NODES: usize = 64;

/// The host's nodes.
#[derive(Clone)]
pub struct Topology {
    /// By node: its number on the host.
    nodes: Vec<usize>,
    here: Here,
}

#[derive(Clone)]
enum Here {
    One,
    /// The node of each CPU.
    Cpus(Arc<[u8]>),
    Told(Arc<dyn Fn() -> usize + Send + Sync>),
}

impl Topology {
    /// One node.
    pub fn one() -> Self {
        Topology { nodes: vec![0], here: Here::One }
    }

    /// The nodes that Linux shows under `/sys/devices/system/node`; one node if they make no sense.
    pub fn detect() -> Self {
        Self::read(Path::new("/sys/devices/system/node")).unwrap_or_else(|_| Self::one())
    }

    /// The files under `root`: directories `node0`, `node1`, … with a file `cpulist` in each. Nodes
    /// are numbered anew from 0; those without CPUs are left out, as no thread runs there.
    ///
    /// # Errors
    ///
    /// The error of reading; `InvalidData` if a list makes no sense or there are more than 64
    /// nodes.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut lists = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name();
            let number =
                name.to_str().and_then(|n| n.strip_prefix("node")).and_then(|n| n.parse::<usize>().ok());
            let Some(number) = number else { continue };
            let cpus = parse(std::fs::read_to_string(entry.path().join("cpulist"))?.trim())?;
            if !cpus.is_empty() {
                lists.push((number, cpus));
            }
        }
        lists.sort_unstable_by_key(|(number, _)| *number);
        if lists.len() > MOST_NODES {
            return Err(bad(format!("{} nodes with CPUs: {MOST_NODES} will do", lists.len())));
        }
        if lists.len() <= 1 {
            return Ok(Self::one());
        }
        let cpus = lists.iter().flat_map(|(_, cpus)| cpus).max().map_or(0, |last| last + 1);
        let mut node_of = vec![0; cpus];
        for (node, (_, cpus)) in lists.iter().enumerate() {
            cpus.iter().for_each(|cpu| node_of[*cpu] = node as u8);
        }
        Ok(Topology {
            nodes: lists.iter().map(|(number, _)| *number).collect(),
            here: Here::Cpus(node_of.into()),
        })
    }

    /// `nodes` nodes (1 to 64; more or fewer are cut to that), and a function that says on which
    /// the calling thread is: for tests, and for programs that know better than the host. They have
    /// the host's numbers.
    pub fn told(nodes: usize, here: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Topology { nodes: (0..nodes.clamp(1, MOST_NODES)).collect(), here: Here::Told(Arc::new(here)) }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The numbers by which the host knows its nodes.
    pub(super) fn numbers(&self) -> &[usize] {
        &self.nodes
    }

    /// The node of a CPU, as far as it is known; else 0.
    pub fn node_of(&self, cpu: usize) -> usize {
        match &self.here {
            Here::Cpus(nodes) => nodes.get(cpu).copied().unwrap_or(0).into(),
            Here::One | Here::Told(_) => 0,
        }
    }

    /// The node that the calling thread is on at the moment.
    pub(super) fn here(&self) -> NodeId {
        let node = match &self.here {
            Here::One => 0,
            Here::Cpus(_) => self.node_of(rustix::thread::sched_getcpu()),
            Here::Told(here) => here(),
        };
        NodeId(node.min(self.nodes() - 1) as u8)
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topology({} nodes)", self.nodes())
    }
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// CPUs of a list such as `0-3,8`.
fn parse(list: &str) -> io::Result<Vec<usize>> {
    // Far beyond any machine; keeps a broken list from taking memory.
    const MOST_CPUS: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in list.split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |n: &str| n.trim().parse::<usize>().ok().filter(|n| *n < MOST_CPUS);
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => cpus.extend(from..=to),
            _ => {
                return Err(bad(format!("{part:?} in the list of CPUs {list:?} is not a number or a range")));
            }
        }
    }
    Ok(cpus)
}
