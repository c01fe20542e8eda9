//! Builds the images and initial file systems of the boards of `boards.toml`, and boots them.
//!
//! | module | task |
//! |---|---|
//! | [`toolchain`] | finds programs of the system and of toolchains |
//! | [`board`] | reads the boards, and says which tools are missing |
//! | [`image`] | builds an image |
//! | [`archive`] | makes an initial file system |
//! | [`debian`] | fetches packages of Debian's |
//! | [`guest`] | runs QEMU, and talks with the guest |
//!
//! ```no_run
//! use kernel_boot::{board::Boards, guest::{Boot, BootLimits}, image::Image};
//!
//! let boards = Boards::read()?;
//! let board = boards.named("riscv64")?;
//! let image = Image::of(board).build()?;
//! let limits = BootLimits::from_environment(60, 20_000)?;
//! let ended = Boot { cpus: "2".into(), ..Boot::new(board, &image) }.run(&limits, false)?;
//! assert!(ended.status == board.pass && ended.has_line("PASS"));
//! # Ok::<(), String>(())
//! ```

pub mod archive;
pub mod board;
pub mod debian;
pub mod guest;
pub mod image;
pub mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the directory of the kernels.
#[must_use]
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Returns the directory of the kernel for Linux programs, a workspace of its own.
#[must_use]
pub fn linux() -> PathBuf {
    here().with_file_name("linux")
}

/// Returns the directory of the programs that it runs.
#[must_use]
pub fn programs() -> PathBuf {
    linux().join("programs")
}

/// A directory for temporary files, which is removed when it is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn new() -> Result<Self, String> {
        Self::below(&std::env::temp_dir())
    }

    /// Makes a directory in another one.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn below(directory: &Path) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("kernel-boot-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch(path))
    }

    /// Returns the path of a file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that cannot be removed is in the system's directory for temporary ones.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command to its end, and returns its output.
///
/// # Errors
///
/// If it cannot be run or fails; the text has its errors.
pub fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}
