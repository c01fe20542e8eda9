//! `cargo xtask boot linux`: boots the kernel for Linux programs.
use super::checks::{self, Archive, Check, Group, passed};
use clap::Args;
use kernel_boot::board::{Board, Boards, Linux};
use kernel_boot::debian::Debian;
use kernel_boot::guest::{Boot, BootLimits, Ended};
use kernel_boot::image::Image;
use kernel_boot::{Scratch, archive, here, output, programs};
use ptarmigan_term::Time;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Boots the kernel for Linux programs (`kernels/linux`): builds the image, makes an initial file
/// system, and shows the serial line.
///
/// The exit status is 0 if the guest left with PASS (process 1 ended with status 0 and all frames
/// were back, or a program wrote 0x10 to the exit device), otherwise QEMU's: 35 on PCs if the guest
/// failed.
///
/// Environment: a boot is ended after KERNEL_TIMEOUT seconds (120), or KERNEL_OUTPUT bytes of the
/// serial line (64 MiB), as a kernel that went wrong can print for ever. Images are built in
/// CARGO_TARGET_DIR (kernels/target).
#[derive(Args)]
pub struct LinuxArgs {
    /// Which kernel: x86_64, i686, aarch64 or riscv64.
    #[arg(long, default_value = "x86_64")]
    arch: String,
    /// CPUs.
    #[arg(long, value_name = "N", default_value = "1")]
    cpus: String,
    /// Nodes, 1 or 2; 2 on PCs alone.
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u8,
    /// Memory (2G).
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// The command line; of several all are taken.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    append: Vec<String>,
    /// Process 1, in the initial file system (/init).
    #[arg(long, value_name = "PATH")]
    init: Option<String>,
    /// A directory whose files are the initial file system's, as `boot debian --root` makes one;
    /// entries come on top.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Compiles linux/programs/NAME.c, and runs it as /init.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// One time-stamp count an instruction: `--icount shift=0`.
    #[arg(long, conflicts_with = "icount")]
    count: bool,
    /// QEMU's option -icount: the guest's time goes by its instructions, not by the host's clock.
    #[arg(long, value_name = "VALUE")]
    icount: Option<String>,
    /// The serial line is this terminal; Ctrl-A X ends QEMU.
    #[arg(long)]
    interactive: bool,
    /// The image with the library's own checks.
    #[arg(long)]
    checked: bool,
    /// The programs of this repository, busybox, a C compiler: kernels/checks.toml.
    #[arg(long, group = "mode")]
    check: bool,
    /// Debian programs of linux/programs/debian.list, all or the ones that are named: each has to
    /// print its line and no error, and all frames have to come back.
    #[arg(long, group = "mode")]
    debian: bool,
    /// Runs that leave out flushes, clears, copies: each has to fail.
    #[arg(long, group = "mode")]
    negative: bool,
    /// Boots with bad input: each ends, or goes on, with a line that says why.
    #[arg(long, group = "mode")]
    refused: bool,
    /// Boots with all CPUs (50), then two that recycle 1,000,000 tables each: processes, and
    /// threads of one space.
    #[arg(long, group = "mode", value_name = "BOOTS", num_args = 0..=1, default_missing_value = "50")]
    soak: Option<u32>,
    /// --check or --debian fails if Debian's packages cannot be fetched, and leaves nothing out.
    #[arg(long)]
    all: bool,
    /// NAME=FILE, NAME@TARGET (a symbolic link) or NAME/; with --debian names of programs.
    entries: Vec<String>,
    /// Words for process 1.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Bytes of the serial line of one boot.
const OUTPUT: u64 = 64 << 20;
/// Seconds of one boot.
const SECONDS: u64 = 120;
/// Packages that each program of `debian.list` has beside its own.
const BASE: [&str; 5] = ["dash", "coreutils", "diffutils", "sed", "grep"];
/// Bytes of an archive that is cut.
const CUT: usize = 300_000;

/// A kernel that was built, with temporary files.
struct Machine<'a> {
    board: &'a Board,
    linux: &'a Linux,
    image: PathBuf,
    work: Scratch,
    /// Whether packages of Debian's have to be there.
    all: bool,
}

