//! Programs of random calls: made from a seed, written as text, printed as C.
use std::fmt::{self, Write};
use std::str::FromStr;

/// First address of the memory that programs work in.
pub const ARENA: u64 = 0x10_0000_0000;
/// Pages of it.
pub const ARENA_PAGES: u64 = 40 * 512;
/// Files that programs map, by number: a memfd, a larger one, one that is empty at its end.
pub const FILES: u64 = 3;
/// Pages of each file.
pub const FILE_PAGES: [u64; FILES as usize] = [8192, 16384, 700];

/// A call, by name and arguments. The names are Linux's, but for:
///
/// - `read`, `write`: accesses of the program to the first byte of each page;
/// - `kread`, `kwrite`: the same by the kernel, one page;
/// - `limit`: the limit of the stack, in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name.
    pub name: &'static str,
    /// The arguments.
    pub args: Vec<u64>,
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call.
    Call(Call),
    /// A child that takes these steps and exits; its parent waits.
    Fork(Vec<Step>),
    /// A thread that takes these steps and ends; the others wait.
    Thread(Vec<Step>),
    /// Threads that take these steps at once, each on its own part of the arena. Steps that are no
    /// threads are not taken.
    Crowd(Vec<Step>),
}

/// The calls: name, number of arguments.
const CALLS: [(&str, usize); 19] = [
    ("mmap", 6),
    ("munmap", 2),
    ("mprotect", 3),
    ("madvise", 3),
    ("mlock", 2),
    ("mlock2", 3),
    ("munlock", 2),
    ("mlockall", 1),
    ("munlockall", 0),
    ("mremap", 5),
    ("brk", 1),
    ("shmat", 2),
    ("shmdt", 1),
    ("remap_file_pages", 3),
    ("read", 3),
    ("write", 3),
    ("kread", 1),
    ("kwrite", 1),
    ("limit", 1),
];

/// The permissions of programs beyond calls.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Whether they fork.
    pub forks: bool,
    /// Whether they start threads.
    pub threads: bool,
}

/// A source of random programs (SplitMix64).
pub struct Random {
    state: u64,
    /// The part of the arena that calls are on: first table and number of tables. Calls on the
    /// whole may reach beyond its end.
    part: (u64, u64),
}

/// Tables of the arena.
const TABLES: u64 = ARENA_PAGES / 512;

impl Random {
    /// Of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, part: (0, TABLES) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// An address in the arena: mostly near the ends of tables.
    fn address(&mut self) -> u64 {
        let near = self.pick(&[0, 0, 0, 1, 2, 511, 510, 256]);
        let (first, tables) = self.part;
        let table = first + self.below(tables);
        let page = table * 512 + if self.below(3) == 0 { self.below(512) } else { near };
        ARENA + page * 4096
    }

    /// Returns a length that ends in the part of the arena at the latest.
    fn within(&self, at: u64, len: u64) -> u64 {
        let (first, tables) = self.part;
        let end = ARENA + (first + tables) * 512 * 4096;
        if tables == TABLES { len } else { len.min(end - at) }
    }

    /// A length in bytes: a few pages, a table's worth, or more.
    fn length(&mut self) -> u64 {
        let pages = match self.below(8) {
            0..=2 => 1 + self.below(8),
            3 | 4 => self.pick(&[511, 512, 513, 1024, 2048]),
            5 => 1 + self.below(600),
            _ => self.pick(&[512, 1536, 4096, 2560]) + self.below(3),
        };
        pages * 4096
    }

