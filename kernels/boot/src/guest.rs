//! Runs QEMU: starts it, reads the serial line, types on it, and ends it when its time or its
//! output is over.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Scratch;
use crate::board::{Board, megabytes};

/// Memory behind an initial file system, which is left to the firmware's tables.
const BEHIND: u64 = 4 << 20;

/// A boot that is to be made.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The name of QEMU.
    pub qemu: String,
    /// QEMU's arguments for the machine, as in [`Board::machine`].
    pub machine: String,
    /// QEMU's accelerator.
    pub accelerator: String,
    /// The image.
    pub image: PathBuf,
    /// CPUs, as QEMU's option `-smp` has them.
    pub cpus: String,
    /// Nodes: 1 or 2.
    pub nodes: u8,
    /// Memory, as QEMU's option `-m` has it.
    pub memory: String,
    /// The command line.
    pub words: String,
    /// Words of the command line for process 1.
    pub arguments: String,
    /// The initial file system.
    pub archive: Option<PathBuf>,
    /// As [`Board::base`].
    pub base: Option<u64>,
    /// QEMU's option `-icount`.
    pub icount: Option<String>,
    /// More arguments of QEMU.
    pub more: Vec<String>,
}

/// Bounds of a boot: a kernel that went wrong can print for ever.
#[derive(Clone, Copy, Debug)]
pub struct BootLimits {
    /// Seconds.
    pub seconds: u64,
    /// Bytes of the serial line.
    pub bytes: u64,
}

/// The end of a boot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// QEMU's exit status; 128 and the signal if a signal has ended it.
    pub status: i32,
    /// The reason, if this program has ended it.
    pub stopped: Option<String>,
    /// The lines of the serial line, and of QEMU.
    pub log: String,
}

impl BootLimits {
    /// Returns the limits of the variables `KERNEL_TIMEOUT` and `KERNEL_OUTPUT`, or these.
    ///
    /// # Errors
    ///
    /// A variable is no number.
    pub fn from_environment(seconds: u64, bytes: u64) -> Result<Self, String> {
        let number = |name: &str, default: u64| match env::var(name) {
            Ok(text) => text.parse().map_err(|_| format!("{name}: '{text}' is no number")),
            Err(_) => Ok(default),
        };
        Ok(BootLimits { seconds: number("KERNEL_TIMEOUT", seconds)?, bytes: number("KERNEL_OUTPUT", bytes)? })
    }
}

impl Ended {
    /// Whether the guest has printed this line.
    #[must_use]
    pub fn has_line(&self, line: &str) -> bool {
        self.log.lines().any(|each| each == line)
    }

    /// Returns the last lines, at most `count`.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> String {
        let lines: Vec<&str> = self.log.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Returns the last line.
    #[must_use]
    pub fn last_line(&self) -> &str {
        self.log.lines().next_back().unwrap_or("")
    }
}

impl Boot {
    /// Returns a boot of the board with one CPU, its memory, and no words.
    #[must_use]
    pub fn new(board: &Board, image: &Path) -> Self {
        Boot {
            qemu: board.qemu().to_owned(),
            machine: board.machine.clone(),
            accelerator: "tcg".to_owned(),
            image: image.to_owned(),
            cpus: "1".to_owned(),
            nodes: 1,
            memory: board.memory.clone(),
            words: String::new(),
            arguments: String::new(),
            archive: None,
            base: board.base,
            icount: None,
            more: Vec::new(),
        }
    }

    fn megabytes(&self) -> Result<u64, String> {
        megabytes(&self.memory)
            .ok_or_else(|| format!("memory is a number with M, G or neither, not '{}'", self.memory))
    }

    /// Returns the length of the archive, and whether there is memory for it: QEMU puts one for
    /// which there is no room over the image, or does not begin.
    ///
    /// # Errors
    ///
    /// The archive cannot be read.
    pub fn archive_fits(&self) -> Result<(u64, bool), String> {
        let Some(archive) = &self.archive else { return Ok((0, true)) };
        let bytes = fs::metadata(archive).map_err(|e| format!("{}: {e}", archive.display()))?.len();
        let memory = self.megabytes()? << 20;
        Ok((bytes, memory <= BEHIND || bytes <= memory - BEHIND))
    }

