//! The policies that a trace is replayed on.

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PolicyName {
    /// No caching
    Plain,
    /// The Linux patch of 2007
    V5,
    /// Its later form in Linux 2.6.27
    V2008,
    /// This library's quicklists
    Ptarmigan,
}

/// A policy and, for a historic one, its number of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub name: PolicyName,
    /// Number of lists of a historic policy; `None` for the others.
    pub lists: Option<u8>,
}

impl Choice {
    /// Returns every policy of `names` once, and historic ones once for each number in `lists`, in
    /// the given order.
    pub fn all(names: &[PolicyName], lists: &[u8]) -> Vec<Choice> {
        let mut all = Vec::new();
        for &name in names {
            let of_name: Vec<Option<u8>> =
                if name.is_historic() { lists.iter().copied().map(Some).collect() } else { vec![None] };
            for lists in of_name {
                let choice = Choice { name, lists };
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

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self.name {
            PolicyName::Plain => "plain",
            PolicyName::V5 => "v5",
            PolicyName::V2008 => "v2008",
            PolicyName::Ptarmigan => "ptarmigan",
        }
    }
}

impl PolicyName {
    fn is_historic(self) -> bool {
        matches!(self, PolicyName::V5 | PolicyName::V2008)
    }
}

/// Runs `$body` with `$made` bound to the policy `$choice` on `$host`, which draws on `$source`;
/// `$lists` are the sizes of the library's own. Fails as
/// [`Context`](crate::error::Context) does.
macro_rules! with_policy {
    ($host:expr, $source:expr, $choice:expr, $lists:expr, |$made:ident| $body:expr) => {{
        let source = $source;
        let lists = usize::from($choice.lists.unwrap_or(1));
        match $choice.name {
            PolicyName::Plain => {
                let $made = $host.plain_of(source).context("policy plain")?;
                $body
            }
            PolicyName::V5 => {
                let $made = $host.historic_of(Rules::V5, lists, source).context("policy v5")?;
                $body
            }
            PolicyName::V2008 => {
                let $made = $host.historic_of(Rules::V2008, lists, source).context("policy v2008")?;
                $body
            }
            PolicyName::Ptarmigan => {
                let $made = $host.quicklists_of($lists, source).context("policy ptarmigan")?;
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
        let names = [PolicyName::Plain, PolicyName::V2008, PolicyName::V5, PolicyName::Plain];
        let all: Vec<_> = Choice::all(&names, &[1, 3, 1]).iter().map(|c| (c.name(), c.lists)).collect();
        let historic = |name| [(name, Some(1)), (name, Some(3))];
        assert_eq!(all, [&[("plain", None)], &historic("v2008")[..], &historic("v5")[..]].concat());
    }
}
