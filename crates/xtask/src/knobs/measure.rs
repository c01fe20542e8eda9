//! Records a program with a knob as it is and turned, and reads the counts.
use super::list::{Knob, KnobProgram};
use super::row::KnobCounts;
use crate::recorder::Recorder;
use crate::settings::Settings;
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The document of `ptarmigan inspect --json`, as far as it is looked at.
#[derive(Deserialize)]
struct Inspected {
    faults: Faults,
    #[serde(default)]
    flushes: Option<Flushes>,
}

#[derive(Deserialize)]
struct Faults {
    user: u64,
    kernel: u64,
}

#[derive(Deserialize)]
struct Flushes {
    requested: Requests,
}

/// Requests between CPUs, by what they flush.
#[derive(Deserialize)]
struct Requests {
    page: u64,
    range: u64,
    full: u64,
}

/// The document of `ptarmigan price --json`.
#[derive(Deserialize)]
struct KnobPriced {
    traces: Vec<TracePrices>,
}

#[derive(Deserialize)]
struct TracePrices {
    answered: Vec<KnobAnswer>,
    refused: Vec<KnobRefused>,
}

#[derive(Deserialize)]
struct KnobAnswer {
    figures: Vec<KnobFigure>,
}

#[derive(Deserialize)]
struct KnobRefused {
    reason: String,
}

#[derive(Deserialize)]
struct KnobFigure {
    name: String,
    value: f64,
}

/// Records programs.
pub struct KnobBench {
    /// The recorder.
    pub recorder: Recorder,
    /// Prices of pages, so that they are not measured for each recording.
    pub model: Option<PathBuf>,
    /// The longest that a program may run.
    pub most: Duration,
}

impl KnobBench {
    /// Records a program once with a knob as it is and once with the knob turned.
    ///
    /// # Errors
    /// If the program fails, or the machine cannot be set or recorded.
    pub fn pair(&self, program: &KnobProgram, built: &[String], knob: Knob) -> Result<KnobCounts, String> {
        let [before, after] = [false, true].map(|turned| {
            let trace = self.recorder.dir().join(if turned { "after.ptrace" } else { "before.ptrace" });
            self.record(&trace, &program.command(built, knob, turned), knob, turned).map(|()| trace)
        });
        let (before, after) = (before?, after?);
        let predicted = self.predicted(knob, &before)?;
        Ok(KnobCounts { before: self.count(knob, &before)?, predicted, after: self.count(knob, &after)? })
    }

    fn record(&self, trace: &Path, command: &[String], knob: Knob, turned: bool) -> Result<(), String> {
        let set = knob.blocks(turned).map(|(kib, value)| Settings::only_blocks(kib, value)).transpose()?;
        let options = ["--method", "tracefs", "--level", "1"];
        let words = command.iter().map(OsStr::new);
        let recorded = self.recorder.record_under(knob.before(turned), trace, &options, words, self.most);
        drop(set);
        let (status, said) = recorded?;
        let failed = || format!("{}: {status}: {}", command.join(" "), said.trim());
        if status.success() { Ok(()) } else { Err(failed()) }
    }

    /// Returns the faults of a recording, or the requests between CPUs.
    fn count(&self, knob: Knob, trace: &Path) -> Result<f64, String> {
        let args = ["inspect".as_ref(), "--json".as_ref(), trace.as_os_str()];
        let Inspected { faults, flushes } = self.recorder.json(&args)?;
        let count = match (knob, flushes) {
            (Knob::Pin, Some(Flushes { requested })) => requested.page + requested.range + requested.full,
            (Knob::Pin, None) => return Err("the recording has no flushes of TLBs".to_owned()),
            (Knob::Blocks | Knob::Switch, _) => faults.user + faults.kernel,
        };
        Ok(count as f64)
    }

    /// Returns the saving that `ptarmigan price` predicts from a recording.
    fn predicted(&self, knob: Knob, trace: &Path) -> Result<f64, String> {
        let row = if knob == Knob::Pin { "requests" } else { "blocks" };
        let mut args = ["price", "--json", "--only", row].map(OsStr::new).to_vec();
        args.push(trace.as_os_str());
        if let Some(model) = &self.model {
            args.extend([OsStr::new("--model"), model.as_os_str()]);
        }
        let priced: KnobPriced = self.recorder.json(&args)?;
        let trace = priced.traces.first().ok_or("price: there is no trace")?;
        if let Some(refused) = trace.refused.first() {
            return Err(format!("price: {}", refused.reason));
        }
        let figures = || trace.answered.iter().flat_map(|answer| &answer.figures);
        let figure = |name: &str| {
            let found = figures().find(|figure| figure.name == name);
            found.map(|figure| figure.value).ok_or_else(|| format!("price: there is no figure: {name}"))
        };
        let saved = |name: &str| Ok(figure("faults on anonymous memory")? * figure(name)? / 100.0);
        match knob {
            Knob::Blocks => saved("faults saved at 64K"),
            Knob::Switch => saved("faults saved at 2M with heaps in steps of 2M"),
            Knob::Pin => figure("requests spared by one CPU"),
        }
    }
}