/// Boots the kernel of `board` with a program for several CPUs.
///
/// # Errors
///
/// The kernel or the program is not built.
pub fn parallel(board: &Board, cpus: u8) -> Result<Ended, String> {
    let linux = board.linux.as_ref().ok_or_else(|| format!("{} runs no Linux programs", board.name))?;
    let machine = Machine::new(board, linux, "lean", &[], false)?;
    let init = machine.program("parallel")?;
    let boot = Boot { cpus: cpus.to_string(), ..Boot::new(board, &machine.image) };
    machine.run(machine.with(boot, &[format!("init={}", init.display())])?, None, false)
}

/// Runs `cargo xtask boot linux`.
///
/// # Errors
///
/// A bad option, a missing tool, or the reason why a boot is not as it should be.
pub fn run(args: &LinuxArgs) -> Result<ExitCode, String> {
    let boards = Boards::read()?;
    let (board, linux) = boards.linux(&args.arch)?;
    if args.nodes == 0 || args.nodes > linux.nodes {
        let most = linux.nodes;
        return Err(format!("the kernel for {} has {most} nodes at most, not {}", args.arch, args.nodes));
    }
    let group = match args {
        LinuxArgs { check: true, .. } => Some(Group::Check),
        LinuxArgs { negative: true, .. } => Some(Group::Negative),
        LinuxArgs { refused: true, .. } => Some(Group::Refused),
        LinuxArgs { soak: Some(_), .. } => Some(Group::Soak),
        _ => None,
    };
    if let Some(root) = args.root.as_ref().filter(|root| !root.is_dir()) {
        return Err(format!("there is no directory {}", root.display()));
    }
    let arguments = arguments(&args.arguments)?;
    let profile = if args.checked { "release" } else { "lean" };
    let features: &[&str] = if args.negative { &["negative"] } else { &[] };
    let machine = Machine::new(board, linux, profile, features, args.all)?;
    if let Some(group) = group {
        machine.checks(group, args.soak)?;
        println!("PASS");
        return Ok(ExitCode::SUCCESS);
    }
    let boot = Boot {
        cpus: args.cpus.clone(),
        nodes: args.nodes,
        memory: args.memory.clone().unwrap_or_else(|| board.memory.clone()),
        words: args
            .append
            .iter()
            .cloned()
            .chain(args.init.as_ref().map(|init| format!("init={init}")))
            .collect::<Vec<_>>()
            .join(" "),
        arguments,
        icount: if args.count { Some("shift=0".into()) } else { args.icount.clone() },
        ..Boot::new(board, &machine.image)
    };
    if args.debian {
        machine.debian(&boot, &args.entries)?;
        println!("PASS");
        return Ok(ExitCode::SUCCESS);
    }
    let mut entries: Vec<String> = args.root.iter().map(|root| format!("+{}", root.display())).collect();
    entries.extend(args.entries.iter().cloned());
    if let Some(name) = &args.program {
        if !programs().join(name).with_extension("c").is_file() {
            return Err(format!("there is no programs/{name}.c"));
        }
        entries.push(format!("init={}", machine.program(name)?.display()));
    }
    if entries.is_empty() {
        return Err("nothing to boot: name ENTRY..., --root DIRECTORY, --program NAME or --check".into());
    }
    let boot = machine.with(boot, &entries)?;
    if args.interactive {
        return Ok(status(boot.interact()?, board.pass));
    }
    let ended = machine.run(boot, None, true)?;
    match passed(board, &ended) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) if ended.stopped.is_some() => Err(why),
        Err(why) => {
            eprintln!("cargo xtask boot: {why}");
            Ok(status(ended.status, board.pass))
        }
    }
}

