//! `--tables csv`: the tables that a recording makes and frees, one line an event, so that a
//! program in any language can try a policy.
//!
//! The events do not depend on the policy. The page numbers do: here each table gets a page from
//! the allocator and gives it back, so that a number names one table at a time.
use super::args::ReplayArgs;
use super::causes::START;
use super::input::trace::Trace;
use super::own_policy::PolicyOptions;
use super::platform::RecordedX86;
use super::setup::SoloTrace;
use super::workers::watch::Watch;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Layered, Policy};
use ptarmigan_hosted::Delivery;
use ptarmigan_term::{Context, Failure, print};
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first line.
const HEAD: &str = "event,task,cpu,level,call,page\n";
/// Text is written in pieces of so many bytes.
const PIECE: usize = 1 << 16;

/// Prints the events of the trace that the arguments name.
///
/// # Errors
/// If they name several, and as [`write_table_events`].
pub(super) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let path = match args.traces.as_slice() {
        [] => None,
        [one] => Some(one.as_path()),
        all => {
            let n = all.len();
            return Err(Failure::new(format!(
                "--tables takes one trace, and the line has {n}: give it once for each"
            )));
        }
    };
    let options = PolicyOptions { memory: args.memory, large_pages: args.large_pages };
    write_table_events(Trace::open_or_default(path)?, &options, &mut print::stdout)
}

/// Replays a recording on x86-64, with one worker, and passes the events of its tables to `write`
/// as CSV, in order and in pieces that end with a line.
///
/// The numbers of events are as `ptarmigan inspect --events` prints them. The root of the first
/// space comes before all and has event 0, too. Tables that are left after the last event have no
/// line for their end.
///
/// # Errors
/// If the machine cannot be set up, memory runs out, or `write` fails, which ends the replay.
pub fn write_table_events(
    trace: Trace,
    options: &PolicyOptions,
    write: &mut (dyn FnMut(&str) -> Result<(), Failure> + Send),
) -> Result<(), Failure> {
    let solo = SoloTrace::new(trace);
    let setup = options.setup(&solo);
    let fresh = setup.fresh()?;
    let plain = fresh.host().plain_of(fresh.source()).context("policy")?;
    let layered = Layered::new(TableEvents::new(fresh.host().frames(), &solo, write), plain);
    let layered = layered.context("layers")?;
    let events = layered.layer();
    let machine = fresh.machine(&layered as &dyn Policy, RecordedX86::NO_MMU, Delivery::AtOnce)?;
    let ran = fresh.run(&machine, vec![&mut TableWatch(events)], None);
    // A write that fails lets memory run out.
    events.finish()?;
    setup.check_memory(&ran?.outcome)
}

/// Writes an event for each table that a policy hands out or gets back, in a pass with one worker.
struct TableEvents<'a> {
    frames: &'a Frames,
    solo: &'a SoloTrace,
    /// Index of the operation that is being executed.
    now: AtomicU32,
    out: Mutex<TableText<'a>>,
}

/// The text that is not written yet.
struct TableText<'a> {
    text: String,
    write: &'a mut (dyn FnMut(&str) -> Result<(), Failure> + Send),
    failure: Option<Failure>,
}

impl TableText<'_> {
    fn flush(&mut self) {
        if self.failure.is_none() {
            self.failure = (self.write)(&self.text).err();
        }
        self.text.clear();
    }
}

impl<'a> TableEvents<'a> {
    fn new(
        frames: &'a Frames,
        solo: &'a SoloTrace,
        write: &'a mut (dyn FnMut(&str) -> Result<(), Failure> + Send),
    ) -> Self {
        let out = TableText { text: HEAD.to_owned(), write, failure: None };
        TableEvents { frames, solo, now: AtomicU32::new(START), out: Mutex::new(out) }
    }

    fn out(&self) -> MutexGuard<'_, TableText<'a>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number and the task of the event that is being replayed; `None` after the last.
    fn event(&self) -> Option<(u64, u32)> {
        let now = self.now.load(Relaxed);
        if now == START {
            return Some((0, 0));
        }
        let step = *self.solo.program().origins.get(now as usize)?;
        let trace = self.solo.trace();
        Some((trace.event_number(step), trace.steps.get(step as usize)?.task))
    }

    fn add(&self, pin: &Pinned<'_>, level: Level, call: &str, at: PhysAddr) {
        let Some((event, task)) = self.event() else { return };
        let mut out = self.out();
        let (cpu, level, page) = (pin.cpu().0, level.0, at.pfn().0);
        // A `String` takes everything.
        let _ = writeln!(out.text, "{event},{task},{cpu},{level},{call},{page}");
        if out.text.len() >= PIECE {
            out.flush();
        }
    }

    /// Writes the rest.
    fn finish(&self) -> Result<(), Failure> {
        let mut out = self.out();
        out.flush();
        out.failure.take().map_or(Ok(()), Err)
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for TableEvents<'_> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.frames)
    }

    fn alloc(
        &self,
        _: &P,
        pin: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        if self.out().failure.is_some() {
            // Ends the replay.
            return Err(NoFrame::new(0, pin.node(), self.frames.node_free(pin.node())));
        }
        let page = inner()?;
        self.add(pin, level, "alloc", page.addr());
        Ok(page)
    }

    fn adopted(&self, _: &P, pin: &Pinned<'_>, page: &Clean) {
        self.add(pin, page.level(), "alloc", page.addr());
    }

    fn freeing(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.add(pin, level, "free", at);
    }
}

/// Tells [`TableEvents`] which operation is being executed.
struct TableWatch<'a, 'e>(&'a TableEvents<'e>);

impl Watch for TableWatch<'_, '_> {
    fn starts(&mut self) {
        self.0.now.store(0, Relaxed);
    }

    fn done(&mut self, at: usize) {
        self.0.now.store(at as u32 + 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_ends_the_replay_with_its_own_error() {
        let trace = Trace::open("rustc".as_ref()).expect("a shipped recording");
        let (mut pieces, mut rest) = (0, String::new());
        let mut write = |text: &str| {
            pieces += 1;
            rest = text.to_owned();
            if pieces == 2 { Err(Failure::new("the disk is full")) } else { Ok(()) }
        };
        let failure =
            write_table_events(trace, &PolicyOptions::default(), &mut write).expect_err("a failure");
        assert_eq!((failure.message(), pieces), ("the disk is full", 2));
        assert!(rest.ends_with('\n') && rest.len() < PIECE + 100, "pieces end with a line");
    }
}