    fn call(&mut self) -> Call {
        let at = self.address();
        let len = self.length();
        let len = self.within(at, len);
        let (name, args) = match self.below(100) {
            0..=17 => ("mmap", self.mmap(at, len)),
            18..=23 => ("munmap", vec![at, len]),
            24..=31 => ("mprotect", vec![at, len, self.pick(&[0, 1, 3, 3, 3, 5])]),
            32..=41 => {
                let advice = [
                    4, 4, 4, 4, 8, 0, 1, 2, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
                    102, 103,
                ];
                ("madvise", vec![at, len, self.pick(&advice)])
            }
            42 | 43 => ("mlock", vec![at, len.min(1024 << 12)]),
            44 => ("mlock2", vec![at, len.min(1024 << 12), self.below(2)]),
            45 => ("munlock", vec![at, len]),
            46 if self.below(3) == 0 => ("mlockall", vec![self.pick(&[1, 2, 3, 5, 6, 7])]),
            46 | 47 => ("munlockall", vec![]),
            48..=55 => ("mremap", self.mremap(at, len)),
            56 | 57 => ("brk", vec![self.below(1100) << 12]),
            58 => ("shmat", vec![at, self.below(2)]),
            59 => ("shmdt", vec![at]),
            60 if self.below(4) == 0 => ("remap_file_pages", vec![at, len, self.below(64)]),
            60 => ("limit", vec![self.pick(&[256, 2048, 4096, 16384])]),
            61..=64 => ("kread", vec![at]),
            65..=69 => ("kwrite", vec![at]),
            70..=79 => ("read", vec![at, 1 + self.below(40), self.pick(&[1, 1, 7, 512])]),
            _ => ("write", vec![at, 1 + self.below(40), self.pick(&[1, 1, 7, 512])]),
        };
        Call { name, args }
    }

    fn mmap(&mut self, at: u64, len: u64) -> Vec<u64> {
        const FIXED: u64 = 0x10;
        const ANON: u64 = 0x20;
        let prot = self.pick(&[0, 1, 3, 3, 3, 3, 7]);
        let mut flags = FIXED | self.pick(&[1, 2, 2, 2]);
        let (mut file, mut offset) = (u64::MAX, 0);
        if self.below(4) == 0 {
            // Pages beyond the end of a file are a case of their own.
            file = if self.below(12) == 0 { 2 } else { self.below(2) };
            offset = self.pick(&[0, 0, 512, 600]) << 12;
        } else {
            flags |= ANON;
        }
        for (odds, flag) in [(12, 0x8000), (20, 0x2000), (8, 0x4000), (10, 0x20000)] {
            if self.below(odds) == 0 && (flag & 0xa000 == 0 || len <= 2048 << 12) {
                flags |= flag;
            }
        }
        if flags & (ANON | 2) == ANON | 2 && self.below(12) == 0 {
            flags |= 0x100;
        }
        vec![at, len, prot, flags, file, offset]
    }

    fn mremap(&mut self, at: u64, len: u64) -> Vec<u64> {
        const MAYMOVE: u64 = 1;
        const FIXED: u64 = 2;
        const DONTUNMAP: u64 = 4;
        let to = self.address();
        let mut args = match self.below(8) {
            0 => vec![at, len, self.length(), 0, 0],
            1 => vec![at, 0, self.length(), MAYMOVE | FIXED, to],
            2 => vec![at, len, len, MAYMOVE | FIXED | DONTUNMAP, to],
            3 | 4 => vec![at, len, len, MAYMOVE | FIXED, to],
            _ => vec![at, len, self.length(), MAYMOVE | FIXED, to],
        };
        let room = if args[4] == 0 { at } else { to };
        args[2] = self.within(room, args[2]);
        if args[3] & DONTUNMAP != 0 {
            args[1] = args[2];
        }
        args
    }

    /// Makes `threads` threads of `calls` steps each, which do not wait for each other.
    pub fn crowd(&mut self, threads: usize, calls: usize, allowed: Allowed) -> Step {
        let tables = TABLES / threads.max(1) as u64;
        let part = self.part;
        let threads = (0..threads as u64).map(|n| {
            self.part = (n * tables, tables);
            Step::Thread(self.program(calls, Allowed { threads: false, ..allowed }))
        });
        let crowd = Step::Crowd(threads.collect());
        self.part = part;
        crowd
    }

