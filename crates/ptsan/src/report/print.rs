//! A report in one of its formats, and the text.
use super::format::Format;
use super::kind::Kind;
use super::reports::Reports;
use super::{github, json, short, wrap};
use std::fmt;

/// The report of a run in one format: see [`Sanitizer::report_as`](crate::Sanitizer::report_as).
/// ```
/// use ptsan::{Arch, Config, Format, Sanitizer};
///
/// let san = Sanitizer::new(Config::new(Arch::riscv_sv39()));
/// assert_eq!(san.report_as(Format::Text).to_string(), "ptsan: no findings");
/// println!("{}", san.report_as(Format::Json)); // for a tool, whatever PTSAN_FORMAT says
/// ```
#[derive(Clone, Copy)]
pub struct Report<'a> {
    reports: &'a Reports,
    format: Format,
}

/// Prints the report in the format that the environment chose.
impl fmt::Display for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Report::new(self, self.choice().format).fmt(f)
    }
}

impl<'a> Report<'a> {
    /// Makes the report of a run.
    pub(crate) fn new(reports: &'a Reports, format: Format) -> Self {
        Self { reports, format }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            Format::Text => text(f, self.reports),
            Format::Short => short::write(f, self.reports),
            Format::GitHub => github::write(f, self.reports),
            Format::Json => json::write(f, self.reports),
        }
    }
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("format", &self.format).finish_non_exhaustive()
    }
}

fn text(f: &mut fmt::Formatter<'_>, reports: &Reports) -> fmt::Result {
    match reports.total() {
        0 => write!(f, "ptsan: no findings")?,
        1 => write!(f, "ptsan: 1 finding")?,
        many => write!(f, "ptsan: {many} findings")?,
    }
    let mut kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| reports.count(*kind) > 0).collect();
    kinds.sort_by_key(|kind| kind.severity());
    for kind in kinds {
        write!(f, "\n  {:>8}  {kind}", reports.count(kind))?;
    }
    if reports.allowed() > 0 {
        write!(f, "\n  {:>8}  allowed, not counted above", reports.allowed())?;
    }
    for allow in reports.unused().filter(|_| reports.is_finished()) {
        wrap::line(f, 2, &format!("allowed and not seen: {allow}"))?;
    }
    if let Some(unknown) = &reports.choice().unknown {
        let names = Format::ALL.map(Format::name).join(", ");
        wrap::line(f, 2, &format!("PTSAN_FORMAT={unknown} is no format; there are {names}"))?;
    }
    for index in reports.order() {
        write!(f, "\n\n{}", reports.findings()[index])?;
    }
    let summary = reports.summary();
    if summary.not_kept > 0 {
        write!(f, "\n\n{} more are counted above and not kept", summary.not_kept)?;
    }
    if summary.total() > 0 { write!(f, "\n\n{summary}") } else { Ok(()) }
}
