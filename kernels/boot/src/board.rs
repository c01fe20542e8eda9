//! Reads `boards.toml`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::toolchain::{has_command, sysroot};

/// A board that QEMU emulates, and the kernel for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// The name in commands.
    pub name: String,
    /// The package of the image.
    pub package: String,
    /// The target of the compiler.
    pub target: String,
    /// The relocation model. On x86-64 position-independent code, as the prebuilt `core` is,
    /// reaches everything relative to itself, so that the image can be linked high; it is not
    /// relocated. RISC-V code does so anyway.
    pub model: Model,
    /// Whether a nightly toolchain has to build `core`.
    #[serde(default)]
    pub core_from_source: bool,
    /// Features that the package has on this board.
    #[serde(default)]
    pub features: Vec<String>,
    /// QEMU's arguments for the board. `{image}` is the image, which `-kernel` names otherwise,
    /// `{directory}` is the image's, and `{arguments}` a file with the words of the command line,
    /// for kernels without firmware; `-append` has them otherwise.
    pub machine: String,
    /// Memory, as for QEMU's option `-m`.
    pub memory: String,
    /// The address of memory, if an initial file system has to be put there: QEMU's `-initrd` is
    /// for images of Linux alone on AArch64.
    pub base: Option<u64>,
    /// The most CPUs that it can have.
    pub cpus: u8,
    /// QEMU's status after `PASS`.
    pub pass: i32,
    /// QEMU's status after `FAIL`.
    pub fail: i32,
    /// Whether the smallest kernel boots on it, too.
    #[serde(default)]
    pub has_minimal: bool,
    /// Whether firmware prints a page of text first.
    #[serde(default)]
    pub has_firmware: bool,
    /// The most bytes of stack that a fault may take in an image that is not optimised. Boards with
    /// a bound have an image as it would be shipped, too, in which calls' own stack is bounded.
    pub fault_stack: Option<u64>,
    /// How its page tables are recorded.
    pub recorded: Option<Recorded>,
    /// Commands, each with the Debian packages that bring it; the first is QEMU.
    pub needs: Vec<(String, String)>,
    /// The kernel for Linux programs.
    pub linux: Option<Linux>,
}

/// A relocation model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Relative to itself.
    Pic,
    /// At the addresses of the link script.
    Static,
}

/// How the page tables of a board are recorded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The address of memory.
    pub base: u64,
    /// More arguments of QEMU.
    pub machine: String,
}

/// A kernel for Linux programs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linux {
    /// The name of its architecture in commands.
    pub arch: String,
    /// The compiler of static programs, with options.
    pub compiler: String,
    /// Debian's name for the architecture, if Debian has packages for it.
    pub debian: Option<String>,
    /// The most nodes that it can have.
    pub nodes: u8,
    /// The machine of boots with several CPUs.
    pub several: Several,
}

/// A machine with several CPUs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Several {
    /// CPUs.
    pub cpus: u8,
    /// Nodes.
    pub nodes: u8,
}

/// The boards, in the order of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boards {
    /// The boards.
    pub board: Vec<Board>,
}

impl Boards {
    /// Reads `boards.toml` of this repository.
    ///
    /// # Errors
    ///
    /// A text that names the file, and the line or the field, if it cannot be read or is malformed.
    pub fn read() -> Result<Self, String> {
        let path = crate::here().join("boards.toml");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let boards: Boards = toml::from_str(text).map_err(|e| e.to_string())?;
        for (at, board) in boards.board.iter().enumerate() {
            let wrong = |field: &str, why: &str| Err(format!("board {}: {field}: {why}", board.name));
            if boards.board[..at].iter().any(|other| other.name == board.name) {
                return wrong("name", "there are two of it");
            }
            if megabytes(&board.memory).is_none() {
                return wrong("memory", "a number with M, G or neither");
            }
            if board.cpus == 0 {
                return wrong("cpus", "at least one");
            }
            if board.needs.is_empty() {
                return wrong("needs", "QEMU is the first");
            }
            let Some(linux) = &board.linux else { continue };
            if linux.nodes == 0 || linux.several.nodes > linux.nodes {
                return wrong("linux.nodes", "at least one, and as many as `several` has");
            }
            if !(1..=board.cpus).contains(&linux.several.cpus) {
                return wrong("linux.several.cpus", "between one and `cpus`");
            }
        }
        Ok(boards)
    }

    /// Returns the board of a name.
    ///
    /// # Errors
    ///
    /// A text with all names if there is none of this one.
    pub fn named(&self, name: &str) -> Result<&Board, String> {
        let names = || self.board.iter().map(|board| &*board.name).collect::<Vec<_>>().join(", ");
        let board = self.board.iter().find(|board| board.name == name);
        board.ok_or_else(|| format!("no kernel for '{name}'; there are {}", names()))
    }

    /// Returns the board with the kernel for Linux programs of an architecture.
    ///
    /// # Errors
    ///
    /// A text with all architectures if there is none for this one.
    pub fn linux(&self, arch: &str) -> Result<(&Board, &Linux), String> {
        let all = || self.board.iter().filter_map(|board| Some((board, board.linux.as_ref()?)));
        let names = || all().map(|(_, linux)| &*linux.arch).collect::<Vec<_>>().join(", ");
        all()
            .find(|(_, linux)| linux.arch == arch)
            .ok_or_else(|| format!("no kernel for '{arch}'; there are {}", names()))
    }
}

