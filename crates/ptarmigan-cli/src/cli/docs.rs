//! Documents that the installed command brings along.
use ptarmigan_term::Failure;
use ptarmigan_term::print;
use std::process::ExitCode;

/// Print a document about the command, in Markdown.
#[derive(clap::Args, Clone, Debug)]
pub struct DocsArgs {
    /// The document. Without one, lists them.
    #[arg(value_enum)]
    document: Option<Document>,
}

/// A document by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Document {
    /// How to record, the price, and the accuracy of recordings
    Recording,
    /// Order of events, sources of times, gaps and failures of recordings
    RecordingReference,
    /// Kinds of advice, and how good their figures are
    Advise,
    /// Switches of allocators, models, and the fields of advice as JSON
    AdviseReference,
    /// The page of `ptarmigan report`, and its data
    Report,
    /// The fields of JSON documents
    Json,
    /// Files of costs for --model
    CostModels,
}

impl Document {
    fn text(self) -> &'static str {
        match self {
            Self::Recording => include_str!("../../recording.md"),
            Self::RecordingReference => include_str!("../../recording-reference.md"),
            Self::Advise => include_str!("../../advise.md"),
            Self::AdviseReference => include_str!("../../advise-reference.md"),
            Self::Report => include_str!("../../report.md"),
            Self::Json => include_str!("../../json.md"),
            Self::CostModels => include_str!("../../cost-models.md"),
        }
    }
}

/// Prints a document, or the names of all.
///
/// # Errors
/// If it cannot be written.
pub fn run(args: &DocsArgs) -> Result<ExitCode, Failure> {
    let list = || -> String {
        let all = <Document as clap::ValueEnum>::value_variants().iter();
        let values = all.filter_map(clap::ValueEnum::to_possible_value);
        let line = |value: clap::builder::PossibleValue| {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            format!("{:<19} {help}\n", value.get_name())
        };
        values.map(line).collect()
    };
    print::stdout(&args.document.map_or_else(list, |document| document.text().to_owned()))?;
    Ok(ExitCode::SUCCESS)
}
