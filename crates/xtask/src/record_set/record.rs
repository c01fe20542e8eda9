//! The answers on one recording, as `figures/price` keeps them.
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::SystemTime;

/// Most bytes of a file: the repository keeps twenty.
const MOST_BYTES: usize = 20 << 10;

/// The document of `ptarmigan price --json`, as far as it is kept.
#[derive(Deserialize)]
pub struct Priced {
    traces: Vec<Answers>,
}

/// The answers on a recording. Sentences that every recording has are left out.
#[derive(Deserialize, Serialize)]
struct Answers {
    faults: u64,
    forks: u64,
    spaces: u64,
    kernel_seconds: f64,
    kernel_recorded: bool,
    lost: u64,
    answered: Vec<KeptAnswer>,
    refused: Vec<Refused>,
}

#[derive(Deserialize, Serialize)]
struct KeptAnswer {
    name: String,
    share: Option<f64>,
    counted: String,
    figures: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    judgement: Option<Value>,
}

#[derive(Deserialize, Serialize)]
struct Refused {
    name: String,
    reason: String,
}

/// The machine of a recording.
#[derive(Serialize)]
struct RecordedOn {
    cpus: usize,
    kernel: String,
}

/// A file of `figures/price`.
#[derive(Serialize)]
pub struct PriceRecord {
    name: String,
    /// The day on which it was recorded.
    date: String,
    machine: RecordedOn,
    #[serde(flatten)]
    answers: Answers,
}

impl PriceRecord {
    /// Makes the record of a recording that was made on this machine, at `recorded`.
    ///
    /// # Errors
    /// If the document has no recording, or the machine does not say its kernel.
    pub fn new(name: &str, priced: Priced, recorded: SystemTime) -> Result<Self, String> {
        let answers = priced.traces.into_iter().next().ok_or("price: there is no recording")?;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        let kernel = kernel.map_err(|e| format!("/proc/sys/kernel/osrelease: {e}"))?;
        let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let date = Timestamp::try_from(recorded).map_err(|e| format!("the date of {name}: {e}"))?;
        let date = date.strftime("%Y-%m-%d").to_string();
        Ok(PriceRecord { name: name.to_owned(), date, machine: RecordedOn { cpus, kernel }, answers })
    }

    /// Returns how many proposals have an answer.
    pub fn answered(&self) -> usize {
        self.answers.answered.len()
    }

    /// Returns how many have none.
    pub fn refused(&self) -> usize {
        self.answers.refused.len()
    }

    /// Returns the file: a proposal a line, so that changes are seen.
    ///
    /// # Errors
    /// If it is larger than the repository keeps.
    pub fn text(&self) -> Result<String, String> {
        let mut record = serde_json::to_value(self).map_err(|e| e.to_string())?;
        let mut text = "{\n".to_owned();
        let lists = ["answered", "refused"].map(|list| (list, record[list].take()));
        for (key, value) in record.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            text += &format!("  \"{key}\": {value},\n");
        }
        for (at, (list, rows)) in lists.iter().enumerate() {
            let rows = rows.as_array().into_iter().flatten().map(|row| format!("    {row}"));
            let rows = rows.collect::<Vec<_>>().join(",\n");
            let end = if at + 1 < lists.len() { "," } else { "" };
            text += &format!("  \"{list}\": [\n{rows}\n  ]{end}\n");
        }
        text += "}\n";
        match text.len() {
            most if most > MOST_BYTES => Err(format!("its answers take {most} bytes, of {MOST_BYTES}")),
            _ => Ok(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn record(reason: &str) -> PriceRecord {
        let priced = serde_json::json!({ "schema": 1, "traces": [{
            "faults": 9, "forks": 1, "spaces": 2, "kernel_seconds": 0.5, "kernel_recorded": false, "lost": 0,
            "name": "a", "answered": [{ "name": "blocks", "claim": "long", "share": 0.5, "counted": "Some.",
                "figures": [{ "name": "faults saved at 64K", "value": 50.0, "unit": "%" }] }],
            "refused": [{ "name": "kpti", "title": "long", "reason": reason }] }] });
        let at = UNIX_EPOCH + Duration::from_secs(86_400 * 365);
        PriceRecord::new("a", serde_json::from_value(priced).unwrap(), at).unwrap()
    }

    #[test]
    fn a_file_has_a_line_for_each_proposal() {
        let record = record("no calls");
        let text = record.text().unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::to_value(&record).unwrap());
        assert_eq!((read["date"].as_str(), read["faults"].as_u64()), (Some("1971-01-01"), Some(9)));
        assert!(text.contains("\n    {\"name\":\"kpti\",\"reason\":\"no calls\"}\n"), "{text}");
        assert!(!text.contains("long"), "{text}");
    }

    #[test]
    fn answers_that_are_too_long_are_refused() {
        assert!(record(&"a".repeat(MOST_BYTES)).text().unwrap_err().contains("of 20480"));
    }
}