    /// Makes `calls` steps; children and threads have up to 12 of them.
    pub fn program(&mut self, calls: usize, allowed: Allowed) -> Vec<Step> {
        let mut all = Vec::new();
        let mut left = calls;
        while left > 0 {
            left -= 1;
            let odds = self.below(24);
            if odds < 2 && (allowed.forks || allowed.threads) && left > 0 {
                let n = (1 + self.below(12) as usize).min(left);
                left -= n;
                let inner = self.program(n, Allowed { threads: false, ..allowed });
                let thread = allowed.threads && (!allowed.forks || odds == 1);
                all.push(if thread { Step::Thread(inner) } else { Step::Fork(inner) });
            } else {
                all.push(Step::Call(self.call()));
            }
        }
        all
    }
}

/// Returns the number of calls, those of children and threads included.
pub fn count(steps: &[Step]) -> usize {
    steps
        .iter()
        .map(|step| match step {
            Step::Call(_) => 1,
            Step::Fork(inner) | Step::Thread(inner) | Step::Crowd(inner) => count(inner),
        })
        .sum()
}

/// A program as text: a call a line, with arguments in hexadecimal.
pub struct Text<'a>(pub &'a [Step]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in self.0 {
            match step {
                Step::Call(call) => {
                    f.write_str(call.name)?;
                    for arg in &call.args {
                        write!(f, " {arg:x}")?;
                    }
                    f.write_char('\n')?;
                }
                Step::Fork(inner) => write!(f, "fork\n{}end\n", Text(inner))?,
                Step::Thread(inner) => write!(f, "thread\n{}end\n", Text(inner))?,
                Step::Crowd(inner) => write!(f, "crowd\n{}end\n", Text(inner))?,
            }
        }
        Ok(())
    }
}

/// A program that was read.
pub struct Program(pub Vec<Step>);

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Makes a block of steps.
        type Block = fn(Vec<Step>) -> Step;
        let mut open: Vec<(Block, Vec<Step>)> = vec![(Step::Fork, Vec::new())];
        for (n, line) in text.lines().enumerate() {
            let bad = |what: &str| format!("line {}: {what}: {line}", n + 1);
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                None => {}
                Some("fork") => open.push((Step::Fork, Vec::new())),
                Some("thread") => open.push((Step::Thread, Vec::new())),
                Some("crowd") => open.push((Step::Crowd, Vec::new())),
                Some("end") => {
                    let (block, inner) = open.pop().ok_or_else(|| bad("nothing to end"))?;
                    let outer = open.last_mut().ok_or_else(|| bad("nothing to end"))?;
                    outer.1.push(block(inner));
                }
                Some(name) => {
                    let (name, n) = CALLS
                        .into_iter()
                        .find(|(known, _)| *known == name)
                        .ok_or_else(|| bad("an unknown call"))?;
                    let args: Result<Vec<u64>, _> = words.map(|w| u64::from_str_radix(w, 16)).collect();
                    let args = args.map_err(|_| bad("an argument that is no number"))?;
                    if args.len() != n {
                        return Err(bad("a wrong number of arguments"));
                    }
                    if let Some((_, steps)) = open.last_mut() {
                        steps.push(Step::Call(Call { name, args }));
                    }
                }
            }
        }
        match (open.pop(), open.is_empty()) {
            (Some((_, steps)), true) => Ok(Program(steps)),
            _ => Err("a block without an end".to_owned()),
        }
    }
}

/// A program as statements of C. Files and segments are named `file[n]` and `segment[n]`.
pub struct C<'a>(pub &'a [Step]);

impl fmt::Display for C<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in self.0 {
            match step {
                Step::Call(call) => statement(f, call)?,
                Step::Fork(inner) => write!(f, "if (!fork()) {{\n{}_exit(0); }}\nwait(0);\n", C(inner))?,
                Step::Thread(inner) => {
                    write!(f, "/* in a thread that is waited for: */ {{\n{}}}\n", C(inner))?
                }
                Step::Crowd(inner) => write!(f, "/* threads at once: */ {{\n{}}}\n", C(inner))?,
            }
        }
        Ok(())
    }
}