    /// Returns the command of QEMU without its serial line.
    fn command(&self, scratch: &Scratch) -> Result<Command, String> {
        let mut command = Command::new(&self.qemu);
        command.env("QEMU_AUDIO_DRV", "none");
        command.args(["-accel", &self.accelerator, "-display", "none", "-no-reboot"]);
        command.args(["-m", &self.memory, "-smp", &self.cpus]);
        let mut words = self.words.clone();
        if let Some(archive) = &self.archive {
            if let Some(base) = self.base {
                let (bytes, _) = self.archive_fits()?;
                let end = base + (self.megabytes()? << 20);
                let at = end.saturating_sub(BEHIND + bytes.next_multiple_of(4096));
                words.push_str(&format!(" initrd={at:#x},{bytes}"));
                let loader = format!("loader,file={},addr={at},force-raw=on", archive.display());
                command.args(["-device", &loader]);
            } else {
                command.arg("-initrd").arg(archive);
            }
        }
        words.push_str(&self.arguments);
        let arguments = scratch.file("arguments");
        fs::write(&arguments, format!("{words}\n")).map_err(|e| format!("{}: {e}", arguments.display()))?;
        let directory = self.image.parent().unwrap_or(Path::new("."));
        for word in self.machine.split_whitespace() {
            let word = word.replace("{image}", &self.image.to_string_lossy());
            let word = word.replace("{directory}", &directory.to_string_lossy());
            command.arg(word.replace("{arguments}", &arguments.to_string_lossy()));
        }
        if !self.machine.contains("{image}") {
            command.arg("-kernel").arg(&self.image);
        }
        if !self.machine.contains("{arguments}") {
            command.args(["-append", &words]);
        }
        if let Some(icount) = &self.icount {
            command.args(["-icount", icount]);
        }
        if self.nodes == 2 {
            self.two_nodes(&mut command)?;
        }
        command.args(&self.more);
        Ok(command)
    }

    /// Gives each of two nodes half of the memory and of the CPUs.
    fn two_nodes(&self, command: &mut Command) -> Result<(), String> {
        let half = self.megabytes()? / 2;
        let cpus: u32 = self.cpus.parse().map_err(|_| format!("'{}' CPUs of two nodes", self.cpus))?;
        let middle = cpus.div_ceil(2);
        let second = if cpus > 1 { format!(",cpus={middle}-{}", cpus - 1) } else { String::new() };
        for (node, cpus) in [format!(",cpus=0-{}", middle.saturating_sub(1)), second].iter().enumerate() {
            command.args(["-object", &format!("memory-backend-ram,id=m{node},size={half}M")]);
            command.args(["-numa", &format!("node,nodeid={node},memdev=m{node}{cpus}")]);
        }
        Ok(())
    }

    /// Boots with this terminal as the serial line, and returns QEMU's status.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started.
    pub fn interact(&self) -> Result<i32, String> {
        let scratch = Scratch::new()?;
        let mut command = self.command(&scratch)?;
        let status = command.args(["-serial", "mon:stdio"]).status();
        Ok(code(status.map_err(|e| format!("{}: {e}", self.qemu))?))
    }

    /// Boots, and waits for the end. `shows` prints lines as they come.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started.
    pub fn run(&self, limits: &BootLimits, shows: bool) -> Result<Ended, String> {
        self.start(limits, Stdio::null(), shows)?.end()
    }

    /// Boots a guest that is talked with.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started.
    pub fn talk(&self, limits: &BootLimits) -> Result<Guest, String> {
        self.start(limits, Stdio::piped(), false)
    }

