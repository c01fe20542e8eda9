//! Who is compared.

use std::fmt;

/// The target of compiled programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetArch {
    /// 32 bits, PAE.
    I386,
    /// 64 bits.
    X86_64,
    /// 64 bits, on QEMU's board `virt`.
    Aarch64,
}

impl TargetArch {
    /// All of them.
    pub const ALL: [TargetArch; 3] = [TargetArch::I386, TargetArch::X86_64, TargetArch::Aarch64];

    /// Returns the name in names of contenders.
    const fn name(self) -> &'static str {
        match self {
            TargetArch::I386 => "i386",
            TargetArch::X86_64 => "x86_64",
            TargetArch::Aarch64 => "aarch64",
        }
    }

    /// Returns the name for `kernels/linux`.
    pub const fn kernel(self) -> &'static str {
        if matches!(self, TargetArch::I386) { "i686" } else { self.name() }
    }

    /// Returns QEMU's program for the target, and Debian's package of it.
    pub const fn qemu(self) -> (&'static str, &'static str) {
        match self {
            TargetArch::I386 => ("qemu-system-i386", "qemu-system-x86"),
            TargetArch::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            TargetArch::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }
}

impl fmt::Display for TargetArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kernel with its parameters.
#[derive(Debug)]
pub struct Contender {
    /// The name in rows, which tells the system and the target.
    pub name: &'static str,
    /// The addition to the command line.
    pub append: &'static str,
    pub about: &'static str,
}

impl Contender {
    pub const fn new(name: &'static str, append: &'static str, about: &'static str) -> Self {
        Contender { name, append, about }
    }

    /// Whether it is Debian's Linux, and not the library's kernel.
    pub fn is_linux(&self) -> bool {
        self.name.starts_with("linux-")
    }

    /// Whether it is a later Linux than 6.1.
    pub fn is_newer(&self) -> bool {
        self.name.starts_with("linux-newer")
    }

    /// Whether it has large pages where programs ask for them.
    fn is_advised(&self) -> bool {
        self.append.contains("transparent_hugepage=madvise")
    }

    /// Returns the part of its name without which suites do not run on it, as that takes minutes.
    pub fn extra(&self) -> Option<&'static str> {
        if self.is_newer() {
            return Some("newer");
        }
        if self.name.contains(MITIGATED) {
            return Some(MITIGATED);
        }
        Some(self.arch().name()).filter(|_| self.arch() != TargetArch::X86_64)
    }

    pub fn arch(&self) -> TargetArch {
        TargetArch::ALL.into_iter().find(|arch| self.name.contains(arch.name())).unwrap_or(TargetArch::X86_64)
    }
}

/// Returns the contenders that run a program.
pub fn of(program: &str) -> &'static [Contender] {
    if program == "large" { &LARGE } else { &CONTENDERS }
}

/// Returns the contenders that run a suite: on x86-64, both kernels without large pages and with
/// them. The suite `ours` has more, and runs on other targets.
pub fn of_suite(suite: &str) -> Vec<&'static Contender> {
    let others = CONTENDERS.iter().filter(|contender| contender.arch() != TargetArch::X86_64);
    let more = OURS.iter().chain(others).filter(|_| suite == "ours");
    LARGE.iter().filter(|contender| !contender.is_advised()).chain(more).collect()
}

/// Returns the contenders of the suite `cpus`.
pub fn of_cpus() -> &'static [Contender] {
    &CPUS
}

/// The part of a name that says that Linux has the mitigations of the processor's faults.
const MITIGATED: &str = "mitigated";

/// Names of those.
pub const LINUX_64: &str = "linux-x86_64";
pub const OURS_64: &str = "ptarmigan-x86_64";
pub const OURS_LAZY: &str = "ptarmigan-x86_64-lazy";
pub const OURS_ARM: &str = "ptarmigan-aarch64";

