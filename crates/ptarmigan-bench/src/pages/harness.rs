//! Runs the contenders of the page benchmark against each other.
use super::contender::{PageCase, PageContender, Workload, short};
use super::ours::{LibraryLists, checked, host};
use super::pool::{POOL, PoolContender};
use super::yardstick::{ArrayYardstick, ExchangeYardstick, YARDSTICK};
use super::zeroing::Zeroing;
use super::{cases, threads};
use crate::affinity::AffinityGuard;
use crate::report::{BenchReport, Samples};
use crate::rounds::RoundLine;

/// The library with its quicklists.
pub const OURS: &str = "ptarmigan";
/// The same lists, with pages cleared on every allocation.
const OURS_ZEROING: &str = "ptarmigan-zeroing";
/// The same lists with checks on pages.
pub const CHECKED: &str = "ptarmigan-checked";
/// A contender with its type erased. Every [`PageContender`] is one.
pub trait Entrant {
    /// Returns the name in rows.
    fn name(&self) -> &'static str;

    /// Returns the cases that the contender supports.
    fn cases(&self) -> &'static [PageCase];

    /// Checks the contender's pages. Not timed.
    ///
    /// # Errors
    ///
    /// If a page is not as it should be.
    fn check(&self, sizes: &Workload) -> Result<(), String>;

    /// Runs one round of a case. Returns nanoseconds per page allocated and freed.
    ///
    /// # Errors
    ///
    /// If a thread cannot be a CPU, or there are not enough pages.
    fn measure(&self, case: PageCase, sizes: &Workload) -> Result<f64, String>;

    /// Runs the work of one thread of [`PageCase::TwoThreads`] without the other.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure).
    fn alone(&self, sizes: &Workload) -> Result<f64, String>;

    /// See [`PageContender::finish`].
    ///
    /// # Errors
    ///
    /// If something was lost.
    fn finish(&self) -> Result<(), String>;
}

impl<C: PageContender> Entrant for C {
    fn name(&self) -> &'static str {
        PageContender::name(self)
    }

    fn cases(&self) -> &'static [PageCase] {
        PageContender::cases(self)
    }

    fn check(&self, sizes: &Workload) -> Result<(), String> {
        let n = if self.cases().contains(&PageCase::Large) { sizes.large } else { sizes.batch };
        cases::check(&mut self.cpu(0)?, n)
    }

    fn measure(&self, case: PageCase, sizes: &Workload) -> Result<f64, String> {
        match case {
            PageCase::TwoThreads => threads::apart(self, threads::THREADS, sizes),
            PageCase::ProducerConsumer => threads::passed(self, sizes),
            _ => {
                // Migration between CPUs would measure cold caches. Threads made while this one is
                // pinned would be pinned too, so it is not pinned for the whole run.
                let _here = AffinityGuard::on(0).map_err(|e| format!("cannot stay on one CPU: {e}"))?;
                cases::run(&mut self.cpu(0)?, case, sizes).ok_or_else(short)
            }
        }
    }

    fn alone(&self, sizes: &Workload) -> Result<f64, String> {
        threads::apart(self, 1, sizes)
    }

    fn finish(&self) -> Result<(), String> {
        PageContender::finish(self)
    }
}

