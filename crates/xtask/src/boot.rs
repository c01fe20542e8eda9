//! Builds and boots the kernel images under QEMU by `kernels/run`, and says which of them pass.
use clap::{Args, ValueEnum};
use std::{
    env,
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// Arguments of `boot`.
#[derive(Args)]
pub struct BootArgs {
    /// Boots this kernel.
    #[arg(long, value_enum, default_value_t = Choice::All)]
    arch: Choice,
    /// CPUs of kernels that have several, 2 to 8 (2).
    #[arg(long, value_name = "CPUS", value_parser = clap::value_parser!(u8).range(2..=8))]
    smp: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    All,
    Aarch64,
    I686,
    #[value(name = "linux-aarch64")]
    LinuxAarch64,
    #[value(name = "linux-riscv64")]
    LinuxRiscv64,
    Loongarch64,
    Ppc32,
    Riscv64,
    #[value(name = "x86_64")]
    X86,
}

/// A kernel, as `kernels/run` names it.
#[derive(Debug, PartialEq)]
struct Kernel {
    arch: &'static str,
    has_cpus: bool,
    target: Target,
    /// The commands that it needs, each with the Debian package that has it.
    commands: &'static [(&'static str, &'static str)],
}

/// What a kernel is built for, as the compiler names it.
#[derive(Debug, PartialEq)]
enum Target {
    /// rustup installs it.
    Installed(&'static str),
    /// A nightly toolchain builds `core` for it.
    FromSource,
}

impl Target {
    /// Returns what it needs below a sysroot, whether of a nightly, and the command that brings it.
    fn needs(&self) -> (String, bool, String) {
        match self {
            Target::Installed(name) => {
                (format!("lib/rustlib/{name}"), false, format!("the target: rustup target add {name}"))
            }
            Target::FromSource => (
                "lib/rustlib/src/rust/library/core".into(),
                true,
                "a nightly with rust-src: rustup toolchain install nightly --component rust-src".into(),
            ),
        }
    }
}

const KERNELS: [Kernel; 8] = [
    Kernel {
        arch: "aarch64",
        has_cpus: true,
        target: Target::Installed("aarch64-unknown-none"),
        commands: &[("qemu-system-aarch64", "qemu-system-arm")],
    },
    Kernel {
        arch: "i686",
        has_cpus: true,
        target: Target::Installed("i586-unknown-linux-gnu"),
        commands: &[("qemu-system-x86_64", "qemu-system-x86"), ("gcc", "gcc-multilib")],
    },
    Kernel {
        arch: "linux-aarch64",
        has_cpus: true,
        target: Target::Installed("aarch64-unknown-none"),
        commands: &[
            ("qemu-system-aarch64", "qemu-system-arm"),
            ("clang", "clang"),
            (
                "aarch64-linux-gnu-ld",
                "binutils-aarch64-linux-gnu libc6-dev-arm64-cross libgcc-12-dev-arm64-cross",
            ),
        ],
    },
    Kernel {
        arch: "linux-riscv64",
        has_cpus: true,
        target: Target::Installed("riscv64gc-unknown-none-elf"),
        commands: &[
            ("qemu-system-riscv64", "qemu-system-misc opensbi"),
            ("clang", "clang"),
            (
                "riscv64-linux-gnu-ld",
                "binutils-riscv64-linux-gnu libc6-dev-riscv64-cross libgcc-12-dev-riscv64-cross",
            ),
        ],
    },
    Kernel {
        arch: "loongarch64",
        has_cpus: false,
        target: Target::FromSource,
        commands: &[("qemu-system-loongarch64", "qemu-system-misc")],
    },
    Kernel {
        arch: "ppc32",
        has_cpus: false,
        target: Target::Installed("powerpc-unknown-linux-gnu"),
        commands: &[("qemu-system-ppc", "qemu-system-ppc")],
    },
    Kernel {
        arch: "riscv64",
        has_cpus: true,
        target: Target::Installed("riscv64gc-unknown-none-elf"),
        commands: &[("qemu-system-riscv64", "qemu-system-misc opensbi")],
    },
    Kernel {
        arch: "x86_64",
        has_cpus: false,
        target: Target::Installed("x86_64-unknown-none"),
        commands: &[("qemu-system-x86_64", "qemu-system-x86")],
    },
];

impl Kernel {
    /// Returns the number of CPUs that it boots with.
    fn cpus(&self, smp: Option<u8>) -> u8 {
        if self.has_cpus { smp.unwrap_or(2) } else { 1 }
    }

    /// Returns what to install, if a command or the target is missing.
    fn missing(
        &self,
        has_command: impl Fn(&str) -> bool,
        is_in_sysroot: impl Fn(&str, bool) -> bool,
    ) -> Option<String> {
        let commands = self.commands.iter().filter(|(command, _)| !has_command(command));
        let mut all: Vec<String> =
            commands.map(|(command, package)| format!("{command}: install the package {package}")).collect();
        let (path, of_nightly, how) = self.target.needs();
        if !is_in_sysroot(&path, of_nightly) {
            all.push(how);
        }
        (!all.is_empty()).then(|| format!("missing {}", all.join("; ")))
    }

    /// Builds and boots it with `kernels/run` below `root`. The last lines that it has printed are
    /// the error.
    fn boot(&self, root: &Path, smp: Option<u8>) -> Result<(), String> {
        let mut command = Command::new(root.join("kernels/run"));
        command.arg(self.arch).current_dir(root).stdin(Stdio::null());
        if let Some(cpus) = smp.filter(|_| self.has_cpus) {
            command.arg("--smp").arg(cpus.to_string());
        }
        let output = command.output().map_err(|e| format!("kernels/run: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let text = text(&output.stdout) + &text(&output.stderr);
        let lines: Vec<&str> = text.lines().collect();
        Err(lines[lines.len().saturating_sub(12)..].join("\n"))
    }
}

/// Returns the kernels of a choice; an error if it is one with a single CPU and is to have several.
fn chosen(choice: Choice, smp: Option<u8>) -> Result<Vec<&'static Kernel>, String> {
    let name = choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let all: Vec<&Kernel> = KERNELS.iter().filter(|k| choice == Choice::All || k.arch == name).collect();
    if smp.is_some() && all.iter().all(|kernel| !kernel.has_cpus) {
        let several: Vec<&str> = KERNELS.iter().filter(|k| k.has_cpus).map(|k| k.arch).collect();
        return Err(format!("the kernel for {name} has one CPU; --smp is for {}", several.join(", ")));
    }
    Ok(all)
}

fn row(kernel: &Kernel, cpus: u8, passed: bool, time: Duration) -> String {
    let result = if passed { "PASS" } else { "FAIL" };
    format!("{:<14}{cpus:>5}   {result}{:>9.1}", kernel.arch, time.as_secs_f64())
}

fn has_command(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Whether the toolchain in use, or a nightly, has a directory.
fn is_in_sysroot(path: &str, of_nightly: bool) -> bool {
    let mut command = Command::new("rustc");
    if of_nightly {
        // By the name that rustup knows, whatever toolchain runs this.
        command.env("RUSTUP_TOOLCHAIN", "nightly");
    }
    let sysroot = command.args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    sysroot.is_ok_and(|sysroot| !sysroot.is_empty() && Path::new(&sysroot).join(path).is_dir())
}

/// Runs `cargo xtask boot`: all kernels that are chosen, whether others fail or not.
pub fn run(args: &BootArgs) -> ExitCode {
    let kernels = match chosen(args.arch, args.smp) {
        Ok(kernels) => kernels,
        Err(why) => {
            eprintln!("cargo xtask boot: {why}");
            return ExitCode::from(2);
        }
    };
    println!("{:<14}{:>5}   {:<4}{:>9}", "kernel", "CPUs", "", "seconds");
    let mut failed = 0;
    for kernel in kernels {
        let start = Instant::now();
        let booted = match kernel.missing(has_command, is_in_sysroot) {
            Some(missing) => Err(missing),
            None => kernel.boot(Path::new("."), args.smp),
        };
        println!("{}", row(kernel, kernel.cpus(args.smp), booted.is_ok(), start.elapsed()));
        if let Err(why) = booted {
            failed += 1;
            why.lines().for_each(|line| println!("    {line}"));
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn kernel(arch: &str) -> &'static Kernel {
        KERNELS.iter().find(|kernel| kernel.arch == arch).expect("a kernel")
    }

    #[test]
    fn missing_commands_and_targets_are_named_with_what_brings_them() {
        let i686 = kernel("i686");
        assert_eq!(i686.missing(|_| true, |_, _| true), None);
        assert_eq!(
            kernel("loongarch64").missing(|_| true, |_, of_nightly| !of_nightly).as_deref(),
            Some("missing a nightly with rust-src: rustup toolchain install nightly --component rust-src")
        );
        assert_eq!(
            i686.missing(|command| command != "gcc", |_, _| false).as_deref(),
            Some(
                "missing gcc: install the package gcc-multilib; the target: rustup target add i586-unknown-linux-gnu"
            )
        );
    }

    #[test]
    fn several_cpus_are_refused_where_there_is_one() {
        assert_eq!(
            chosen(Choice::X86, Some(4)),
            Err("the kernel for x86_64 has one CPU; --smp is for aarch64, i686, linux-aarch64, linux-riscv64, riscv64"
                .into())
        );
        assert_eq!(chosen(Choice::Riscv64, Some(4)), Ok(vec![kernel("riscv64")]));
        let all = chosen(Choice::All, Some(4)).expect("those with several CPUs have them");
        let cpus: Vec<u8> = all.iter().map(|kernel| kernel.cpus(Some(4))).collect();
        assert_eq!(cpus, [4, 4, 4, 4, 1, 1, 4, 1]);
    }

    /// `kernels/run` decides; this one fails for ppc32, and without the CPUs that it is to be
    /// given.
    #[test]
    fn a_kernel_passes_if_its_script_does() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        fs::create_dir_all(root.join("kernels")).expect("a directory");
        let script = root.join("kernels/run");
        let text = "#!/bin/sh\ncase \"$*\" in 'riscv64 --smp 3' | x86_64) exit 0 ;; esac\necho said: \"$*\"\nexit 1\n";
        fs::write(&script, text).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
        let results = [
            kernel("riscv64").boot(root, Some(3)),
            kernel("riscv64").boot(root, None),
            kernel("x86_64").boot(root, Some(3)),
            kernel("ppc32").boot(root, None),
        ];
        assert_eq!(results, [Ok(()), Err("said: riscv64".into()), Ok(()), Err("said: ppc32".into())]);
        assert_eq!(
            row(kernel("ppc32"), 1, false, Duration::from_millis(2340)),
            "ppc32             1   FAIL      2.3"
        );
    }

    #[test]
    fn kernels_run_and_the_jobs_know_all_kernels_targets_and_packages() {
        let file = |path: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
            fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let (run, jobs) = (file("kernels/run"), file(".ci/jobs.toml"));
        for kernel in &KERNELS {
            assert!(run.contains(&format!("kernels/run {}", kernel.arch)), "{}", kernel.arch);
            // An image that needs a nightly tool-chain is a nightly job.
            let Target::Installed(target) = kernel.target else { continue };
            assert!(jobs.contains(&format!(" {target}")), "{target}");
            for package in kernel.commands[0].1.split(' ') {
                assert!(
                    jobs.lines().any(|line| line.starts_with("debian") && line.contains(package)),
                    "{package}"
                );
            }
        }
    }
}