impl Linux {
    /// Returns the compiler of static programs, with its options for the target.
    #[must_use]
    pub fn cc(&self) -> Command {
        let mut words = self.compiler.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("cc"));
        command.args(words);
        command
    }
}

impl Board {
    /// Returns the directory of the workspace that has the package.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        if self.linux.is_some() { crate::linux() } else { crate::here().to_owned() }
    }

    /// Returns the name of QEMU.
    #[must_use]
    pub fn qemu(&self) -> &str {
        self.needs.first().map_or("", |(qemu, _)| qemu)
    }

    /// Returns the Debian packages without which no program can be compiled.
    #[must_use]
    pub fn compiler_packages(&self) -> String {
        self.needs.iter().skip(1).map(|(_, packages)| &**packages).collect::<Vec<_>>().join(" ")
    }

    /// Checks that all commands and the target are there.
    ///
    /// # Errors
    ///
    /// A text that names everything that is missing, with the command that brings it.
    pub fn check(&self) -> Result<(), String> {
        self.check_with(has_command, self.missing_target())
    }

    /// Returns the command that brings the target, if it is missing.
    fn missing_target(&self) -> Option<String> {
        let target = &self.target;
        let (path, how) = if self.core_from_source {
            (
                "src/rust/library/core",
                "no nightly with the source of core: rustup toolchain install nightly --component rust-src"
                    .into(),
            )
        } else {
            (&**target, format!("the target {target} is not installed: rustup target add {target}"))
        };
        let is_there = sysroot(self.core_from_source)
            .is_ok_and(|sysroot| sysroot.join("lib/rustlib").join(path).is_dir());
        (!is_there).then_some(how)
    }

    fn check_with(&self, has_command: impl Fn(&str) -> bool, target: Option<String>) -> Result<(), String> {
        let missing = self.needs.iter().filter(|(command, _)| !has_command(command));
        let mut all: Vec<String> = missing
            .map(|(command, package)| format!("{command} is not there: apt-get install {package}"))
            .collect();
        all.extend(target);
        if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
    }
}

/// Returns the number of MiB of an amount of memory, as QEMU's option `-m` has it.
#[must_use]
pub fn megabytes(memory: &str) -> Option<u64> {
    if let Some(gigabytes) = memory.strip_suffix('G') {
        return gigabytes.parse::<u64>().ok()?.checked_mul(1024);
    }
    memory.strip_suffix('M').unwrap_or(memory).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: &str = "[[board]]\nname = \"a\"\npackage = \"kernel-a\"\ntarget = \"t\"\nmodel = \"pic\"\n\
                         machine = \"-M a\"\nmemory = \"64M\"\ncpus = 1\npass = 33\nfail = 35\n\
                         needs = [[\"qemu-a\", \"qemu-system-a\"], [\"gcc\", \"gcc-a\"]]\n";

    #[test]
    fn the_boards_of_the_repository_are_read() {
        let boards = Boards::read().unwrap();
        assert_eq!(boards.named("riscv64").unwrap().qemu(), "qemu-system-riscv64");
        assert_eq!(boards.linux("riscv64").unwrap().0.name, "linux-riscv64");
        assert!(boards.named("vax").unwrap_err().contains("aarch64, i686, linux-aarch64"));
        assert!(boards.linux("ppc32").unwrap_err().contains("i686, aarch64, riscv64, x86_64"));
    }

    #[test]
    fn an_error_names_the_field() {
        for (from, to, part) in [
            ("name = \"a\"\n", "", "missing field `name`"),
            ("pic", "dynamic", "unknown variant `dynamic`"),
            ("64M", "64K", "board a: memory"),
            ("cpus = 1", "cpus = 0", "board a: cpus"),
            ("cpus = 1", "cpus = \"one\"", "cpus = \"one\""),
            ("cpus = 1", "cups = 1", "unknown field `cups`"),
            ("[\"qemu-a\", \"qemu-system-a\"], [\"gcc\", \"gcc-a\"]", "", "board a: needs"),
        ] {
            let err = Boards::parse(&BOARD.replacen(from, to, 1)).unwrap_err();
            assert!(err.contains(part), "{err}");
        }
        assert!(Boards::parse(&BOARD.repeat(2)).unwrap_err().contains("board a: name"));
        let linux = "[board.linux]\narch = \"a\"\ncompiler = \"cc\"\nnodes = 1\nseveral = ";
        for (several, part) in
            [("{ cpus = 2, nodes = 1 }", "several.cpus"), ("{ cpus = 1, nodes = 2 }", "nodes")]
        {
            assert!(Boards::parse(&format!("{BOARD}{linux}{several}")).unwrap_err().contains(part));
        }
        Boards::parse(BOARD).unwrap();
    }

    #[test]
    fn missing_commands_and_targets_are_named_with_their_packages() {
        let board = &Boards::parse(BOARD).unwrap().board[0];
        assert_eq!(board.check_with(|_| true, None), Ok(()));
        assert_eq!(
            board.check_with(|command| command != "gcc", Some("no target".into())).unwrap_err(),
            "gcc is not there: apt-get install gcc-a; no target"
        );
        assert_eq!(board.compiler_packages(), "gcc-a");
    }

    #[test]
    fn memory_is_read_in_megabytes() {
        assert_eq!(
            ["64M", "2G", "128", "2T", "M", ""].map(megabytes),
            [Some(64), Some(2048), Some(128), None, None, None]
        );
    }
}
