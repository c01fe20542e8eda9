//! The account as one line.
use super::sums::DEAREST;
use super::{Account, Call, Family, Times};
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};

impl Account {
    /// Returns the account as a sentence, without a full stop: elapsed time, CPU time in the
    /// kernel, and the times of calls and faults. `None` if the recording has no times.
    pub fn line(&self) -> Option<String> {
        if !self.timed {
            return None;
        }
        let total = self.total();
        let mut parts = vec![Time::from_micros(self.elapsed as f64).to_string()];
        if total.is_measured() {
            parts.push(format!(
                "{} of {} CPU time in the kernel",
                Time::from_micros(total.kernel as f64),
                Time::from_micros(total.cpu() as f64)
            ));
        }
        let costs = costs(&total, self.elapsed);
        if !costs.is_empty() {
            parts.push(costs.join(", "));
        }
        if self.running() > 0 {
            parts.extend(longest(&total));
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
                "The CPU time of {} is not known: ended by a signal, or started by a process that was attached to without stops, or not ended.",
                several(unknown, "process")
            ));
        }
        if total.family(Family::Vforks).calls > 0 {
            remarks.push("The time of a vfork includes its child's up to the exec.".to_owned());
        }
        if let Some(nanos) = self.stop_cost {
            remarks.push(format!(
                "Calls were timed between stops; about {} for the stops of each is taken off.",
                Time::from_nanos(nanos as f64)
            ));
        }
        remarks
    }
}

/// Nanoseconds from which on a wait in a call is told.
const LONG: u64 = 10_000_000;

/// Returns the longest call by the clock, if it waited for most of a long time. Of a server that is
/// attached to, nobody sees by a sum of CPU times that a task stood still. Nobody waits for exits.
fn longest(total: &Times) -> Option<String> {
    let made = total.dearest().into_iter().filter(|(call, _)| *call != Call::Exit);
    let (call, time) = made.max_by_key(|(_, time)| time.longest_by_clock)?;
    let long = time.longest_by_clock;
    let waited = long >= LONG && long / 2 >= time.longest;
    waited.then(|| format!("longest call by the clock: {}, {}", call.name(), Time::from_nanos(long as f64)))
}

/// Returns the calls and faults that took at least a hundredth of the CPU time or, if that is not
/// known, of the elapsed time. If there are none, the dearest calls.
fn costs(total: &Times, elapsed: u64) -> Vec<String> {
    let all = if total.is_measured() { total.cpu() } else { elapsed };
    let enough = all as f64 / 1e6 / 100.0;
    let mut costs = Vec::new();
    for family in Family::ALL {
        let time = total.family(family);
        if time.calls > 0 && time.seconds() >= enough {
            costs.push(cost(total, family, costs.is_empty()));
        }
    }
    let measured = total.faults_about().filter(|_| total.is_measured());
    if let Some(micros) = measured.filter(|micros| *micros as f64 / 1e6 >= enough) {
        let other = if micros > total.faults * DEAREST { " and other calls" } else { "" };
        let faults = Count(total.faults).rounded();
        let ending = if total.faults == 1 { "" } else { "s" };
        costs.push(format!("{faults} fault{ending}{other} about {}", Time::from_micros(micros as f64)));
    }
    if costs.is_empty() {
        let dearest = Family::ALL.into_iter().max_by_key(|family| total.family(*family).nanos);
        let made = dearest.filter(|family| total.family(*family).nanos > 0);
        costs.extend(made.map(|family| cost(total, family, true)));
    }
    costs
}

/// Returns the calls of a family with their time. Of several kinds of calls the dearest is named.
fn cost(total: &Times, family: Family, first: bool) -> String {
    let took = if first { "took " } else { "" };
    let time = total.family(family);
    let said = |calls: String, nanos: u64| format!("{calls} {took}{}", Time::from_nanos(nanos as f64));
    let mut made = total.dearest();
    made.retain(|(call, _)| Family::of(*call) == family);
    match made[..] {
        [(call, one)] if family == Family::Mappings => {
            said(format!("{} {}", Count(one.calls), call.name()), one.nanos)
        }
        [(call, one), _, ..] => {
            let of_it = format!("{} {}", Count(one.calls), call.name());
            let dearest = Time::from_secs(one.seconds());
            format!("{} ({of_it} {dearest})", said(counted(time.calls, family), time.nanos))
        }
        _ => said(counted(time.calls, family), time.nanos),
    }
}

/// Returns a number of calls with their noun.
fn counted(n: u64, family: Family) -> String {
    let noun = family.noun();
    let ending = if n == 1 { "" } else { "s" };
    // The ending belongs to the first word.
    match noun.split_once(' ') {
        Some((first, rest)) => format!("{} {first}{ending} {rest}", Count(n)),
        None => format!("{} {noun}{ending}", Count(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_noun() {
        assert_eq!(counted(1, Family::Mappings), "1 call on mappings");
        assert_eq!(counted(1000, Family::Mappings), "1,000 calls on mappings");
    }
}