    fn start(&self, limits: &BootLimits, input: Stdio, shows: bool) -> Result<Guest, String> {
        let scratch = Scratch::new()?;
        let failed = |e: std::io::Error| format!("{}: {e}", self.qemu);
        let (mut lines, both) = std::io::pipe().map_err(failed)?;
        let mut command = self.command(&scratch)?;
        command.args(["-serial", "stdio", "-monitor", "none"]).stdin(input);
        command.stdout(both.try_clone().map_err(failed)?).stderr(both);
        end_with_parent(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        // It holds the other end of the pipe, too.
        drop(command);
        let typed = child.stdin.take();
        let (sender, chunks) = mpsc::channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = lines.read(&mut chunk) {
                if sender.send(chunk[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Guest {
            child,
            typed,
            chunks,
            limits: *limits,
            deadline: Instant::now() + Duration::from_secs(limits.seconds),
            pending: Vec::new(),
            bytes: 0,
            shows,
            ended: Ended::default(),
            _scratch: scratch,
        })
    }
}

/// Has the kernel end the command when the thread that starts it ends: a signal that ends this
/// program drops no guest.
#[cfg(target_os = "linux")]
fn end_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let end = || {
        // SAFETY: no memory is concerned.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure calls one function that may be called between fork and exec, and
    // allocates no memory.
    unsafe { command.pre_exec(end) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_command: &mut Command) {}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A guest that runs. It is ended when it is dropped.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    typed: Option<ChildStdin>,
    chunks: Receiver<Vec<u8>>,
    limits: BootLimits,
    deadline: Instant,
    /// Bytes that were read and are not yet a line.
    pending: Vec<u8>,
    bytes: u64,
    shows: bool,
    ended: Ended,
    _scratch: Scratch,
}

impl Guest {
    /// Types a text on the serial line.
    ///
    /// # Errors
    ///
    /// The guest has ended.
    pub fn send(&mut self, text: &str) -> Result<(), String> {
        let typed = self.typed.as_mut().ok_or("the serial line cannot be typed on")?;
        typed.write_all(text.as_bytes()).map_err(|e| format!("typing on the serial line: {e}"))
    }

    /// Reads lines up to the first that `fits`. Returns false if the guest ends before it.
    pub fn wait_for(&mut self, fits: impl Fn(&str) -> bool) -> bool {
        while let Some(line) = self.line() {
            if fits(&line) {
                return true;
            }
        }
        false
    }

    /// Reads up to the end of the guest.
    ///
    /// # Errors
    ///
    /// QEMU cannot be waited for.
    pub fn end(mut self) -> Result<Ended, String> {
        self.wait_for(|_| false);
        self.ended.status = code(self.child.wait().map_err(|e| e.to_string())?);
        Ok(std::mem::take(&mut self.ended))
    }

    /// Returns the next line; `None` at the end of the guest.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                if let Some(line) = self.keep(&line) {
                    return Some(line);
                }
                continue;
            }
            if self.ended.stopped.is_some() {
                return None;
            }
            match self.chunks.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
                Ok(mut chunk) => {
                    let left = self.limits.bytes - self.bytes;
                    if chunk.len() as u64 > left {
                        chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                        self.stop(format!(
                            "the output is cut after {} bytes; KERNEL_OUTPUT=BYTES allows for more",
                            self.limits.bytes
                        ));
                    }
                    self.bytes += chunk.len() as u64;
                    self.pending.extend(chunk);
                    if self.ended.stopped.is_none() {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.stop(format!(
                    "the guest was ended after {} seconds; KERNEL_TIMEOUT=SECONDS allows for more",
                    self.limits.seconds
                )),
                Err(RecvTimeoutError::Disconnected) => {}
            }
            // The end: a last line has no end.
            let rest = std::mem::take(&mut self.pending);
            for line in rest.split_inclusive(|&byte| byte == b'\n') {
                self.keep(line);
            }
            return None;
        }
    }

    /// Adds a line to the log. QEMU speaks of modules for sound that are not installed on the host.
    fn keep(&mut self, line: &[u8]) -> Option<String> {
        let line = String::from_utf8_lossy(line).replace(['\r', '\n'], "");
        if line.starts_with("qemu: module audio-") {
            return None;
        }
        if self.shows {
            println!("{line}");
        }
        self.ended.log.push_str(&line);
        self.ended.log.push('\n');
        Some(line)
    }

