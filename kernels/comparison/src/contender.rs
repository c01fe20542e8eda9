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
    const fn new(name: &'static str, append: &'static str, about: &'static str) -> Self {
        Contender { name, append, about }
    }

    /// Whether it is Debian's Linux 6.1, and not the library's kernel.
    pub fn is_linux(&self) -> bool {
        self.name.starts_with("linux-")
    }

    pub fn arch(&self) -> Arch {
        if self.name.contains("i386") { Arch::I386 } else { Arch::X86_64 }
    }
}

/// All of them.
pub const CONTENDERS: [Contender; 13] = [
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
];
