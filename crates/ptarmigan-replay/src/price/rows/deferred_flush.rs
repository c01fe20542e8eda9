//! Lets other CPUs flush later: pages that a call took away are kept until each CPU has flushed by
//! itself, at its next tick or switch.
use crate::Cause;
use crate::price::{About, Answer, Moment, Row, Unit, Whole, percent};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;

/// Counts requests of calls.
pub struct DeferredFlush;

/// Calls that only take pages away. The others change permissions or places, which other CPUs must
/// not see late.
const FREEING: [Cause; 4] = [Cause::Munmap, Cause::Madvise, Cause::Brk, Cause::Mmap];

impl Row for DeferredFlush {
    fn about(&self) -> About {
        About {
            name: "deferred-flush",
            title: "flush other CPUs later, when pages were freed (LATR, LUF)",
            reference: "Kumar et al., LATR, ASPLOS 2018; B. Park, LUF, series for Linux (2024)",
            claim: "LATR: munmap takes 70.8 % less time; LUF: 97 % fewer requests of llama.cpp when \
                    memory is reclaimed",
        }
    }

    fn event(&mut self, _: &Moment<'_>) {}

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let linux = whole.flushes()?;
        let (all, calls) = (linux.requested.total(), linux.calls.requested.total());
        let of = |cause: Cause| {
            let rows = linux.by_cause.iter().filter(|row| row.cause == cause);
            rows.map(|row| row.requested.total()).sum::<u64>()
        };
        let later: u64 = FREEING.into_iter().map(of).sum();
        let mut answer = Answer::default();
        answer.figure("requests sent", all as f64, "requests");
        answer.figure("requests after munmap", of(Cause::Munmap) as f64, "requests");
        answer.figure("requests after calls", calls as f64, "requests");
        answer.figure("requests that can be later", later as f64, "requests");
        answer.figure("of all requests", percent(later, all), "%");
        answer.saves(Unit::Request, later as i64);
        answer.counted = format!(
            "{} of {} ({:.1} %) came from calls that free pages, {} of these from munmap.",
            Count(later),
            several(all, "request"),
            percent(later, all),
            Count(of(Cause::Munmap)),
        );
        answer.cost = "Freed pages and their addresses stay unused until each CPU has flushed.".to_owned();
        answer.when_not = format!(
            "It leaves {}: {} after mprotect and mremap, which must be seen at once, {} of faults and forks.",
            several(all - later, "request"),
            Count(calls - later),
            Count(all - calls),
        );
        answer.today = "Neither is in Linux: patches by their authors; ptarmigan's library defers with \
                        Unmapping::Deferred."
            .to_owned();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::tests::{END, START, answer, map, write};
    use ptarmigan_trace::{Kind, Prot};

    #[test]
    fn calls_that_free_pages_can_ask_later() {
        let request = (0, Kind::TlbFlush { pages: 1, reason: 4 });
        let carried_out = (0, Kind::TlbFlush { pages: 1, reason: 3 });
        let events = [
            (0, map(START, 8)),
            (0, write(START)),
            (0, Kind::Mprotect { start: START, pages: 1, prot: Prot(1) }),
            request,
            (0, Kind::Madvise { start: START, pages: 1, advice: libc::MADV_DONTNEED as u16 }),
            request,
            carried_out,
            (0, Kind::Munmap { start: START, pages: 8 }),
            request,
            request,
            (0, END),
        ];
        let found = answer(&events, DeferredFlush).unwrap();
        let values: Vec<f64> = found.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [4.0, 2.0, 4.0, 3.0, 75.0]);
        assert!(found.when_not.starts_with("It leaves 1 request: 1 after mprotect"), "{}", found.when_not);
        assert_eq!((found.savings[0].unit, found.savings[0].count), (Unit::Request, 3));
    }
}
