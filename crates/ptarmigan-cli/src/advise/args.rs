//! The options of `ptarmigan advise`.
use ptarmigan_replay::Failure;
use ptarmigan_replay::parse_memory;
use std::path::PathBuf;

/// Say what would help a recorded program, and a kernel that runs it: each piece of advice with its
/// figure from a replay with and without it.
///
/// Exits with 0 whether or not there is advice, and with 1 if a trace cannot be read or replayed.
#[derive(clap::Args, Clone, Debug)]
pub struct AdviseArgs {
    /// Traces to look at; - for standard input.
    #[arg(required = true)]
    pub(super) traces: Vec<PathBuf>,
    /// Whom advice is for.
    #[arg(long = "for", value_enum, value_name = "WHOM", default_value = "program")]
    pub(super) whom: Whom,
    /// The machine of the kernel that advice is for. Only one of 32 bits with high memory has
    /// `userpte=`.
    #[arg(long, value_enum, value_name = "ARCH", default_value = "x86-64")]
    pub(super) arch: KernelArch,
    /// Memory of the machine that replays run on.
    #[arg(long, default_value = "4G", value_parser = parse_memory, value_name = "SIZE")]
    pub(super) memory: u64,
    /// What TLB flushes cost on the kernel's machine: a cost model with costs, such as `ptarmigan
    /// calibrate -o FILE` writes. Without it there is no advice on flushes.
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) model: Option<String>,
    /// Replays of each side. Times differ if all of the one side are below all of the other. With 0
    /// counts alone decide, which are the same in each run, and no price of a page is measured.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = rounds)]
    pub(super) rounds: u8,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl AdviseArgs {
    /// Checks the combinations that clap cannot express.
    ///
    /// # Errors
    /// If standard input is named twice, or an option has no use.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.whom == Whom::Program {
            let unused = [
                (self.model.is_some(), "--model prices flushes"),
                (self.arch != KernelArch::X86_64, "--arch chooses the machine"),
            ];
            if let Some((_, what)) = unused.iter().find(|(given, _)| *given) {
                return Err(Failure::new(format!(
                    "{what} for a kernel; give --for kernel or --for both, too"
                )));
            }
        }
        if self.traces.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::new("- twice: standard input has one trace"));
        }
        Ok(())
    }
}

/// Parses a number of rounds. Two rounds of each side differ by chance too often.
fn rounds(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(n @ (0 | 3..=100)) => Ok(n),
        _ => Err("3 to 100 rounds tell times apart, and 0 compares counts alone".to_owned()),
    }
}

/// Whom advice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Whom {
    /// The author of the program
    Program,
    /// A kernel that runs it
    Kernel,
    /// Both
    Both,
}

/// The machine of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum KernelArch {
    /// x86 of 64 bits
    #[value(name = "x86-64")]
    X86_64,
    /// x86 of 32 bits with PAE, which may keep leaf tables in high memory
    #[value(name = "i386-pae")]
    I386Pae,
}
