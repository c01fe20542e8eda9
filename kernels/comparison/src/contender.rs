//! Who is compared.

use std::fmt;

/// The target of compiled programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 32 bits, PAE.
    I386,
    /// 64 bits.
    X86_64,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Arch::I386 { "i386" } else { "x86_64" })
    }
}

/// Whose kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Debian's Linux 6.1.
    Linux,
    /// The library's.
    Ours,
}

/// A kernel with its parameters.
#[derive(Debug)]
pub struct Contender {
    /// The name in rows.
    pub name: &'static str,
    pub arch: Arch,
    pub system: System,
    /// The addition to the command line.
    pub append: &'static str,
    pub about: &'static str,
}

const fn new(
    name: &'static str,
    arch: Arch,
    system: System,
    append: &'static str,
    about: &'static str,
) -> Contender {
    Contender { name, arch, system, append, about }
}

use Arch::{I386, X86_64};
use System::{Linux, Ours};

/// All of them.
pub const CONTENDERS: [Contender; 13] = [
    new("linux-i386-high", I386, Linux, "", "Linux, PAE, leaf tables in high memory"),
    new("linux-i386-nohigh", I386, Linux, "userpte=nohigh", "Linux, PAE, tables in low memory"),
    new("linux-i386-high-noinit", I386, Linux, "init_on_alloc=0", "the same; memory not cleared twice"),
    new(
        "linux-i386-nohigh-noinit",
        I386,
        Linux,
        "userpte=nohigh init_on_alloc=0",
        "the same; memory not cleared twice",
    ),
    new("ptarmigan-i386-high", I386, Ours, "userpte=high", "the library, leaf tables in high memory"),
    new("ptarmigan-i386-nohigh", I386, Ours, "userpte=nohigh", "the library, tables in low memory"),
    new("ptarmigan-i386-auto", I386, Ours, "userpte=auto", "the library decides for each table"),
    new("plain-i386-high", I386, Ours, "userpte=high quicklist=off", "without quicklists"),
    new("plain-i386-nohigh", I386, Ours, "userpte=nohigh quicklist=off", "without quicklists"),
    new("linux-x86_64", X86_64, Linux, "", "Linux"),
    new("linux-x86_64-noinit", X86_64, Linux, "init_on_alloc=0", "Linux; memory not cleared twice"),
    new("ptarmigan-x86_64", X86_64, Ours, "", "the library"),
    new("plain-x86_64", X86_64, Ours, "quicklist=off", "the library without quicklists"),
];