/// Measures the library's contenders, the yardstick, and `others`.
///
/// # Errors
///
/// If a machine cannot be set up, or pages are not as they should be or are lost.
pub fn side_by_side(
    rounds: u32,
    sizes: &Workload,
    others: Vec<Box<dyn Entrant + '_>>,
) -> Result<BenchReport, String> {
    let fail = |e: ptarmigan_hosted::HostError| e.to_string();
    // The extra pages are those cached on the other CPU.
    let pages = sizes.most() + 1024;
    let [known, looked_after, cleared] = [host(pages), host(pages), host(pages)];
    let [known, looked_after, cleared] =
        [known.map_err(fail)?, looked_after.map_err(fail)?, cleared.map_err(fail)?];
    let mut field: Vec<Box<dyn Entrant + '_>> = vec![
        Box::new(ArrayYardstick::new(sizes.most())?),
        Box::new(ExchangeYardstick::new(sizes.most())?),
        Box::new(LibraryLists::new(OURS, &known, known.quicklists().map_err(fail)?)),
        Box::new(LibraryLists::new(CHECKED, &looked_after, checked(&looked_after).map_err(fail)?)),
        Box::new(PoolContender::new(pages).map_err(|e| e.to_string())?),
    ];
    let zeroing = LibraryLists::new(OURS_ZEROING, &cleared, cleared.quicklists().map_err(fail)?);
    field.push(Box::new(Zeroing::new(OURS_ZEROING, zeroing)));
    field.extend(others);
    run(rounds, sizes, &field)
}