/// Returns QEMU's status, or success if that is of a guest that passes.
fn status(status: i32, pass: i32) -> ExitCode {
    if status == pass { ExitCode::SUCCESS } else { ExitCode::from(u8::try_from(status).unwrap_or(1).max(1)) }
}

/// Returns words for process 1, as the command line has them: quotes hold blanks together.
fn arguments(words: &[String]) -> Result<String, String> {
    let mut text = String::new();
    for word in words {
        if word.contains('"') {
            return Err(format!(
                "the command line cannot pass a double quote on: {word}; write it into a script"
            ));
        }
        if word.is_empty() || word.contains(char::is_whitespace) {
            text.push_str(&format!(" \"{word}\""));
        } else {
            text.push_str(&format!(" {word}"));
        }
    }
    Ok(if words.is_empty() { text } else { format!(" --{text}") })
}

impl<'a> Machine<'a> {
    fn new(
        board: &'a Board,
        linux: &'a Linux,
        profile: &str,
        features: &[&str],
        all: bool,
    ) -> Result<Self, String> {
        let image = Image { profile, features, ..Image::of(board) }.build()?;
        Ok(Machine { board, linux, image, work: Scratch::new()?, all })
    }

    /// Compiles a static program of words for the compiler.
    fn compile(&self, out: &Path, words: &[String]) -> Result<(), String> {
        let mut command = self.linux.cc();
        command.args(["-O2", "-w", "-static", "-pthread", "-o"]).arg(out).args(words);
        output(&mut command).map(drop).map_err(|why| {
            let (arch, packages) = (&self.linux.arch, self.board.compiler_packages());
            format!("{why}\ncannot make a static program for {arch}: apt-get install {packages}")
        })
    }

    /// Compiles a program of `linux/programs`, once.
    fn program(&self, name: &str) -> Result<PathBuf, String> {
        let out = self.work.file(&format!("program-{name}"));
        if !out.is_file() {
            self.compile(&out, &[programs().join(format!("{name}.c")).display().to_string()])?;
        }
        Ok(out)
    }

    /// Gives a boot the initial file system of these entries.
    fn with(&self, boot: Boot, entries: &[String]) -> Result<Boot, String> {
        let archive = self.work.file("archive");
        archive::write(&archive, entries)?;
        Ok(Boot { archive: Some(archive), ..boot })
    }

    /// Boots, unless there is no memory for the initial file system.
    fn run(&self, boot: Boot, seconds: Option<u64>, shows: bool) -> Result<Ended, String> {
        let (bytes, fits) = boot.archive_fits()?;
        if fits {
            return boot.run(&self.limits(seconds)?, shows);
        }
        let log = format!(
            "FAIL the initial file system, {bytes} bytes, does not fit into {}: give the machine more memory\n",
            boot.memory
        );
        if shows {
            print!("{log}");
        }
        Ok(Ended { status: self.board.fail, stopped: None, log })
    }

    fn limits(&self, seconds: Option<u64>) -> Result<BootLimits, String> {
        let limits = BootLimits::from_environment(SECONDS, OUTPUT)?;
        Ok(BootLimits { seconds: seconds.unwrap_or(limits.seconds), ..limits })
    }

    /// Returns the directory of a package of Debian's; `None` if it may be left out and cannot be
    /// had.
    fn package(&self, name: &str, subject: &str) -> Result<Option<PathBuf>, String> {
        let arch = self.linux.debian.as_deref();
        match arch.map(|arch| Debian::open(arch, false)?.package(name)) {
            Some(Ok(directory)) => return Ok(Some(directory)),
            Some(Err(why)) => eprintln!("{why}"),
            None => {}
        }
        if self.all {
            return Err(format!("{name} is needed"));
        }
        eprintln!("left out on {}, as there is no {name}: {subject}", self.linux.arch);
        Ok(None)
    }

