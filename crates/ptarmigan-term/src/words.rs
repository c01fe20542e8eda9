//! Numbers with their nouns.
use crate::Count;

/// Formats a number of things, as "1 task" and "2 tasks".
pub fn several(n: u64, thing: &str) -> String {
    let ending = match (n, thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {thing}{ending}", Count(n))
}

/// Formats a number of things that were something.
pub fn several_were(n: u64, thing: &str) -> String {
    format!("{} {}", several(n, thing), if n == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|n| several(n, "task")), ["0 tasks", "1 task", "2 tasks"]);
        assert_eq!([1, 2].map(|n| several(n, "process")), ["1 process", "2 processes"]);
        assert_eq!(several(40_684, "fault"), "40,684 faults");
        assert_eq!([1, 2].map(|n| several_were(n, "region")), ["1 region was", "2 regions were"]);
    }
}