/// Runs the cases, round by round, contender by contender.
fn run(rounds: u32, sizes: &Workload, field: &[Box<dyn Entrant + '_>]) -> Result<BenchReport, String> {
    let (mut samples, mut alone) = (Samples::default(), Samples::default());
    let named = |who: &dyn Entrant, e: String| format!("{}: {e}", who.name());
    for who in field {
        who.check(sizes).map_err(|e| named(who.as_ref(), e))?;
    }
    let progress = RoundLine::new(rounds);
    for round in 1..=rounds {
        for case in PageCase::ALL {
            for who in field.iter().filter(|w| w.cases().contains(&case)) {
                progress.say(round, &format!("{} {}", case.name(), who.name()));
                let ns = who.measure(case, sizes).map_err(|e| named(who.as_ref(), e))?;
                samples.add(case.name(), who.name(), "", ns);
                if case == PageCase::TwoThreads {
                    let ns = who.alone(sizes).map_err(|e| named(who.as_ref(), e))?;
                    alone.add(case.name(), who.name(), "", ns);
                }
            }
        }
    }
    drop(progress);
    for who in field {
        who.finish().map_err(|e| named(who.as_ref(), e))?;
    }
    let mut report = BenchReport {
        bench: "quicklist",
        arch: None,
        rows: samples.rows("ns/pair"),
        reference: YARDSTICK,
        notes: Vec::new(),
    };
    report.notes = PageCase::ALL.iter().filter_map(|case| gain(&report, case.name())).collect();
    report
        .notes
        .insert(0, format!("Multiples of {OURS}: with its pages cleared, and the best other contender"));
    let alone = BenchReport {
        bench: "",
        arch: None,
        rows: alone.rows("ns/pair"),
        reference: YARDSTICK,
        notes: Vec::new(),
    };
    report.notes.push(beside(&report, &alone));
    Ok(report)
}

/// Returns the lines on how much longer a thread takes beside another one than alone.
fn beside(report: &BenchReport, alone: &BenchReport) -> String {
    let times = |who| {
        let case = PageCase::TwoThreads.name();
        Some(format!(" {who} {:.2}x", report.value(case, who)? / alone.value(case, who)?))
    };
    let times: Vec<String> = [YARDSTICK, OURS, CHECKED, POOL].into_iter().filter_map(times).collect();
    // Two to a line: ratios are large where two threads share a processor.
    let lines: Vec<String> = times.chunks(2).map(|two| two.join(",")).collect();
    format!("Two threads against one:\n{}", lines.join("\n"))
}

/// Returns the line on how many times as long as the library the best contender that clears pages
/// takes.
fn gain(report: &BenchReport, case: &str) -> Option<String> {
    let ours = report.value(case, OURS)?;
    let peers = report.rows.iter().filter(|r| r.case == case && !r.contender.starts_with(OURS));
    let peers = peers.filter(|r| r.contender != YARDSTICK);
    let cleared = report.value(case, OURS_ZEROING)? / ours;
    let best = peers.min_by(|a, b| a.value.total_cmp(&b.value));
    let best = best.map_or(String::new(), |r| format!(", {} {:.1}x", r.contender, r.value / ours));
    Some(format!("{case}: {cleared:.1}x{best}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::contender::Pages;

    const TINY: Workload =
        Workload { windows: 2, pairs: 100, batch: 200, batches: 2, held: 300, large: 400, passed: 3000 };

    #[test]
    fn every_case_has_a_positive_row_for_every_contender() {
        let report = side_by_side(2, &TINY, Vec::new()).expect("the rounds run");
        let json: serde_json::Value =
            serde_json::from_str(&report.json().expect("a document")).expect("JSON");
        assert_eq!(json["bench"], "quicklist");
        let rows = json["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), PageCase::ALL.len() * 5);
        for case in PageCase::ALL {
            for who in [YARDSTICK, OURS, CHECKED, POOL, OURS_ZEROING] {
                let row = rows.iter().find(|r| r["case"] == case.name() && r["contender"] == who);
                let row = row.unwrap_or_else(|| panic!("{} {who}", case.name()));
                assert!(row["value"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
                assert_eq!(row["unit"], "ns/pair");
            }
        }
    }

    #[test]
    fn the_report_fits_a_terminal() {
        // The longest name of a contender.
        let peer = Zeroing::new("buddy_system_allocator", ArrayYardstick::new(TINY.most()).expect("memory"));
        let report = side_by_side(1, &TINY, vec![Box::new(peer)]).expect("a round runs");
        let text = report.text().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(report.notes.len(), 2 + PageCase::ALL.len());
        assert!(report.notes.last().is_some_and(|note| note.contains(OURS)));
    }

    /// Allocates pages as they were freed.
    struct Careless(ArrayYardstick);
    struct Dirty<'a>(<ArrayYardstick as PageContender>::Cpu<'a>);

    impl PageContender for Careless {
        type Cpu<'a> = Dirty<'a>;
        fn name(&self) -> &'static str {
            "careless"
        }
        fn cases(&self) -> &'static [PageCase] {
            &[PageCase::Pair]
        }
        fn cpu(&self, n: usize) -> Result<Dirty<'_>, String> {
            self.0.cpu(n).map(Dirty)
        }
    }

    // SAFETY: 1. is broken on purpose: pages are not zero. Only the check depends on it. 2. as for
    // the inner contender.
    unsafe impl Pages for Dirty<'_> {
        fn alloc(&mut self) -> Option<std::num::NonZeroU64> {
            self.0.alloc()
        }
        unsafe fn free(&mut self, page: std::num::NonZeroU64) {
            // SAFETY: the page is still ours. Lists with links inside pages leave one there.
            unsafe { self.0.entries(page).write(page.get()) };
            // SAFETY: 1. by the contract of this function. 2. is broken on purpose; the inner
            // contender does not depend on it.
            unsafe { self.0.free(page) }
        }
        fn entries(&self, page: std::num::NonZeroU64) -> *mut u64 {
            self.0.entries(page)
        }
    }

    #[test]
    fn a_contender_whose_pages_are_not_zero_is_refused() {
        let careless = || Careless(ArrayYardstick::new(TINY.most()).expect("memory"));
        let refused = side_by_side(1, &TINY, vec![Box::new(careless())]);
        assert!(refused.is_err_and(|e| e.starts_with("careless: ") && e.contains("not zero")));
        let cleared = Zeroing::new("careful", careless());
        assert!(side_by_side(1, &TINY, vec![Box::new(cleared)]).is_ok());
    }

    #[test]
    fn running_out_of_pages_ends_a_measurement_at_once() {
        for case in PageCase::ALL {
            let poor = ArrayYardstick::new(20).expect("memory");
            let measured = poor.measure(case, &Workload { batch: 30, ..TINY });
            assert_eq!(measured.is_err(), case != PageCase::Pair, "{}", case.name());
        }
    }
}
