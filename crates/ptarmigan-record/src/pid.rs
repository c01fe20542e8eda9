//! Numbers of processes on the command line, and hints where names stand in their place.
use std::fs;

/// The most bytes that the kernel keeps of a program's name.
const MOST: usize = 15;
/// The most processes that a hint lists.
const LISTED: usize = 8;

/// Parses the number of a process.
///
/// # Errors
/// If it is no such number. The message has the numbers of processes with this name.
pub(super) fn parse(text: &str) -> Result<i32, String> {
    match text.parse::<i64>() {
        Ok(number) => i32::try_from(number)
            .ok()
            .filter(|pid| *pid > 0)
            .ok_or_else(|| format!("not a process number: those are 1 to {}", i32::MAX)),
        Err(_) if text.is_empty() || text.bytes().all(|b| b.is_ascii_digit() || b == b'-') => {
            Err(format!("not a process number: those are 1 to {}", i32::MAX))
        }
        Err(_) => Err(wanted(text, &named(text))),
    }
}

/// Returns the message for a name in place of a number. `pids` are the processes of that name.
fn wanted(name: &str, pids: &[i32]) -> String {
    let shown: Vec<String> = pids.iter().take(LISTED).map(i32::to_string).collect();
    let list = shown.join(",");
    let more = pids.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    match pids.len() {
        0 => format!("a process number is wanted, and no process is named {name}"),
        1 => format!("a process number is wanted; {name} is process {list}: -p {list}"),
        _ => format!("a process number is wanted; processes of {name}: -p {list}{more}"),
    }
}

/// Returns the processes with this name, in order, without this one.
fn named(name: &str) -> Vec<i32> {
    // A cut in the middle of a character is none of the kernel's names either.
    let name = &name.as_bytes()[..name.len().min(MOST)];
    let own = std::process::id() as i32;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_named =
        |pid: &i32| fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_ascii_end() == name);
    let mut pids: Vec<i32> = pids.filter(|pid| *pid != own).filter(is_named).collect();
    pids.sort_unstable();
    pids
}

/// Returns the option that attaches to the processes whose numbers stand in place of a command.
/// `None` if one of them is no number of a running process.
pub(super) fn instead_of(command: &[std::ffi::OsString]) -> Option<String> {
    let pid = |word: &std::ffi::OsString| {
        let pid = word.to_str()?.parse::<i32>().ok().filter(|pid| *pid > 0)?;
        fs::exists(format!("/proc/{pid}/comm")).is_ok_and(|there| there).then(|| pid.to_string())
    };
    let pids: Vec<String> = command.iter().map(pid).collect::<Option<_>>()?;
    Some(format!("-p {}", pids.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_numbers() {
        assert_eq!(parse("17"), Ok(17));
        for bad in ["0", "-3", "99999999999", "99999999999999999999", "", "-"] {
            assert!(parse(bad).is_err_and(|e| e.starts_with("not a process number")), "{bad}");
        }
        let none = parse("no such name").expect_err("no number");
        assert_eq!(none, "a process number is wanted, and no process is named no such name");
        assert_eq!(wanted("a", &[7]), "a process number is wanted; a is process 7: -p 7");
        let nine: Vec<i32> = (1..=9).collect();
        let many = wanted("a", &nine);
        assert!(many.ends_with("processes of a: -p 1,2,3,4,5,6,7,8 (and 1 more)"), "{many}");
        assert!(parse("äääääääääääää").is_err(), "a name that is cut in a character");
    }
}
