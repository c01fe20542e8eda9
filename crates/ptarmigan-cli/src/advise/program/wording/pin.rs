//! Advice to keep a program on one CPU, so that its processes ask no other to flush its TLB.
//!
//! A process whose other threads sleep needs a flush on the CPU that it runs on. It asks CPUs on
//! which it ran before as well, because Linux takes a CPU out of the mask of a space late. Pinned,
//! it has run on one CPU alone:
//!
//! ```text
//!  free     CPU 0  ── fork, write: flush ──┐ request
//!           CPU 1  ── idle, or another ◄───┘ flushes in vain
//!  pinned   CPU 0  ── fork, write: flush ──
//! ```
//!
//! The price is the other CPUs: all processes of the program, and the programs that they start,
//! share the one. Whether that takes longer is a matter of their CPU time, which is compared with
//! the length of the recording.
use super::super::super::advice::{Advice, Details, ProgramShare, Rejected, To, Verdict};
use super::super::super::expect::{Expect, Figure};
use super::super::super::figures::{LEAST_SHARE, Saved, percent};
use super::super::rejected::not;
use super::Look;
use ptarmigan_replay::price::{Answer, KernelTime, PinnableProgram, Requests};
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};

/// The kind of this advice.
pub const PIN: &str = "pin";
/// The fewest requests that are worth a setting.
const LEAST_REQUESTS: u64 = 1000;
/// Nanoseconds of a request where no price was measured: about that of two CPUs of one socket.
const NOMINAL_NS: f64 = 2000.0;
/// More than this part of the requests has to meet no thread of the process.
const IN_VAIN: f64 = 0.5;

