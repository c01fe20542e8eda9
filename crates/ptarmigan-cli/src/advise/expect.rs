//! Figures that a second recording should show, once a piece of advice is followed.
use super::facts::Facts;
use super::figures::{Figures, LEAST_SHARE, Saved};
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};
use serde::Serialize;

/// A figure that every recording has, of some programs or of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Seconds that forks take, `vfork` included.
    ForkSeconds,
    /// Forks that copy the address space.
    Forks,
    /// Page faults.
    Faults,
    /// Requests to other CPUs to flush their TLBs.
    Requests,
    /// Page-table pages at the ends of address spaces, by Linux's own count.
    VmPteAtEnd,
    /// Tables in the replay of the whole recording: made.
    TablesMade,
    /// The most at once.
    TablesPeak,
    /// At the ends of programs.
    TablesAtEnd,
}

/// A figure without and with the advice.
#[derive(Clone, Debug, Serialize)]
pub struct Expect {
    /// The figure.
    pub figure: Figure,
    /// The programs that it is added up over; none for the whole recording.
    pub programs: Vec<String>,
    /// The figure of this recording.
    pub without: f64,
    /// The figure that a second recording should show.
    pub with: f64,
}

impl Figure {
    /// Returns the unit: of seconds, or the things that are counted.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Figure::ForkSeconds => ("s", "in forks"),
            Figure::Forks => ("fork", ""),
            Figure::Faults => ("fault", ""),
            Figure::Requests => ("request", "to other CPUs"),
            Figure::VmPteAtEnd => ("page-table page", "(VmPTE) at the ends of address spaces"),
            Figure::TablesMade => ("table", "made"),
            Figure::TablesPeak => ("table", "at the peak"),
            Figure::TablesAtEnd => ("table", "at the end of programs"),
        }
    }

    /// Formats an amount of this figure.
    pub fn amount(self, amount: f64) -> String {
        let (thing, which) = self.words();
        let text = match self {
            Figure::ForkSeconds => Time::from_secs(amount).to_string(),
            _ => several(amount.max(0.0).round() as u64, thing),
        };
        if which.is_empty() { text } else { format!("{text} {which}") }
    }

    /// Formats an amount of this figure without its name.
    pub fn bare(self, amount: f64) -> String {
        match self {
            Figure::ForkSeconds => Time::from_secs(amount).to_string(),
            _ => Count(amount.max(0.0).round() as u64).to_string(),
        }
    }

    /// Returns the figure of a recording.
    ///
    /// # Errors
    /// Why the recording does not tell, without a full stop.
    pub fn of(self, programs: &[String], facts: &Facts, whole: &Figures) -> Result<f64, String> {
        let mut chosen = Vec::new();
        for name in programs {
            chosen.push(facts.named(name).ok_or_else(|| format!("no program {name} is in it"))?);
        }
        if programs.is_empty() {
            chosen = facts.programs.iter().collect();
        }
        Ok(match self {
            Figure::ForkSeconds if !facts.timed => return Err("no call was timed in it".to_owned()),
            Figure::ForkSeconds => chosen.iter().map(|p| p.fork_time().ns as f64).sum::<f64>() / 1e9,
            Figure::Forks => chosen.iter().map(|p| p.forks as f64).sum(),
            Figure::Faults => chosen.iter().map(|p| p.faults as f64).sum(),
            Figure::Requests => {
                let counted = chosen.iter().map(|p| p.requests.map(|requests| requests as f64));
                counted.sum::<Option<f64>>().ok_or("flushes of TLBs are not in it")?
            }
            Figure::VmPteAtEnd => {
                let counted = chosen.iter().filter_map(|p| p.tables_at_end);
                if counted.clone().next().is_none() {
                    return Err("Linux's count of tables is not in it".to_owned());
                }
                counted.map(|tables| tables as f64).sum()
            }
            Figure::TablesMade => whole.tables_made as f64,
            Figure::TablesPeak => whole.tables_peak as f64,
            Figure::TablesAtEnd => whole.tables_at_end as f64,
        })
    }
}

impl Expect {
    /// Returns what follows for a figure if it falls by `saved`. `None` if that is less than a
    /// hundredth, or the recording does not have the figure.
    pub fn new(
        figure: Figure,
        programs: &[String],
        saved: f64,
        facts: &Facts,
        whole: &Figures,
    ) -> Option<Self> {
        let without = figure.of(programs, facts, whole).ok()?;
        let pays = saved > 0.0 && saved >= without * LEAST_SHARE && saved <= without;
        pays.then(|| Expect { figure, programs: programs.to_vec(), without, with: without - saved })
    }

    /// Returns the saving.
    pub fn saving(&self) -> f64 {
        self.without - self.with
    }

    /// Returns it as a part of a sentence.
    pub fn text(&self) -> String {
        let number = self.figure.bare(self.without);
        let of =
            if self.programs.is_empty() { String::new() } else { format!(" ({})", self.programs.join(", ")) };
        format!("{} instead of {number}{of}", self.figure.amount(self.with))
    }
}

/// Returns what the savings of a replay mean for a second recording. Faults are those of the
/// programs that change; tables are of the whole.
pub fn from_replay(saved: &Saved, programs: &[String], facts: &Facts, whole: &Figures) -> Vec<Expect> {
    let one = |figure, programs: &[String], saved: i64| {
        (saved >= 8).then(|| Expect::new(figure, programs, saved as f64, facts, whole)).flatten()
    };
    let counted = one(Figure::VmPteAtEnd, programs, saved.tables_at_end);
    let at_end = counted.or_else(|| one(Figure::TablesAtEnd, &[], saved.tables_at_end));
    let all = [
        one(Figure::Faults, programs, saved.faults),
        at_end,
        one(Figure::TablesPeak, &[], saved.tables_peak),
        one(Figure::TablesMade, &[], saved.tables_made),
    ];
    // Tables at the peak and made say the same once more if tables at the end do.
    let mut expects: Vec<Expect> = all.into_iter().flatten().collect();
    if expects.iter().any(|e| matches!(e.figure, Figure::VmPteAtEnd | Figure::TablesAtEnd)) {
        expects.retain(|e| !matches!(e.figure, Figure::TablesMade));
    }
    expects
}