    /// Makes the boots of a group.
    fn checks(&self, group: Group, boots: Option<u32>) -> Result<(), String> {
        let all = checks::read(group, &self.board.name)?;
        if group == Group::Refused {
            self.bad_files()?;
        }
        all.iter().try_for_each(|check| self.check(check, boots))
    }

    /// Makes the files that boots with bad input have.
    fn bad_files(&self) -> Result<(), String> {
        let write = |name: &str, bytes: &[u8]| {
            let file = self.work.file(name);
            fs::write(&file, bytes).map(|()| file).map_err(|e| format!("{name}: {e}"))
        };
        let source = write("small.c", b"int main(void) { return 0; }\n")?;
        let small = self.work.file("small");
        self.compile(&small, &[source.display().to_string()])?;
        let program = fs::read(&small).map_err(|e| format!("{}: {e}", small.display()))?;
        write("short", program.get(..100).unwrap_or(&program))?;
        write("large", &vec![0; 48 << 20])?;
        let many = self.work.file("many");
        fs::create_dir(&many).map_err(|e| format!("{}: {e}", many.display()))?;
        for name in 1..=3000 {
            std::os::unix::fs::symlink("to", many.join(name.to_string())).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Returns the entries of a check; `None` if it is left out, as a package cannot be had.
    fn entries(&self, check: &Check) -> Result<Option<Vec<String>>, String> {
        let package = match &check.package {
            Some((name, subject)) => match self.package(name, subject)? {
                Some(directory) => Some(directory),
                None => return Ok(None),
            },
            None => None,
        };
        let work = self.work.file("");
        let replaced = |text: &String| {
            let text = text.replace("{here}", &here().to_string_lossy());
            let text = text.replace("{work}", work.to_string_lossy().trim_end_matches('/'));
            package
                .as_ref()
                .map_or(text.clone(), |package| text.replace("{package}", &package.to_string_lossy()))
        };
        let mut entries: Vec<String> = check.entries.iter().map(replaced).collect();
        match (&check.program, &package) {
            (Some(name), Some(package)) if check.links => {
                let out = self.work.file(name);
                self.compile(&out, &with_library(name, package)?)?;
                entries.push(format!("init={}", out.display()));
            }
            (Some(name), _) => entries.push(format!("init={}", self.program(name)?.display())),
            (None, _) => {}
        }
        if let Some(script) = &check.script {
            let file = self.work.file("script");
            fs::write(&file, script).map_err(|e| format!("{}: {e}", file.display()))?;
            entries.push(format!("init={}", file.display()));
        }
        Ok(Some(entries))
    }

    /// Returns the boot of a check with the initial file system of `entries`.
    fn boot(&self, check: &Check, entries: &[String]) -> Result<Boot, String> {
        let several = self.linux.several;
        let cpus = check.cpus.clone().unwrap_or_else(|| "1".into());
        let (cpus, nodes) = if check.several { (several.cpus.to_string(), several.nodes) } else { (cpus, 1) };
        let many: Vec<String> = (1..=450).map(|number| format!("word={number}")).collect();
        let boot = Boot {
            words: check.words.replace("{cpus}", &cpus).replace("{words}", &many.join(" ")),
            arguments: check.arguments.clone(),
            cpus,
            nodes,
            memory: check.memory.clone().unwrap_or_else(|| self.board.memory.clone()),
            icount: check.icount.clone(),
            more: check.more.split_whitespace().map(str::to_owned).collect(),
            ..Boot::new(self.board, &self.image)
        };
        match check.archive {
            Some(Archive::None) => Ok(boot),
            Some(Archive::Image) => Ok(Boot { archive: Some(self.image.clone()), ..boot }),
            Some(Archive::Unchecked) | None => self.with(boot, entries),
            Some(Archive::Cut) => {
                let boot = self.with(boot, entries)?;
                let archive = self.work.file("archive");
                let cut = fs::OpenOptions::new()
                    .write(true)
                    .open(&archive)
                    .and_then(|file| file.set_len(CUT as u64));
                cut.map(|()| boot).map_err(|e| format!("{}: {e}", archive.display()))
            }
        }
    }

    fn check(&self, check: &Check, boots: Option<u32>) -> Result<(), String> {
        let Some(entries) = self.entries(check)? else { return Ok(()) };
        let (pass, fail) = (self.board.pass, self.board.fail);
        let times = if check.times > 1 { boots.unwrap_or(check.times) } else { 1 };
        for _ in 0..times {
            let mut tries = check.tries;
            let ended = loop {
                let boot = self.boot(check, &entries)?;
                let ended = if !check.talk.is_empty() {
                    self.talk(check, &boot)?
                } else if check.archive == Some(Archive::Unchecked) {
                    boot.run(&self.limits(check.seconds)?, false)?
                } else {
                    self.run(boot, check.seconds, false)?
                };
                tries -= 1;
                if tries == 0 || ended.status != pass {
                    break ended;
                }
            };
            let lines = check.judge(&ended, pass, fail).inspect_err(|_| print!("{}", ended.log))?;
            if times == 1 {
                lines.iter().for_each(|line| println!("{line}"));
            }
        }
        if times > 1 {
            println!("{times} boots with {} CPUs in a row", self.linux.several.cpus);
        }
        let answers: usize = check.talk.iter().map(|turn| turn.hears.len()).sum();
        if answers > 0 {
            println!("the shell on the serial line gave {answers} answers");
        }
        Ok(())
    }

    /// Boots, and talks with the guest.
    fn talk(&self, check: &Check, boot: &Boot) -> Result<Ended, String> {
        let mut guest = boot.talk(&self.limits(check.seconds)?)?;
        for turn in &check.talk {
            for number in 1..=turn.times {
                guest.send(&turn.says.replace("{n}", &number.to_string()))?;
            }
            for text in &turn.hears {
                let wanted = checks::pattern(text)?;
                if !guest.wait_for(|line| wanted.is_match(line)) {
                    let ended = guest.end()?;
                    print!("{}", ended.log);
                    return Err(match ended.stopped {
                        Some(reason) => format!("no line '{text}': {reason}"),
                        None => format!("no line '{text}' up to the end, with status {}", ended.status),
                    });
                }
            }
        }
        guest.end()
    }

    /// Boots the programs of `debian.list`, all or the ones that are named.
    fn debian(&self, boot: &Boot, names: &[String]) -> Result<(), String> {
        let arch = self.linux.debian.as_deref();
        let arch = arch.ok_or_else(|| format!("there are no packages for {}", self.linux.arch))?;
        let path = programs().join("debian.list");
        let text = crate::repository::read(&path)?;
        let rows: Vec<ListedProgram<'_>> = text.lines().filter_map(ListedProgram::of).collect();
        if let Some(name) = names.iter().find(|name| rows.iter().all(|row| row.name != **name)) {
            return Err(format!("programs/debian.list has no program {name}"));
        }
        let (mut right, mut wrong, mut left_out) = (0, Vec::new(), Vec::new());
        for row in rows.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)) {
            let packages = BASE.iter().copied().chain(row.packages.split_whitespace());
            let packages: Vec<String> = packages.map(str::to_owned).collect();
            match Debian::open(arch, false)?.root(&packages) {
                Ok(root) if self.listed(boot, row, &root)? => right += 1,
                Ok(_) => wrong.push(row.name),
                Err(why) if self.all => return Err(format!("{why}\n{} is needed", row.name)),
                Err(_) => left_out.push(row.name),
            }
        }
        if !left_out.is_empty() {
            eprintln!("left out, as packages cannot be had: {}", left_out.join(" "));
        }
        if !wrong.is_empty() {
            return Err(format!("wrong: {}", wrong.join(" ")));
        }
        println!("{right} programs");
        Ok(())
    }

