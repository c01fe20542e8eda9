//! The account as one line.
use super::{Account, Family, Times};
use crate::terminal::words::{count, several};

impl Account {
    /// Returns the account as a sentence, without a full stop: elapsed time, CPU time in the
    /// kernel, and the times of calls and faults. `None` if the recording has no times.
    pub fn line(&self) -> Option<String> {
        if !self.timed {
            return None;
        }
        let total = self.total();
        let mut parts = vec![seconds(self.elapsed)];
        if total.ended > 0 {
            parts.push(format!(
                "{} of {} CPU-seconds in the kernel",
                number(total.kernel as f64 / 1e6),
                number(total.cpu() as f64 / 1e6)
            ));
        }
        let costs = costs(&total, self.elapsed);
        if !costs.is_empty() {
            parts.push(costs.join(", "));
        }
        Some(parts.join("; "))
    }

    /// Returns remarks on the account, each a sentence.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.timed {
            return remarks;
        }
        let total = self.total();
        let unknown = total.processes.saturating_sub(total.ended);
        if unknown > 0 {
            remarks.push(format!(
                "The CPU time of {} is not known: ended by a signal, or attached to without stops, or not ended.",
                several(unknown, "process")
            ));
        }
        if total.family(Family::Vforks).calls > 0 {
            remarks.push("The time of a vfork includes its child's up to the exec.".to_owned());
        }
        if let Some(nanos) = self.stop_cost {
            remarks.push(format!(
                "Calls were timed between stops; about {} for the stops of each is taken off.",
                seconds_of(nanos as f64 / 1e9)
            ));
        }
        remarks
    }
}

/// Returns the calls and faults that took at least a hundredth of the CPU time or, if that is not
/// known, of the elapsed time.
fn costs(total: &Times, elapsed: u64) -> Vec<String> {
    let all = if total.ended > 0 { total.cpu() } else { elapsed };
    let enough = all as f64 / 1e6 / 100.0;
    let mut costs = Vec::new();
    for family in Family::ALL {
        let time = total.family(family);
        if time.calls > 0 && time.seconds() >= enough {
            let took = if costs.is_empty() { "took " } else { "" };
            let calls = counted(time.calls, family);
            costs.push(format!("{calls} {took}{}", seconds_of(time.seconds())));
        }
    }
    if let Some(micros) = total.faults_about().filter(|micros| *micros as f64 / 1e6 >= enough) {
        let other = if micros > total.faults * DEAREST { " and other calls" } else { "" };
        let faults = count(rounded(total.faults));
        let ending = if total.faults == 1 { "" } else { "s" };
        costs.push(format!("{faults} fault{ending}{other} about {}", seconds(micros)));
    }
    costs
}

/// Microseconds above which a fault cannot be all that the kernel did.
const DEAREST: u64 = 10;

/// Returns a number of calls with their noun.
fn counted(n: u64, family: Family) -> String {
    let noun = family.noun();
    let ending = if n == 1 { "" } else { "s" };
    // The ending belongs to the first word.
    match noun.split_once(' ') {
        Some((first, rest)) => format!("{} {first}{ending} {rest}", count(n)),
        None => format!("{} {noun}{ending}", count(n)),
    }
}

/// Rounds to three digits.
fn rounded(n: u64) -> u64 {
    let unit = 10u64.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(2));
    (n + unit / 2) / unit * unit
}

/// Formats seconds with two digits.
fn number(seconds: f64) -> String {
    match seconds {
        s if s >= 9.95 => format!("{s:.0}"),
        s if s >= 0.995 => format!("{s:.1}"),
        s if s >= 0.0995 => format!("{s:.2}"),
        s => format!("{s:.3}"),
    }
}

/// Formats a time with two digits, as "3.1 s", "36 ms" and "420 µs".
pub fn seconds_of(seconds: f64) -> String {
    match seconds {
        s if s >= 0.0995 => format!("{} s", number(s)),
        s if s >= 0.000_995 => format!("{} ms", number(s * 1e3)),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// Formats microseconds.
fn seconds(micros: u64) -> String {
    seconds_of(micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_digits() {
        let times = [0.94, 12.6, 3.13159, 0.0999, 0.0361, 0.00042].map(seconds_of);
        assert_eq!(times, ["0.94 s", "13 s", "3.1 s", "0.10 s", "36 ms", "420 µs"]);
        assert_eq!(count(rounded(315_728)), "316,000");
        assert_eq!([0, 7, 1234].map(|n| count(rounded(n))), ["0", "7", "1,230"]);
        assert_eq!(counted(1, Family::Mappings), "1 call on mappings");
        assert_eq!(counted(1000, Family::Mappings), "1,000 calls on mappings");
    }
}
