//! Describes the recorded machine by its settings, and names programs that are not in a recording.
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};
use ptarmigan_trace::{Settings, UnreadReason};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The most programs that the text names.
const NAMED: usize = 4;

/// Programs of one name that ran and are not in the recording, for one reason.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct UnreadPrograms {
    /// Their name. `None` if it is not known.
    pub name: Option<String>,
    /// The reason.
    pub why: &'static str,
    /// How many they are.
    pub programs: u64,
}

impl UnreadPrograms {
    /// Makes rows of counts, the largest first.
    pub(super) fn most_first(counts: BTreeMap<(Option<String>, UnreadReason), u64>) -> Vec<Self> {
        let row = |((name, why), programs): ((_, UnreadReason), _)| Self { name, why: why.name(), programs };
        let mut rows: Vec<Self> = counts.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.programs));
        rows
    }
}

/// Serializes settings as a map, in the order of the trace.
pub(super) fn as_map<S: Serializer>(settings: &Settings, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(settings.iter())
}

/// Returns the machine in one line. `None` for a trace without settings.
pub(super) fn line(settings: &Settings) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(cpus) = settings.get("cpus online").and_then(|cpus| cpus.parse().ok()) {
        parts.push(several(cpus, "CPU"));
    }
    if let Some(kernel) = settings.get("kernel") {
        let end = kernel.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(kernel.len());
        parts.push(format!("Linux {}", &kernel[..end]));
    }
    let huge = huge_size(settings);
    let sizes = settings.block_sizes();
    for (sizes, how) in [(&sizes.always, "always"), (&sizes.advised, "where asked for")] {
        let sizes = sizes.iter().filter(|size| **size != huge);
        let sizes: Vec<String> = sizes.map(|kib| Bytes(kib.saturating_mul(1 << 10)).to_string()).collect();
        if let Some((last, others)) = sizes.split_last() {
            let others = if others.is_empty() { String::new() } else { others.join(", ") + " and " };
            parts.push(format!("{others}{last} blocks {how}"));
        }
    }
    // A kernel without sizes has one setting, which holds for its huge pages.
    let of_size = settings.get(&format!("hugepages-{huge}kB/enabled")).filter(|value| *value != "inherit");
    if let Some(how) = of_size.or_else(|| settings.get("enabled")) {
        let how = if how == "madvise" { "where asked for" } else { how };
        parts.push(format!("huge pages {how}"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the size of a huge page in KiB: the range of one last-level table of 64-bit entries.
fn huge_size(settings: &Settings) -> u64 {
    let page = settings.get("page bytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(4096_u64);
    (page / 8).saturating_mul(page) >> 10
}

/// Names a few programs that are not in the recording. `None` if it names none.
pub(super) fn named(unread: &[UnreadPrograms]) -> Option<String> {
    let rows: Vec<&UnreadPrograms> = unread.iter().filter(|row| row.name.is_some()).collect();
    let one = |row: &&UnreadPrograms| {
        let times = if row.programs == 1 { String::new() } else { format!("{} ", Count(row.programs)) };
        format!("{times}{} ({})", row.name.as_deref().unwrap_or_default(), row.why)
    };
    let mut names: Vec<String> = rows.iter().take(NAMED).map(one).collect();
    if rows.len() > NAMED {
        names.push("…".to_owned());
    }
    (!names.is_empty()).then(|| format!("such as {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        list.iter().for_each(|(name, value)| settings.add(name, value).expect("a good setting"));
        settings
    }

    #[test]
    fn a_machine_is_one_line() {
        assert_eq!(line(&Settings::default()), None);
        let machine = [
            ("kernel", "6.12.3-rc1-local"),
            ("cpus online", "2"),
            ("enabled", "madvise"),
            ("hugepages-16kB/enabled", "always"),
            ("hugepages-32kB/enabled", "inherit"),
            ("hugepages-64kB/enabled", "always"),
            ("hugepages-1024kB/enabled", "never"),
            ("hugepages-2048kB/enabled", "inherit"),
        ];
        let expected = "2 CPUs, Linux 6.12.3, 16 KiB and 64 KiB blocks always, 32 KiB blocks where asked for, \
                        huge pages where asked for";
        assert_eq!(line(&settings(&machine)).as_deref(), Some(expected));
        let old = [("kernel", "6.1"), ("enabled", "always")];
        assert_eq!(line(&settings(&old)).as_deref(), Some("Linux 6.1, huge pages always"));
        let never = [("enabled", "always"), ("hugepages-2048kB/enabled", "never")];
        assert_eq!(line(&settings(&never)).as_deref(), Some("huge pages never"));
    }

    #[test]
    fn a_few_programs_are_named_those_without_a_name_are_not() {
        let key = |name: &str, why| (Some(name.to_owned()), why);
        let mut counts = BTreeMap::from([
            (key("cc1", UnreadReason::Ended), 12),
            (key("wine", UnreadReason::Narrow), 1),
            ((None, UnreadReason::Ended), 99),
        ]);
        let text = |counts: &BTreeMap<_, _>| named(&UnreadPrograms::most_first(counts.clone()));
        assert_eq!(text(&counts).as_deref(), Some("such as 12 cc1 (ended), wine (32 bits)"));
        counts.extend(["a", "b", "c"].map(|name| (key(name, UnreadReason::Changed), 3)));
        let many = "such as 12 cc1 (ended), 3 a (changed), 3 b (changed), 3 c (changed), …";
        assert_eq!(text(&counts).as_deref(), Some(many));
        assert_eq!(text(&BTreeMap::new()), None);
    }
}
