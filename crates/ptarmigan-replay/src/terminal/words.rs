//! Numbers with their nouns.

/// Formats a number with commas between groups of three digits.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things, as "1 task" and "2 tasks".
pub fn several(n: u64, thing: &str) -> String {
    let ending = match (n, thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {thing}{ending}", count(n))
}

/// Formats a number of things that were something.
pub fn several_were(n: u64, thing: &str) -> String {
    format!("{} {}", several(n, thing), if n == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|n| several(n, "task")), ["0 tasks", "1 task", "2 tasks"]);
        assert_eq!([1, 2].map(|n| several(n, "process")), ["1 process", "2 processes"]);
        assert_eq!(several(40_684, "fault"), "40,684 faults");
        assert_eq!([1, 2].map(|n| several_were(n, "region")), ["1 region was", "2 regions were"]);
    }
}