const CPUS: [Contender; 4] = [
    Contender::new(LINUX_64, "", "Linux"),
    Contender::new(OURS_64, "shootdown=interrupt", "the library; CPUs are interrupted"),
    Contender::new(OURS_LAZY, "shootdown=lazy", "the library; CPUs forget what is unmapped later"),
    Contender::new(OURS_ARM, "shootdown=broadcast", "the library, whose instructions broadcast"),
];

const OURS: [Contender; 4] = [
    Contender::new("plain-x86_64", "quicklist=off", "the library without quicklists"),
    Contender::new(
        "linux-lean-x86_64",
        "init_on_alloc=0 cgroup_disable=memory apparmor=0 security=none audit=0 nokaslr",
        "Linux without control groups, security modules and audit",
    ),
    Contender::new(
        "linux-mitigated-x86_64",
        "init_on_alloc=0 mitigations=auto pti=on spectre_v2=on spec_store_bypass_disable=on",
        "Linux with the mitigations of the processor's faults",
    ),
    Contender::new("linux-newer-x86_64", "init_on_alloc=0", "the newest Linux of Debian's backports"),
];

/// Those of large pages: never, where programs ask, always.
const LARGE: [Contender; 9] = [
    Contender::new("linux-x86_64", "", "Linux"),
    Contender::new("linux-x86_64-noinit", "init_on_alloc=0", "Linux; memory not cleared twice"),
    Contender::new("linux-x86_64-madvise", "transparent_hugepage=madvise", "Linux, large where asked for"),
    Contender::new(
        "linux-x86_64-madvise-noinit",
        "transparent_hugepage=madvise init_on_alloc=0",
        "the same; memory not cleared twice",
    ),
    Contender::new("linux-x86_64-always", "transparent_hugepage=always", "Linux, large where it fits"),
    Contender::new(
        "linux-x86_64-always-noinit",
        "transparent_hugepage=always init_on_alloc=0",
        "the same; memory not cleared twice",
    ),
    Contender::new("ptarmigan-x86_64", "", "the library"),
    Contender::new(
        "ptarmigan-x86_64-madvise",
        "transparent_hugepage=madvise",
        "the library, where asked for",
    ),
    Contender::new("ptarmigan-x86_64-always", "transparent_hugepage=always", "the library, where it fits"),
];

/// All others.
const CONTENDERS: [Contender; 17] = [
    Contender::new("linux-i386-high", "", "Linux, PAE, leaf tables in high memory"),
    Contender::new("linux-i386-nohigh", "userpte=nohigh", "Linux, PAE, tables in low memory"),
    Contender::new("linux-i386-high-noinit", "init_on_alloc=0", "the same; memory not cleared twice"),
    Contender::new(
        "linux-i386-nohigh-noinit",
        "userpte=nohigh init_on_alloc=0",
        "the same; memory not cleared twice",
    ),
    Contender::new("ptarmigan-i386-high", "userpte=high", "the library, leaf tables in high memory"),
    Contender::new("ptarmigan-i386-nohigh", "userpte=nohigh", "the library, tables in low memory"),
    Contender::new("ptarmigan-i386-auto", "userpte=auto", "the library decides for each table"),
    Contender::new("plain-i386-high", "userpte=high quicklist=off", "without quicklists"),
    Contender::new("plain-i386-nohigh", "userpte=nohigh quicklist=off", "without quicklists"),
    Contender::new("linux-x86_64", "", "Linux"),
    Contender::new("linux-x86_64-noinit", "init_on_alloc=0", "Linux; memory not cleared twice"),
    Contender::new("ptarmigan-x86_64", "", "the library"),
    Contender::new("plain-x86_64", "quicklist=off", "the library without quicklists"),
    Contender::new("linux-aarch64", "", "Linux"),
    Contender::new("linux-aarch64-noinit", "init_on_alloc=0", "Linux; memory not cleared twice"),
    Contender::new("ptarmigan-aarch64", "", "the library"),
    Contender::new("plain-aarch64", "quicklist=off", "the library without quicklists"),
];
