//! A line of at most 80 columns for each finding.
use super::caller::TraceFrame;
use super::finding::Finding;
use super::reports::Reports;
use std::fmt;

const COLUMNS: usize = 80;

/// Writes the counts, then the findings.
pub(super) fn write(f: &mut fmt::Formatter<'_>, reports: &Reports) -> fmt::Result {
    f.write_str(&cut(&format!("ptsan: {}", reports.summary().counts())))?;
    for index in reports.order() {
        write!(f, "\n{}", cut(&line(&reports.findings()[index])))?;
    }
    Ok(())
}

/// Returns kind and rule, the caller, the first place, and how many more there are.
fn line(finding: &Finding) -> String {
    let Finding { kind, rule, place, count, spread, consequences, .. } = finding;
    let mut text = format!("{kind}/{}", rule.name());
    let caller = finding.innermost();
    if let Some((file, line, _)) = caller.as_ref().and_then(TraceFrame::position) {
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        text.push_str(&format!(" {name}:{line}"));
    }
    if let Some(address) = place.frame.or(place.va) {
        text.push_str(&format!(" {address:#x}"));
    }
    if let Some(cpu) = place.cpu {
        text.push_str(&format!(" {}", finding.machine.reader(cpu)));
    }
    if spread.places > 1 {
        text.push_str(&format!(", {} more places", spread.places - 1));
    }
    if *count > spread.places {
        text.push_str(&format!(", {count} times"));
    }
    if !consequences.is_empty() {
        text.push_str(&format!(", {} more", finding.total() - count));
    }
    text
}

fn cut(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    line.chars().take(COLUMNS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_at_80_columns() {
        assert_eq!(cut(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(cut(&"é".repeat(81)), format!("{}…", "é".repeat(79)));
    }
}
