//! The policies that a trace is replayed on.
use ptarmigan_linux::{Rules, Trim};

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PolicyName {
    /// No caching
    Plain,
    /// Linux's ia64 in 2004: lists for root tables and middle levels, none for PTE pages
    V2004,
    /// The Linux patch of 2007
    V5,
    /// Its later form in Linux 2.6.27
    V2008,
    /// This library's quicklists
    Ptarmigan,
}

/// A policy and, for a historic one, its number of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The policy.
    pub name: PolicyName,
    /// Number of lists of a historic policy; `None` for the others, and for that of 2004, which has
    /// two.
    pub lists: Option<u8>,
    /// Parameters of the trim of a historic policy.
    pub trim: Trim,
}

impl Choice {
    /// Returns every policy of `names` once, and historic ones once for each number in `lists`, in
    /// the given order. All of these trim with the parameters `trim`.
    pub fn all(names: &[PolicyName], lists: &[u8], trim: Trim) -> Vec<Choice> {
        let mut all = Vec::new();
        for &name in names {
            let of_name: Vec<Option<u8>> =
                if name.has_lists() { lists.iter().copied().map(Some).collect() } else { vec![None] };
            for lists in of_name {
                let choice = Choice { name, lists, trim };
                if !all.contains(&choice) {
                    all.push(choice);
                }
            }
        }
        all
    }

    /// Returns whether the policy breaks the rules by design. Its findings are counted and do not
    /// fail the run.
    pub fn is_historic(self) -> bool {
        self.name.is_historic()
    }

    /// Returns the rules of a historic policy, and the number of its lists.
    pub(super) fn rules(self) -> Option<(Rules, usize)> {
        let rules = match self.name {
            PolicyName::V2004 => return Some((Rules::V2004, 2)),
            PolicyName::V5 => Rules::V5,
            PolicyName::V2008 => Rules::V2008,
            PolicyName::Plain | PolicyName::Ptarmigan => return None,
        };
        Some((Rules { trim: self.trim, ..rules }, usize::from(self.lists.unwrap_or(1))))
    }

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self.name {
            PolicyName::Plain => "plain",
            PolicyName::V2004 => "v2004",
            PolicyName::V5 => "v5",
            PolicyName::V2008 => "v2008",
            PolicyName::Ptarmigan => "ptarmigan",
        }
    }
}

impl PolicyName {
    fn is_historic(self) -> bool {
        self == PolicyName::V2004 || self.has_lists()
    }

    /// Returns whether the number of its lists can be chosen.
    fn has_lists(self) -> bool {
        matches!(self, PolicyName::V5 | PolicyName::V2008)
    }
}

/// Parses `MIN,MAX`, the parameters of `quicklist_trim`.
///
/// # Errors
///
/// A text if it is something else.
pub fn parse_trim(text: &str) -> Result<Trim, String> {
    let parsed = text.split_once(',').and_then(|(min, max)| {
        let [min_pages, max_free] = [min, max].map(|n| n.parse::<u32>().ok());
        Some(Trim::Share { min_pages: min_pages? as usize, max_free: max_free? as usize })
    });
    parsed.ok_or_else(|| "expected MIN,MAX: two numbers of pages below 2^32, e.g. 25,16".to_owned())
}

/// Runs `$body` with `$made` bound to the policy `$choice` on `$fresh`, a
/// [`FreshHost`](super::setup::FreshHost). Fails as [`Context`](ptarmigan_term::Context) does. The
/// body is compiled once for each type of policy.
macro_rules! with_policy {
    ($fresh:expr, $choice:expr, |$made:ident| $body:expr) => {{
        let (fresh, choice): (_, $crate::policy::Choice) = (&$fresh, $choice);
        let (host, source) = (fresh.host(), fresh.source());
        let what = format!("policy {}", choice.name());
        match (choice.rules(), choice.name) {
            (Some((rules, lists)), _) => {
                // SAFETY: 1. replays translate by models of MMUs alone. Workers walk tables in
                // operations of spaces; one that refills a hash table reads without a lock, but
                // schedules order calls that change a shared space after faults before them.
                let $made = unsafe { host.historic_of(rules, lists, source) }.context(what)?;
                $body
            }
            (None, $crate::policy::PolicyName::Plain) => {
                let $made = host.plain_of(source).context(what)?;
                $body
            }
            (None, _) => {
                let $made = host.quicklists_of(fresh.lists(), source).context(what)?;
                $body
            }
        }
    }};
}
pub(super) use with_policy;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_historic_policies_come_once_for_each_number_of_lists() {
        let names =
            [PolicyName::Plain, PolicyName::V2008, PolicyName::V5, PolicyName::Plain, PolicyName::V2004];
        let all = Choice::all(&names, &[1, 3, 1], Trim::ARCHES);
        let all: Vec<_> = all.iter().map(|c| (c.name(), c.lists)).collect();
        let historic = |name| [(name, Some(1)), (name, Some(3))];
        let once = |name| [(name, None)];
        let want = [&once("plain"), &historic("v2008")[..], &historic("v5")[..], &once("v2004")].concat();
        assert_eq!(all, want);
    }

    #[test]
    fn the_trim_takes_two_numbers() {
        assert_eq!(parse_trim("25,16"), Ok(Trim::ARCHES));
        assert_eq!(parse_trim("0,4294967295"), Ok(Trim::Share { min_pages: 0, max_free: u32::MAX as usize }));
        for text in ["", "25", "25,", "25,16,1", "-1,16", "25,4294967296"] {
            assert!(parse_trim(text).is_err_and(|e| e.contains("25,16")), "{text}");
        }
    }
}
