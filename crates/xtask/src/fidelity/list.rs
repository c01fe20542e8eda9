//! Lists of commands to be recorded.
use std::str::FromStr;

/// A command of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The command, run by a shell if it is more than words.
    pub command: String,
    /// Why samples may differ, if they may.
    pub reason: Option<String>,
}

impl Entry {
    /// The command as words.
    pub fn words(&self) -> Vec<&str> {
        if self.command.contains(['"', '\'', '$', ';', '&', '|', '<', '>', '*', '?', '(', '`', '\\']) {
            vec!["sh", "-c", &self.command]
        } else {
            self.command.split_ascii_whitespace().collect()
        }
    }
}

/// A list: a line is empty, a comment after `#`, or `NAME | COMMAND`, with `| REASON` where samples
/// may differ.
#[derive(Clone, Debug, Default)]
pub struct List(pub Vec<Entry>);

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all: Vec<Entry> = Vec::new();
        for (n, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |what: &str| format!("line {}: {what}: {line}", n + 1);
            let mut parts = line.splitn(3, " | ").map(|part| part.trim().to_owned());
            let (Some(name), Some(command)) = (parts.next(), parts.next()) else {
                return Err(bad("no command"));
            };
            if name.is_empty() || name.contains(['/', ' ']) || all.iter().any(|e| e.name == name) {
                return Err(bad("a bad name, or one that is there already"));
            }
            if command.is_empty() {
                return Err(bad("no command"));
            }
            all.push(Entry { name, command, reason: parts.next() });
        }
        Ok(List(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_a_command_and_perhaps_a_reason() {
        let list: List =
            "# a comment\n\na | ls -l\nb | ls | wc -l\n c  |  true | no event\n".parse().expect("fine");
        let as_read: Vec<_> =
            list.0.iter().map(|e| (e.name.as_str(), e.command.as_str(), e.reason.as_deref())).collect();
        assert_eq!(
            as_read,
            [("a", "ls -l", None), ("b", "ls", Some("wc -l")), ("c", "true", Some("no event"))]
        );
        assert_eq!(list.0[0].words(), ["ls", "-l"]);
        let quoted: List = "a | echo 'b  c'".parse().expect("fine");
        assert_eq!(quoted.0[0].words(), ["sh", "-c", "echo 'b  c'"]);
        for bad in ["a", "a |", "a | x\na | y", "a/b | x", " | x", "a b | x"] {
            assert!(bad.parse::<List>().is_err(), "{bad}");
        }
    }
}