    fn stop(&mut self, reason: String) {
        self.ended.stopped.get_or_insert(reason);
        // One that has ended meanwhile is waited for.
        let _ = self.child.kill();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in place of QEMU: a shell whose script is the machine's only file.
    fn boot(scratch: &Scratch, script: &str) -> Boot {
        let image = scratch.file("script");
        fs::write(&image, format!("#!/bin/sh\n{script}")).unwrap();
        let qemu = scratch.file("qemu");
        fs::write(&qemu, format!("#!/bin/sh\n. {}\n", image.display())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&qemu, mode).unwrap();
        Boot {
            qemu: qemu.to_string_lossy().into_owned(),
            machine: "-M pc".into(),
            accelerator: "tcg".into(),
            image,
            cpus: "4".into(),
            nodes: 1,
            memory: "64M".into(),
            words: "quiet".into(),
            arguments: " -- one".into(),
            archive: None,
            base: None,
            icount: None,
            more: Vec::new(),
        }
    }

    const LIMITS: BootLimits = BootLimits { seconds: 60, bytes: 1 << 20 };

    #[test]
    fn a_guest_is_read_to_its_end_and_its_status() {
        let scratch = Scratch::new().unwrap();
        let script = "printf 'one\\r\\n'; echo qemu: module audio-x >&2; echo two >&2; printf end; exit 33";
        let ended = boot(&scratch, script).run(&LIMITS, false).unwrap();
        assert_eq!(ended, Ended { status: 33, stopped: None, log: "one\ntwo\nend\n".into() });
    }

    #[test]
    fn time_and_output_are_bounded() {
        let scratch = Scratch::new().unwrap();
        let limits = BootLimits { seconds: 1, ..LIMITS };
        let ended = boot(&scratch, "echo begun; exec sleep 60").run(&limits, false).unwrap();
        assert_eq!(ended.log, "begun\n");
        assert!(ended.stopped.unwrap().contains("after 1 seconds; KERNEL_TIMEOUT"));
        let limits = BootLimits { bytes: 10, ..LIMITS };
        let ended = boot(&scratch, "exec yes").run(&limits, false).unwrap();
        assert_eq!(ended.log, "y\n".repeat(5));
        assert!(ended.stopped.unwrap().contains("cut after 10 bytes; KERNEL_OUTPUT"));
    }

    #[test]
    fn lines_are_typed_and_answered() {
        let scratch = Scratch::new().unwrap();
        let mut guest = boot(&scratch, "read name; echo hello $name; exit 3").talk(&LIMITS).unwrap();
        guest.send("all\n").unwrap();
        assert!(guest.wait_for(|line| line == "hello all"));
        assert!(!guest.wait_for(|line| line == "more"));
        assert_eq!(guest.end().unwrap().status, 3);
    }

    #[test]
    fn the_archive_is_loaded_below_the_end_of_memory() {
        let scratch = Scratch::new().unwrap();
        let archive = scratch.file("archive");
        fs::write(&archive, [0; 5000]).unwrap();
        let boot = Boot { archive: Some(archive), base: Some(0x4000_0000), ..boot(&scratch, "") };
        let shown = |boot: &Boot| format!("{:?}", boot.command(&scratch).unwrap());
        let text = shown(&boot);
        assert!(text.contains("\"quiet initrd=0x43bfe000,5000 -- one\""), "{text}");
        assert!(text.contains("addr=1136648192,force-raw=on"), "{text}");
        assert!(shown(&Boot { base: None, ..boot.clone() }).contains("\"-initrd\""));
        assert_eq!(boot.archive_fits(), Ok((5000, true)));
        assert_eq!(Boot { memory: "4M".into(), ..boot.clone() }.archive_fits(), Ok((5000, true)));
        fs::write(scratch.file("archive"), [0; 1 << 20 | 1]).unwrap();
        assert_eq!(Boot { memory: "5M".into(), ..boot }.archive_fits(), Ok(((1 << 20) + 1, false)));
    }

    #[test]
    fn two_nodes_share_memory_and_processors() {
        let scratch = Scratch::new().unwrap();
        let boot = Boot { nodes: 2, ..boot(&scratch, "") };
        let text = format!("{:?}", boot.command(&scratch).unwrap());
        for part in ["id=m0,size=32M", "memdev=m0,cpus=0-1", "memdev=m1,cpus=2-3"] {
            assert!(text.contains(part), "{text}");
        }
        let text = format!("{:?}", Boot { cpus: "1".into(), ..boot.clone() }.command(&scratch).unwrap());
        assert!(text.contains("memdev=m0,cpus=0-0") && text.contains("memdev=m1\""), "{text}");
        assert!(Boot { memory: "1X".into(), ..boot }.run(&LIMITS, false).unwrap_err().contains("'1X'"));
    }

    #[test]
    fn files_take_the_place_of_the_kernel_and_its_command_line() {
        let scratch = Scratch::new().unwrap();
        let machine = "-bios {image} -device loader,file={arguments},addr=0x8000 -x {directory}/user".into();
        let boot = Boot { machine, ..boot(&scratch, "") };
        let text = format!("{:?}", boot.command(&scratch).unwrap());
        assert!(!text.contains("-kernel") && !text.contains("-append"), "{text}");
        assert!(text.contains(&*scratch.file("user").to_string_lossy()), "{text}");
        assert_eq!(fs::read_to_string(scratch.file("arguments")).unwrap(), "quiet -- one\n");
    }
}