    /// Boots a program of the list; returns whether it was right.
    fn listed(&self, boot: &Boot, row: &ListedProgram<'_>, root: &Path) -> Result<bool, String> {
        const SCRIPT: &str =
            "#!/bin/sh\n/bin/sh /.task 2>/.said\nstatus=$?\nsed 's/^/stderr: /' /.said\nexit $status\n";
        let [task, script] = ["task", "script"].map(|name| self.work.file(name));
        fs::write(&task, format!("{}\n", row.command)).map_err(|e| format!("{}: {e}", task.display()))?;
        fs::write(&script, SCRIPT).map_err(|e| format!("{}: {e}", script.display()))?;
        let begun = Instant::now();
        let words = format!("{} init=/.command", boot.words);
        let boot = Boot { words: words.trim_start().to_owned(), ..boot.clone() };
        let entries = [
            format!("+{}", root.display()),
            format!(".task={}", task.display()),
            format!(".command={}", script.display()),
        ];
        let ended = self.run(self.with(boot, &entries)?, None, false)?;
        let missing = ended
            .log
            .lines()
            .filter_map(|line| line.strip_prefix("kernel: system call ")?.strip_suffix(" is not there"));
        let missing: Vec<&str> = missing.collect();
        let ListedProgram { name, line, .. } = row;
        let is_right = passed(self.board, &ended).is_ok()
            && ended.has_line(line)
            && !ended.log.lines().any(|line| line.starts_with("stderr: "))
            && !checks::frames_back(&ended.log).is_empty();
        if is_right {
            let calls = if missing.is_empty() {
                String::new()
            } else {
                format!("; calls that are not there: {}", missing.join(" "))
            };
            println!("{name}: {line} ({}{calls})", Time::from(begun.elapsed()));
        } else {
            let reason = ended.stopped.map_or_else(String::new, |reason| format!(" ({reason})"));
            print!("{}", ended.log);
            println!(
                "{name}: wrong: QEMU ended with status {}{reason}; there should be a line '{line}', none on \
                 standard error, and all frames back",
                ended.status
            );
        }
        Ok(is_right)
    }
}

