//! Commands of GitHub Actions: each finding marks a line of the code under test.
use super::caller::TraceFrame;
use super::finding::Finding;
use super::reports::Reports;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Writes a command for each finding, then the counts as text.
pub(super) fn write(f: &mut fmt::Formatter<'_>, reports: &Reports) -> fmt::Result {
    let here = std::env::current_dir().unwrap_or_default();
    for index in reports.order() {
        writeln!(f, "{}", command(&reports.findings()[index], &here))?;
    }
    write!(f, "ptsan: {}", reports.summary().counts())
}

/// Returns the command of one finding. A path that is relative to the working directory is made
/// absolute: `cargo test` runs in the directory of the package, and commands begin at the
/// repository.
fn command(finding: &Finding, here: &Path) -> String {
    let mut properties = String::new();
    if let Some((file, line, column)) = finding.innermost().as_ref().and_then(TraceFrame::position) {
        let file = resolved(&here.join(file));
        properties.push_str(&format!("file={},line={line},", property(&file.to_string_lossy())));
        if let Some(column) = column {
            properties.push_str(&format!("col={column},"));
        }
    }
    let title = property(&format!("ptsan: {} ({})", finding.kind, finding.severity()));
    format!("::error {properties}title={title}::{}", data(&finding.to_string()))
}

/// Removes `.` and `..` from an absolute path.
fn resolved(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

/// Escapes the message of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_names_no_parent() {
        let file = resolved(&Path::new("/home/me/kernel").join("./tests/../src/./a.rs"));
        assert_eq!(file, Path::new("/home/me/kernel/src/a.rs"));
        assert_eq!(resolved(Path::new("/other/a.rs")), Path::new("/other/a.rs"));
    }

    #[test]
    fn what_ends_a_property_or_a_command_is_escaped() {
        assert_eq!(property("a:b,c%d\r\ne"), "a%3Ab%2Cc%25d%0D%0Ae");
        assert_eq!(data("a:b,c%0A\n::error::"), "a:b,c%250A%0A::error::");
    }
}
