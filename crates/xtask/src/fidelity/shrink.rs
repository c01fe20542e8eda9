//! Makes a program that fails smaller.
use super::program::Step;

/// Returns the smallest program found for which `fails` still holds. Tries at most `tries`.
pub fn shrink(steps: &[Step], tries: usize, fails: &mut dyn FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut best = steps.to_vec();
    let mut left = tries;
    let mut chunk = best.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut smaller = false;
        while at < best.len() && left > 0 {
            let end = (at + chunk).min(best.len());
            let mut candidate = best.clone();
            candidate.drain(at..end);
            left -= 1;
            if fails(&candidate) {
                best = candidate;
                smaller = true;
            } else {
                at = end;
            }
        }
        if left == 0 || chunk == 1 && !smaller {
            break;
        }
        if !smaller {
            chunk = chunk.div_ceil(2);
        }
    }
    // The calls inside children and threads, one block after the other; and blocks that need not
    // be.
    for at in 0..best.len() {
        let inner = match &best[at] {
            Step::Call(_) => continue,
            Step::Fork(inner) | Step::Thread(inner) | Step::Crowd(inner) => inner.clone(),
        };
        let with = |new: Vec<Step>| {
            let mut candidate = best.clone();
            candidate[at] = match &best[at] {
                Step::Thread(_) => Step::Thread(new),
                Step::Crowd(_) => Step::Crowd(new),
                _ => Step::Fork(new),
            };
            candidate
        };
        let small = shrink(&inner, left / 2, &mut |part| fails(&with(part.to_vec())));
        best = with(small);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::program::Call;

    fn call(n: u64) -> Step {
        Step::Call(Call { name: "brk", args: vec![n] })
    }

    #[test]
    fn what_is_needed_stays() {
        let mut steps: Vec<Step> = (0..100).map(call).collect();
        steps.push(Step::Fork((100..120).map(call).collect()));
        let has = |steps: &[Step], n: u64| {
            super::super::program::Text(steps).to_string().lines().any(|l| l == format!("brk {n:x}"))
        };
        let small = shrink(&steps, 10_000, &mut |s| has(s, 7) && has(s, 61) && has(s, 113));
        assert_eq!(small, [call(7), call(61), Step::Fork(vec![call(113)])]);
    }
}
