//! Reads the lists of mistakes, and makes a mistake in a source.
use crate::tokens::{Token, places, tokens};
use std::ops::Range;

/// A mistake that tests have to notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The place of its title, as `models/owners:12`.
    pub place: String,
    pub title: String,
    /// The file that it is made in, from the root of the workspace.
    pub file: String,
    /// The executable with the tests, as `ptarmigan-tests/all`, or `lib` behind the `/`.
    pub executable: String,
    /// The beginning of the names of the tests of which one has to fail; if `is_only`, the names of
    /// the tests that have to fail.
    pub tests: Vec<String>,
    /// Whether no other test of the executable may fail.
    pub is_only: bool,
    /// The reason for which it is not noticed.
    pub open: Option<String>,
    hunks: Vec<Hunk>,
}

/// Lines of a mistake that follow one another in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hunk {
    /// The place of its first line.
    place: String,
    lines: Vec<(Kind, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Around,
    Removed,
    Added,
}

/// A change of a source: bytes, and the text in their place.
pub type Edit = (Range<usize>, String);

/// Reads a list: text up to the first title, then mistakes.
///
/// # Errors
///
/// The line that is not understood.
pub fn parse(name: &str, text: &str) -> Result<Vec<Mistake>, String> {
    let mut mistakes: Vec<Mistake> = Vec::new();
    let mut in_hunk = false;
    for (n, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", n + 1);
        if let Some(title) = line.strip_prefix("## ") {
            mistakes.push(Mistake {
                place,
                title: title.trim().into(),
                file: String::new(),
                executable: String::new(),
                tests: Vec::new(),
                is_only: false,
                open: None,
                hunks: Vec::new(),
            });
            in_hunk = false;
            continue;
        }
        let Some(mistake) = mistakes.last_mut() else { continue };
        let kind = match line.as_bytes().first() {
            None => {
                in_hunk = false;
                continue;
            }
            Some(b' ') => Kind::Around,
            Some(b'-') => Kind::Removed,
            Some(b'+') => Kind::Added,
            Some(_) => {
                mistake.key(line).map_err(|why| format!("{place}: {why}"))?;
                in_hunk = false;
                continue;
            }
        };
        if !in_hunk {
            mistake.hunks.push(Hunk { place, lines: Vec::new() });
            in_hunk = true;
        }
        if let Some(hunk) = mistake.hunks.last_mut() {
            hunk.lines.push((kind, line[1..].into()));
        }
    }
    for mistake in &mistakes {
        mistake.check()?;
    }
    Ok(mistakes)
}

impl Mistake {
    /// Reads a line with a key.
    fn key(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(": ") {
            Some(("file", file)) => self.file = file.trim().into(),
            Some(("open", why)) => self.open = Some(why.trim().into()),
            Some((key @ ("test" | "only"), value)) => {
                let mut words = value.split_whitespace().map(str::to_owned);
                let executable = words.next().filter(|executable| executable.contains('/'));
                let tests: Vec<String> = words.collect();
                self.is_only = key == "only";
                match executable {
                    Some(executable) if tests.len() == 1 || self.is_only && !tests.is_empty() => {
                        (self.executable, self.tests) = (executable, tests);
                    }
                    _ if self.is_only => {
                        return Err("only: takes PACKAGE/EXECUTABLE and names of tests".into());
                    }
                    _ => {
                        return Err(
                            "test: takes PACKAGE/EXECUTABLE and the beginning of a test's name".into()
                        );
                    }
                }
                self.tests.sort();
            }
            _ if line == "@@" => {}
            _ => {
                return Err(format!(
                    "{line:?} is no line of a mistake; those of the source begin with a space, - or +, \
                     others with file:, test:, only: or open:, and @@ stands between two places"
                ));
            }
        }
        Ok(())
    }

    /// Checks that all keys are there, and lines that change something.
    fn check(&self) -> Result<(), String> {
        let missing = [("file:", &self.file), ("test: or only:", &self.executable)];
        if let Some((key, _)) = missing.iter().find(|(_, value)| value.is_empty()) {
            return Err(format!("{}: {:?} has no line {key}", self.place, self.title));
        }
        if self.hunks.is_empty() {
            return Err(format!("{}: {:?} has no lines of the source", self.place, self.title));
        }
        self.hunks.iter().try_for_each(Hunk::check)
    }

    /// Returns the changes that make the mistake in its source, in order.
    ///
    /// # Errors
    ///
    /// A text that is not in the source, or more than once.
    pub fn edits(&self, source: &str) -> Result<Vec<Edit>, String> {
        let all = tokens(source);
        let mut edits = Vec::new();
        for hunk in &self.hunks {
            edits.extend(hunk.edits(source, &all).map_err(|why| {
                format!("{}: {:?}: these lines {why} {}", hunk.place, self.title, self.file)
            })?);
        }
        edits.sort_by_key(|(range, _)| range.start);
        match edits.windows(2).find(|two| two[0].0.end > two[1].0.start) {
            Some(_) => Err(format!("{}: {:?} changes a line twice; join its places", self.place, self.title)),
            None => Ok(edits),
        }
    }
}

