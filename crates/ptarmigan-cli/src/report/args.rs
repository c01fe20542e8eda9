//! The options of `ptarmigan report`.
use crate::inputs::has_standard_input;
use ptarmigan::params::{Params, UserPte};
use ptarmigan_linux::Trim;
use ptarmigan_replay::{Choice, PolicyName, parse_memory};
use ptarmigan_term::{Bytes, Failure};
use std::path::PathBuf;

/// Write a page about the table pages of recorded programs: one HTML file with pictures that needs
/// nothing else.
#[derive(clap::Args, Clone, Debug)]
pub struct ReportArgs {
    /// Traces to report on, side by side if there are several; - for standard input [default: the
    /// shipped linux-build].
    pub(super) traces: Vec<PathBuf>,
    /// The page; - for standard output [default: report.html, or no page with --markdown or
    /// --summary].
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Also write a comment for a pull request, in Markdown, with less than 65,536 bytes: the first
    /// line, a table of figures, the first pieces of advice. Without a file, or with -, to standard
    /// output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(super) markdown: Option<PathBuf>,
    /// Also write a card of 1200 by 630 pixels as SVG: one picture, three numbers, one piece of
    /// advice. Of several traces it shows the first two.
    #[arg(long, value_name = "FILE.svg")]
    pub(super) summary: Option<PathBuf>,
    /// Leave out the names of files and functions, so that all documents can be given to others: as
    /// if the traces were copies that `ptarmigan inspect --share` has written.
    #[arg(long)]
    pub(super) share: bool,
    /// How advice is looked for: by counts of one replay of each side, as with `advise --rounds 0`;
    /// timed, as `ptarmigan advise` does; or not at all.
    #[arg(long, value_enum, value_name = "HOW", default_value = "counts")]
    pub(super) advice: HowAdvice,
    /// Also write the data behind each picture to this directory, as CSV and as JSON, and its time
    /// lines as Trace Event Format, which Perfetto shows.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Allocation policies to compare.
    #[arg(long, value_delimiter = ',', value_name = "POLICY,...", default_values = ["plain", "v5", "ptarmigan"])]
    pub(super) policy: Vec<PolicyName>,
    /// Lists of the historic policies, 1 to 3. Each number given makes a policy of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [2], value_name = "N,...",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(super) historic_lists: Vec<u8>,
    /// Memory of the machine, 1M to 8T: bytes, or a number with the suffix K, M, G or T.
    #[arg(long, default_value = "4G", value_parser = parse_memory, value_name = "SIZE")]
    pub(super) memory: u64,
    /// Also replay on 32-bit x86 with PAE, once with each of these values of userpte=, and show how
    /// much low memory tables take: nohigh, high, auto. Takes a replay for each.
    #[arg(long, value_delimiter = ',', value_name = "VALUE,...", value_parser = parse_userpte)]
    pub(super) userpte: Vec<UserPte>,
    /// Low memory of that machine.
    #[arg(long, default_value = "768M", value_parser = parse_memory, value_name = "SIZE", requires = "userpte")]
    pub(super) low: u64,
}

impl ReportArgs {
    /// Checks the combinations that clap cannot express.
    ///
    /// # Errors
    /// If options contradict each other.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if has_standard_input(&self.traces)? && !self.userpte.is_empty() {
            return Err(Failure::new(
                "--userpte reads the trace again, which standard input cannot do: name a file",
            ));
        }
        let outputs: Vec<&PathBuf> =
            [&self.output, &self.markdown, &self.summary].into_iter().flatten().collect();
        if outputs.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::new("- twice: standard output takes one document; name a file"));
        }
        for (n, path) in outputs.iter().enumerate() {
            if outputs[..n].contains(path) && path.as_os_str() != "-" {
                let name = path.display();
                return Err(Failure::new(format!("{name}: named for two documents; name two files")));
            }
        }
        let is_document = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "md");
        if let (Some(_), Some(path)) = (&self.markdown, self.traces.iter().find(is_document)) {
            let name = path.display();
            return Err(Failure::new(format!("{name}: not a trace; write --markdown={name}")));
        }
        let is_svg = |path: &PathBuf| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg"));
        if let Some(path) = self.summary.as_ref().filter(|path| path.as_os_str() != "-" && !is_svg(path)) {
            return Err(Failure::new(format!(
                "--summary {}: the card is SVG; name a file that ends with .svg (`ptarmigan docs report` has a command \
                 that makes a PNG of it)",
                path.display()
            )));
        }
        if !self.userpte.is_empty() && self.low >= self.memory {
            return Err(Failure::new(format!(
                "--low {} MiB of --memory {} MiB leaves no high memory: give less --low",
                Bytes(self.low).mib(),
                Bytes(self.memory).mib()
            )));
        }
        Ok(())
    }

    /// Returns the place of the page, if one is written.
    pub(super) fn page(&self) -> Option<PathBuf> {
        let alone = self.markdown.is_none() && self.summary.is_none();
        self.output.clone().or_else(|| alone.then(|| "report.html".into()))
    }

    /// Returns the policies to compare.
    pub(super) fn policies(&self) -> Vec<Choice> {
        Choice::all(&self.policy, &self.historic_lists, Trim::ARCHES)
    }
}

/// How advice is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum HowAdvice {
    /// By counts, which are the same in each run
    Counts,
    /// By counts and times
    Timed,
    /// Not at all
    None,
}

fn parse_userpte(text: &str) -> Result<UserPte, String> {
    let params = Params::parse(&format!("userpte={text}")).map_err(|e| e.to_string())?;
    params.userpte.ok_or_else(|| "expected nohigh, high or auto".to_owned())
}
