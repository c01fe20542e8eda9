//! The changes that a call has made: pages that went, moved and came.
use super::moment::Effect;
use ptarmigan_trace::Kind;
use std::ops::Range;

/// Runs of pages, in order.
type Runs = Vec<Range<u64>>;

/// Calls `each` with the changes between the pages that were mapped `before` a call and those that
/// are mapped `now`: first the pages that went, then those that moved, then those that came.
pub fn changes(kind: &Kind, before: &[Runs; 2], now: &[Runs; 2], each: &mut dyn FnMut(Effect)) {
    let (old, mut new) = (joined(before), joined(now));
    let (mut gone, mut moved) = (Vec::new(), Vec::new());
    match *kind {
        Kind::Mremap { from, old_pages, to, new_pages, .. } if from != to => {
            let kept = from..from.saturating_add(old_pages.min(new_pages));
            each_less(&old, std::slice::from_ref(&kept), |run| gone.push(run));
            each_both(&old, &kept, |run| moved.push(run));
            // The rest of the new place came with the call.
            let at: Runs = moved.iter().map(|run| run.start - from + to..run.end - from + to).collect();
            let mut came = Vec::new();
            each_less(&new, &at, |run| came.push(run));
            new = came;
            for run in moved {
                let pages = run.end - run.start;
                each_gone(&mut gone, each);
                each(Effect::Moved { from: run.start, to: run.start - from + to, pages });
            }
        }
        _ => each_less(&old, &new, |run| gone.push(run)),
    }
    each_gone(&mut gone, each);
    let came = |run: Range<u64>| each(Effect::Mapped { start: run.start, pages: run.end - run.start });
    each_less(&new, &old, came);
}

fn each_gone(gone: &mut Runs, each: &mut dyn FnMut(Effect)) {
    for run in gone.drain(..) {
        each(Effect::Unmapped { start: run.start, pages: run.end - run.start });
    }
}

/// Returns the runs of two ranges in order, each page once.
fn joined(runs: &[Runs; 2]) -> Runs {
    let mut all: Runs = runs.iter().flatten().cloned().collect();
    all.sort_unstable_by_key(|run| run.start);
    all.dedup_by(|run, before| {
        let overlaps = run.start <= before.end;
        if overlaps {
            before.end = before.end.max(run.end);
        }
        overlaps
    });
    all
}

/// Calls `each` with the parts of `runs` that are in `range`.
fn each_both(runs: &[Range<u64>], range: &Range<u64>, mut each: impl FnMut(Range<u64>)) {
    for run in runs {
        let part = run.start.max(range.start)..run.end.min(range.end);
        if part.start < part.end {
            each(part);
        }
    }
}

/// Calls `each` with the parts of `runs` that are in none of `others`. Both are in order.
fn each_less(runs: &[Range<u64>], others: &[Range<u64>], mut each: impl FnMut(Range<u64>)) {
    let mut others = others.iter().peekable();
    for run in runs {
        let mut start = run.start;
        while let Some(other) = others.peek().filter(|other| other.start < run.end) {
            if other.start > start {
                each(start..other.start);
            }
            start = start.max(other.end);
            if other.end > run.end {
                break;
            }
            others.next();
        }
        if start < run.end {
            each(start..run.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, before: &[Range<u64>], now: &[Range<u64>]) -> Vec<Effect> {
        let mut effects = Vec::new();
        let runs = |runs: &[Range<u64>]| [runs.to_vec(), Vec::new()];
        changes(&kind, &runs(before), &runs(now), &mut |effect| effects.push(effect));
        effects
    }

    fn gone(start: u64, pages: u64) -> Effect {
        Effect::Unmapped { start, pages }
    }

    fn came(start: u64, pages: u64) -> Effect {
        Effect::Mapped { start, pages }
    }

    #[test]
    fn pages_go_and_come_in_runs() {
        let call = Kind::Madvise { start: 0, pages: 99, advice: 4 };
        assert_eq!(of(call, &[3..9, 20..30], &[3..9, 20..30]), []);
        let went = [gone(3, 1), gone(6, 3), gone(20, 5), gone(26, 4)];
        assert_eq!(of(call, &[3..9, 20..30], &[4..6, 25..26]), went);
        assert_eq!(
            of(call, std::slice::from_ref(&(4..6)), &[0..8, 9..10]),
            [came(0, 4), came(6, 2), came(9, 1)]
        );
    }

    #[test]
    fn a_move_takes_its_pages_along() {
        let call = Kind::Mremap { from: 10, old_pages: 10, to: 100, new_pages: 5, keep: false };
        // Two pages move, one lies behind the new length, one lay at the new place, one is new.
        let effects = of(call, &[12..14, 18..19, 104..105], &[102..104, 101..102]);
        let moved = Effect::Moved { from: 12, to: 102, pages: 2 };
        assert_eq!(effects, [gone(18, 1), gone(104, 1), moved, came(101, 1)]);
    }
}