/// Makes changes in a source, or in a part of it that begins at a byte.
pub fn edited(source: &str, start: usize, edits: &[Edit]) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for (range, text) in edits {
        out += &source[at..range.start - start];
        out += text;
        at = range.end - start;
    }
    out + &source[at..]
}

impl Hunk {
    /// Returns the text that has to be in the source, with the bytes of each line.
    fn text(&self) -> (String, Vec<Range<usize>>) {
        let mut text = String::new();
        let mut ranges = Vec::new();
        for (kind, line) in &self.lines {
            let start = text.len();
            if *kind != Kind::Added {
                text += line;
                text.push('\n');
            }
            ranges.push(start..text.len());
        }
        (text, ranges)
    }

    fn check(&self) -> Result<(), String> {
        if self.lines.iter().all(|(kind, _)| *kind == Kind::Around) {
            return Err(format!("{}: these lines change nothing; begin one with - or +", self.place));
        }
        if tokens(&self.text().0).is_empty() {
            return Err(format!("{}: add a line of the source, as no line here has code of it", self.place));
        }
        Ok(())
    }

    /// Returns the changes in a source. The error describes the lines, before the file's name.
    fn edits(&self, source: &str, all: &[Token<'_>]) -> Result<Vec<Edit>, String> {
        let (text, ranges) = self.text();
        let part = tokens(&text);
        let at = match places(all, &part)[..] {
            [at] => at,
            [] => return Err("are not in".into()),
            [first, second, ..] => {
                let line = |n: usize| 1 + source[..all[n].at].matches('\n').count();
                return Err(format!(
                    "need one more line around them, as they are at lines {} and {} of",
                    line(first),
                    line(second)
                ));
            }
        };
        // Tokens of the source that are the tokens of a line here.
        let of = |range: &Range<usize>| {
            let first = part.partition_point(|token| token.at < range.start);
            at + first..at + part.partition_point(|token| token.at < range.end)
        };
        let mut edits = Vec::new();
        let mut n = 0;
        while n < self.lines.len() {
            let first = n;
            n += self.lines[n..].iter().take_while(|(kind, _)| *kind != Kind::Around).count();
            if n == first {
                n += 1;
                continue;
            }
            let removed = of(&(ranges[first].start..ranges[n - 1].end));
            let added: Vec<&str> = self.lines[first..n]
                .iter()
                .filter(|(kind, _)| *kind == Kind::Added)
                .map(|(_, line)| line.as_str())
                .collect();
            edits.push(if let [one, ..] = &all[removed.clone()] {
                replaced(source, one.at..all[removed.end - 1].end(), &added)
            } else if removed.start > at {
                let (_, end) = whole(source, &all[removed.start - 1]);
                let at = end.unwrap_or(all[removed.start - 1].end());
                inserted(at, end.is_some(), &added)
            } else {
                let (start, _) = whole(source, &all[at]);
                inserted(start.unwrap_or(all[at].at), start.is_some(), &added)
            });
        }
        Ok(edits)
    }
}

/// Returns the beginning of a token's line, if it is the first there, and the beginning of the next
/// line, if it is the last.
fn whole(source: &str, token: &Token<'_>) -> (Option<usize>, Option<usize>) {
    bounds(source, token.at..token.end())
}

fn bounds(source: &str, range: Range<usize>) -> (Option<usize>, Option<usize>) {
    let start = source[..range.start].rfind('\n').map_or(0, |n| n + 1);
    let end = source[range.end..].find('\n').map_or(source.len(), |n| range.end + n + 1);
    let is_first = source[start..range.start].trim().is_empty();
    let is_last = tokens(&source[range.end..end]).is_empty();
    (is_first.then_some(start), is_last.then_some(end))
}

/// Puts lines in the place of bytes: of whole lines, if there is no other code in them.
fn replaced(source: &str, range: Range<usize>, added: &[&str]) -> Edit {
    match bounds(source, range.clone()) {
        (Some(start), Some(end)) => (start..end, added.iter().map(|line| format!("{line}\n")).collect()),
        _ => (range, added.join("\n").trim_start().into()),
    }
}

/// Puts lines at a byte, which begins a line or not.
fn inserted(at: usize, begins_line: bool, added: &[&str]) -> Edit {
    let text = added.join("\n");
    (at..at, if begins_line { text + "\n" } else { format!(" {text} ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn f() {\n    // First.\n    a();\n    b(1, 2); // then\n    a();\n}\n\nfn g() {\n    a(); c();\n}\n";

    fn entry(lines: &str) -> String {
        format!("Mistakes.\n\n## one\nfile: x.rs\ntest: p/all m::t\n{lines}")
    }

    fn made(lines: &str) -> Result<String, String> {
        let mistakes = parse("models/l", &entry(lines))?;
        Ok(edited(SOURCE, 0, &mistakes[0].edits(SOURCE)?))
    }

    #[test]
    fn a_list_is_read() {
        let text = entry("-a\n+b\n@@\n-c\n\n## two\nopen: why\nfile: y.rs\nonly: q/m x a\n+d\n e\n");
        let list = parse("models/l", &text).expect("fine");
        let [one, two] = &list[..] else { panic!("{list:?}") };
        assert_eq!((one.place.as_str(), one.title.as_str(), one.hunks.len()), ("models/l:3", "one", 2));
        assert_eq!(
            (one.executable.as_str(), &one.tests[..], one.is_only),
            ("p/all", &["m::t".into()][..], false)
        );
        assert_eq!((two.file.as_str(), two.is_only, two.open.as_deref()), ("y.rs", true, Some("why")));
        assert_eq!(two.tests, ["a", "x"]);
        assert_eq!(two.hunks[0].lines, [(Kind::Added, "d".into()), (Kind::Around, "e".into())]);
    }

    #[test]
    fn a_line_that_is_not_understood_is_named_with_its_list() {
        let bad = |text: &str| parse("models/l", text).expect_err("bad");
        assert!(bad(&entry("<<<<\n")).starts_with("models/l:6: \"<<<<\" is no line of a mistake"));
        assert!(bad("## a\ntest: t\n").starts_with("models/l:2: test: takes PACKAGE/EXECUTABLE"));
        assert!(bad("## a\ntest: p/t a b\n").starts_with("models/l:2: test: takes PACKAGE/EXECUTABLE"));
        assert!(bad("## a\nonly: p/t\n").starts_with("models/l:2: only: takes PACKAGE/EXECUTABLE"));
        assert!(bad("## a\ntest: p/t x\n-b\n").starts_with("models/l:1: \"a\" has no line file:"));
        assert!(bad("## a\nfile: x.rs\n-b\n").starts_with("models/l:1: \"a\" has no line test: or only:"));
        assert!(bad(&entry("")).starts_with("models/l:3: \"one\" has no lines of the source"));
        assert!(bad(&entry(" a\n")).starts_with("models/l:6: these lines change nothing"));
        assert!(bad(&entry("-// a\n+b\n")).starts_with("models/l:6: add a line of the source"));
    }

    #[test]
    fn white_space_and_comments_do_not_count() {
        let expected = SOURCE.replace("    b(1, 2); // then\n", "    b();\n");
        for removed in ["-b(1,2);", "-    b(1, 2); // before", "-b(\n-    1, 2\n-);"] {
            assert_eq!(made(&format!("{removed}\n+    b();\n")).as_ref(), Ok(&expected), "{removed}");
        }
        // A comment between the lines.
        let expected = SOURCE.replace("    a();\n    b", "    b");
        assert_eq!(made(" fn f() {\n-a();\n"), Ok(expected));
    }

    #[test]
    fn lines_come_before_or_after_a_line() {
        assert_eq!(made(" b(1, 2);\n+    d();\n"), Ok(SOURCE.replace("then\n", "then\n    d();\n")));
        assert_eq!(made("+    d();\n b(1, 2);\n"), Ok(SOURCE.replace("    b(", "    d();\n    b(")));
        // In the middle of a line.
        assert_eq!(made(" fn g() { a();\n+d();\n"), Ok(SOURCE.replace("a(); c", "a(); d();  c")));
        assert_eq!(made("-c();\n+    d();\n"), Ok(SOURCE.replace("c();", "d();")));
        assert_eq!(made("-c();\n"), Ok(SOURCE.replace("c();", "")));
        let both = SOURCE.replace("b(1, 2); // then", "").replace("    \n", "").replace("c();", "d();");
        assert_eq!(made("-c();\n+d();\n@@\n-b(1, 2);\n"), Ok(both));
    }

    #[test]
    fn a_text_that_is_gone_or_there_twice_is_named_with_its_list() {
        assert_eq!(made("-b(2, 1);\n"), Err("models/l:6: \"one\": these lines are not in x.rs".into()));
        assert_eq!(
            made("+d();\n a();\n"),
            Err("models/l:6: \"one\": these lines need one more line around them, as they are at lines 3 and \
                 5 of x.rs"
                .into())
        );
        // One more line is enough.
        assert_eq!(made("-a();\n b(1, 2);\n"), Ok(SOURCE.replacen("    a();\n", "", 1)));
        let twice = made("-b(1, 2);\n@@\n-b(1, 2);\n+b();\n");
        assert!(twice.is_err_and(|why| why.starts_with("models/l:3: \"one\" changes a line twice")));
    }
}
