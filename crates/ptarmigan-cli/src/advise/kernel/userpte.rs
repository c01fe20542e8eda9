//! `userpte=` of a 32-bit kernel with high memory.
//!
//! The recording is moved to 3 GiB and replayed with leaf tables in high memory, in low memory, and
//! as `auto` decides. High tables cost a window each time that they are opened. So low ones are
//! better as long as low memory lasts.
use super::super::advice::{Advice, Details, Rejected, To, Variant, Verdict};
use super::super::figures::{Figures, Saved, percent};
use super::super::measure::{Measure, Side};
use ptarmigan::params::{AutoParams, UserPte};
use ptarmigan_replay::{PlacedMachine, PlacedRun, PlacedTrace, SoloTrace};
use ptarmigan_term::Count;
use ptarmigan_term::Failure;

const KIND: &str = "userpte";
/// The machine: 4 GiB, of which 768 MiB are low memory.
const MACHINE: PlacedMachine =
    PlacedMachine { memory: 4 << 30, low: 768 << 20, touch_data: false, copies: 1 };

/// The fewest windows that count as a saving.
const LEAST_WINDOWS: u64 = 256;

/// Compares the placements.
pub fn advise(recorded: &SoloTrace, measure: &Measure) -> Result<Verdict, Failure> {
    let not = |measured, reason: String| {
        Ok(Verdict::Not(Rejected { kind: KIND, to: To::Kernel, measured, reason }))
    };
    measure.say("replaying with each userpte=");
    let placed = match PlacedTrace::new(recorded.trace().clone()) {
        Ok(placed) => placed,
        Err(why) => {
            return not(false, format!("the program does not fit a 32-bit machine: {}", why.message()));
        }
    };
    let high = match placed.run(&MACHINE, UserPte::High) {
        Ok(run) => run.tables,
        Err(why) => return not(false, format!("a 32-bit machine of 4 GiB is too small: {}", why.message())),
    };
    let auto = placed.run(&MACHINE, UserPte::Auto(AutoParams::default()));
    // Memory may run out.
    let low = placed.run(&MACHINE, UserPte::NoHigh);
    let (name, chosen) = match (low, auto) {
        (Ok(PlacedRun { tables, .. }), _) => ("nohigh", tables),
        (Err(_), Ok(PlacedRun { tables, .. })) => ("auto", tables),
        (Err(_), Err(_)) => return not(true, "only userpte=high lasts, which is the default".to_owned()),
    };
    let spared = high.opened.saturating_sub(chosen.opened);
    if spared < LEAST_WINDOWS {
        let reason =
            format!("userpte={name} saves {} of {} windows on tables", Count(spared), Count(high.opened));
        return not(true, reason);
    }
    let faults = recorded.trace().faults.max(1);
    let figures = Figures::of(&[measure.once(Side { trace: recorded, on: measure.usual })?]);
    let saved = Saved::between(&figures, &figures);
    let variants = vec![Variant::new("x86-64, where userpte= does not exist", &figures)];
    Ok(Verdict::Advised(Box::new(Advice {
        kind: KIND,
        to: To::Kernel,
        title: format!("on a 32-bit machine: userpte={name}"),
        figure: format!(
            "Of {} leaf tables {} are in high memory, and with the default {}. {} of {} windows on them are not \
             opened ({}, {:.2} for each fault). 4 GiB of memory, 768 MiB of them low.",
            Count(chosen.tables),
            Count(chosen.high),
            Count(high.high),
            Count(spared),
            Count(high.opened),
            percent(spared as f64 / high.opened as f64),
            spared as f64 / faults as f64,
        ),
        how: "the boot parameter as above; no other machine has it.".to_owned(),
        not_measured: "what a window costs there, other programs that need low memory, machines of another \
                       size (`ptarmigan-papers userpte` has those)."
            .to_owned(),
        value: 0.0,
        without: figures.clone(),
        with: figures,
        saved,
        details: Details::default(),
        linux: None,
        variants,
    })))
}