/// Returns words for the compiler: a program, and a library of a package.
fn with_library(name: &str, package: &Path) -> Result<Vec<String>, String> {
    let directory = package.join("usr/lib");
    let entries = fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let archives = entries.filter_map(|entry| Some(entry.ok()?.path().join("libtcc.a")));
    let archive = archives.into_iter().find(|path| path.is_file());
    let archive = archive.ok_or_else(|| format!("{} has no libtcc.a", directory.display()))?;
    let source = programs().join(format!("{name}.c"));
    let words = [
        format!("-I{}/usr/include", package.display()),
        source.display().to_string(),
        archive.display().to_string(),
        "-ldl".into(),
        "-lm".into(),
    ];
    Ok(words.into())
}

/// A row of `debian.list`.
#[derive(Debug, PartialEq)]
struct ListedProgram<'a> {
    name: &'a str,
    packages: &'a str,
    /// The line that has to come.
    line: &'a str,
    command: &'a str,
}

impl<'a> ListedProgram<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, " | ").filter(|_| !text.starts_with('#'));
        Some(ListedProgram {
            name: parts.next()?,
            packages: parts.next()?,
            line: parts.next()?,
            command: parts.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_process_1_are_quoted() {
        let words = |all: &[&str]| arguments(&all.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&[]), Ok(String::new()));
        assert_eq!(words(&["-c", "ls | sort", ""]), Ok(" -- -c \"ls | sort\" \"\"".into()));
        assert!(words(&["a\"b"]).unwrap_err().contains("cannot pass a double quote on: a\"b"));
    }

    #[test]
    fn a_row_has_a_name_packages_a_line_and_a_command() {
        let row = ListedProgram { name: "a", packages: "b c", line: "d", command: "e | f | g" };
        assert_eq!(ListedProgram::of("a | b c | d | e | f | g"), Some(row));
        assert_eq!(ListedProgram::of("# a | b | c | d"), None);
    }
}