impl Look<'_> {
    /// Lists the programs that sent requests, each as an index of the facts.
    pub fn requests<'r>(&self, row: &'r Requests) -> impl Iterator<Item = (usize, &'r PinnableProgram)> {
        row.programs().iter().map(|one| (self.facts.recorded_as(one.name.as_deref()), one))
    }

    /// Advises to pin each program whose requests are worth it. `answer` is that of `row`, and
    /// `kernel` the time that requests are a part of.
    pub fn pin(&self, row: &Requests, answer: Result<Answer, String>, kernel: KernelTime) -> Vec<Verdict> {
        let unmeasured =
            |reason| vec![Verdict::Not(Rejected { kind: PIN, to: To::of(PIN), measured: false, reason })];
        if let Err(why) = answer {
            return unmeasured(why);
        }
        let sent: u64 = row.programs().iter().map(|one| one.requests).sum();
        let pinnable: u64 = row.programs().iter().map(|one| one.pinnable).sum();
        let sent_by = |one: &PinnableProgram| {
            let threads = several(one.requests - one.pinnable, "request");
            format!("{threads} of {} are of processes whose threads run at once", Count(one.requests))
        };
        let all = PinnableProgram { requests: sent, pinnable, ..PinnableProgram::default() };
        if pinnable < LEAST_REQUESTS {
            let why = match sent - pinnable {
                threads if threads >= LEAST_REQUESTS => format!(": {}", sent_by(&all)),
                _ => String::new(),
            };
            let found = several(pinnable, "request");
            return vec![not(PIN, format!("{found} to other CPUs would be spared{why}"))];
        }
        if kernel.ns <= 0.0 {
            return unmeasured("the time of the kernel that requests are a part of is not known".to_owned());
        }
        let (mut advised, mut reasons) = (Vec::new(), Vec::new());
        for (program, one) in self.requests(row).filter(|(_, one)| one.pinnable > 0) {
            match self.pin_one(program, one, &all, kernel) {
                Ok(advice) => advised.push(Verdict::Advised(Box::new(advice))),
                Err(why) => reasons.push(why),
            }
        }
        match reasons.into_iter().next().filter(|_| advised.is_empty()) {
            Some(why) => vec![not(PIN, why)],
            None => advised,
        }
    }

    /// Returns the advice for one program.
    ///
    /// # Errors
    /// Why there is none, as a sentence without a full stop.
    fn pin_one(
        &self,
        program: usize,
        one: &PinnableProgram,
        all: &PinnableProgram,
        kernel: KernelTime,
    ) -> Result<Advice, String> {
        let facts = &self.facts.programs[program];
        let name = &facts.name;
        let spared = format!("{} of {name} to other CPUs", several(one.pinnable, "request"));
        let price = self.prices.and_then(|prices| prices.middle.request);
        let seconds = one.pinnable as f64 * price.unwrap_or(NOMINAL_NS) / 1e9;
        let part = seconds * 1e9 / kernel.ns;
        if one.pinnable < LEAST_REQUESTS {
            return Err(format!("{spared}: too few for a setting"));
        }
        if part < LEAST_SHARE {
            return Err(format!("{spared} take {} of the time in the kernel", percent(part)));
        }
        if facts.is_wrapper() && 2 * one.pinnable < all.requests {
            return Err(format!("{spared}, which starts other programs: these would share the CPU"));
        }
        if one.met as f64 > one.pinnable as f64 * (1.0 - IN_VAIN) {
            return Err(format!("{spared}: {} met a thread that needed the flush", Count(one.met)));
        }
        let (run_time, uncertain) = self.on_one_cpu(program);
        let programs = [name.clone()];
        let expect = Expect::new(Figure::Requests, &programs, one.pinnable as f64, self.facts, self.whole);
        let by = match price {
            Some(_) => "by the price of a request measured here",
            None => "at a nominal price of 2 µs a request",
        };
        let threads = match one.requests - one.pinnable {
            0 => String::new(),
            threads => {
                format!(" {} more are of processes whose threads run at once, and stay.", Count(threads))
            }
        };
        let share = ProgramShare { name: name.clone(), count: one.pinnable, seconds: Some(seconds) };
        Ok(Advice {
            kind: PIN,
            to: To::of(PIN),
            title: format!(
                "keep {name} on one CPU: {} to other CPUs to flush their TLBs, of which {} met one of its \
                 threads",
                several(one.pinnable, "request"),
                Count(one.met),
            ),
            figure: format!(
                "Saves {} {by}: {} of the time in the kernel.{threads} {run_time}",
                Time::from_secs(seconds),
                percent(part),
            ),
            how: format!(
                "taskset -c CPU {name} … starts it on a CPU; CPUAffinity=CPU in the unit does so for a service \
                 of systemd. The programs that it starts inherit the CPU. Several instances: each its own."
            ),
            not_measured:
                "waits for the CPU while another process has it; caches, which a process that stays \
                           finds warm; memory of another node."
                    .to_owned(),
            value: self.part_of_cpu(seconds),
            without: self.whole.clone(),
            with: self.whole.clone(),
            saved: Saved::between(self.whole, self.whole),
            details: Details {
                programs: vec![share],
                expect: expect.into_iter().collect(),
                seconds: Some(seconds),
                uncertain,
                ..Details::default()
            },
            linux: None,
            variants: Vec::new(),
        })
    }

    /// Returns what one CPU means for the run time of a program, as a sentence, and whether it may
    /// be a loss.
    fn on_one_cpu(&self, program: usize) -> (String, bool) {
        let (used, elapsed) = (self.facts.cpu_with_started(program), self.recorded.trace().account.elapsed());
        let time = |micros: u64| Time::from_micros(micros as f64);
        if used == 0 {
            return (
                "Whether one CPU is enough is not known: the recording lacks its CPU time.".to_owned(),
                true,
            );
        }
        if used > elapsed {
            let slower =
                format!("On one CPU it would take at least {} instead of {}.", time(used), time(elapsed));
            return (slower, true);
        }
        let enough = format!(
            "It and the programs that it starts used {} of CPU time in {}: one CPU is enough on average.",
            time(used),
            time(elapsed)
        );
        (enough, false)
    }
}