fn statement(f: &mut fmt::Formatter<'_>, call: &Call) -> fmt::Result {
    let a = |n: usize| call.args.get(n).copied().unwrap_or(0);
    match call.name {
        "mmap" => {
            let file = if a(4) < FILES { format!("file[{}]", a(4)) } else { "-1".to_owned() };
            writeln!(f, "mmap((void *){:#x}, {:#x}, {}, {:#x}, {file}, {:#x});", a(0), a(1), a(2), a(3), a(5))
        }
        "read" | "write" => {
            let access = if call.name == "read" { "(void)*p" } else { "*p = 1" };
            writeln!(
                f,
                "for (volatile char *p = (char *){:#x}, *e = p + {:#x}; p < e; p += {:#x}) {access};",
                a(0),
                (a(1) * a(2)) << 12,
                a(2) << 12
            )
        }
        "kread" => writeln!(f, "write(pipe_in, (void *){:#x}, 1);", a(0)),
        "kwrite" => writeln!(f, "read(zero, (void *){:#x}, 1);", a(0)),
        "brk" => writeln!(f, "brk(heap + {:#x});", a(0)),
        "shmat" => writeln!(f, "shmat(segment[{}], (void *){:#x}, SHM_REMAP);", a(1), a(0)),
        "remap_file_pages" => {
            writeln!(f, "remap_file_pages((void *){:#x}, {:#x}, 0, {}, 0);", a(0), a(1), a(2))
        }
        "limit" => writeln!(f, "limit_stack({:#x});", a(0) << 12),
        name => {
            let args: Vec<String> = call.args.iter().map(|a| format!("{a:#x}")).collect();
            writeln!(f, "{name}({});", args.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for seed in 0..200 {
            let allowed = Allowed { forks: true, threads: true };
            let mut steps = Random::new(seed).program(60, allowed);
            assert_eq!(count(&steps) + blocks(&steps), 60);
            steps.push(Random::new(seed).crowd(4, 20, allowed));
            let text = Text(&steps).to_string();
            let back: Program = text.parse().expect("what was written");
            assert_eq!(back.0, steps);
            assert!(!C(&steps).to_string().is_empty());
        }
    }

    fn blocks(steps: &[Step]) -> usize {
        let inner = steps.iter().map(|step| match step {
            Step::Call(_) => 0,
            Step::Fork(inner) | Step::Thread(inner) | Step::Crowd(inner) => 1 + blocks(inner),
        });
        inner.sum()
    }

    #[test]
    fn threads_at_once_stay_on_their_parts() {
        let inside = |steps: &[Step], n: u64| {
            let part = ARENA + n * 10 * 512 * 4096..ARENA + (n + 1) * 10 * 512 * 4096;
            let calls = steps.iter().flat_map(|step| match step {
                Step::Fork(inner) => inner.iter().collect::<Vec<_>>(),
                step => vec![step],
            });
            calls.into_iter().all(|step| match step {
                Step::Call(Call { name: "munmap" | "mmap" | "madvise", args }) => {
                    part.contains(&args[0]) && args[0] + args[1] <= part.end
                }
                Step::Call(Call { name: "mremap", args }) if args[4] != 0 => {
                    part.contains(&args[4]) && args[4] + args[2] <= part.end
                }
                _ => true,
            })
        };
        for seed in 0..100 {
            let allowed = Allowed { forks: true, threads: true };
            let Step::Crowd(threads) = Random::new(seed).crowd(4, 100, allowed) else { panic!("a crowd") };
            for (n, thread) in threads.iter().enumerate() {
                let Step::Thread(steps) = thread else { panic!("a thread") };
                assert!(inside(steps, n as u64), "seed {seed}, thread {n}");
            }
        }
    }

    #[test]
    fn bad_programs_are_refused() {
        for text in ["end", "fork", "mmap 1 2", "munmap 1 x", "open 1", "fork\nend\nend"] {
            assert!(text.parse::<Program>().is_err(), "{text}");
        }
    }
}
