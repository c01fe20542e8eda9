//! Reads `kernels/checks.toml`: boots, each with the lines that have to come.
use crate::repository;
use kernel_boot::board::Board;
use kernel_boot::guest::Ended;
use regex_lite::Regex;
use serde::Deserialize;

/// Boots that are made one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// An image that leaves one thing out, each time another one.
    Image,
    /// Programs that pass.
    #[default]
    Check,
    /// Bad input.
    Refused,
    /// The kernel for Linux programs without one thing.
    Negative,
    /// Many boots, and long ones.
    Soak,
}

/// How a boot has to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// With QEMU's status of a guest that passes.
    #[default]
    Pass,
    /// With one line that begins with `FAIL` and fits, and the status of a guest that fails.
    Refused,
    /// In any other way than one that passes.
    Fails,
}

/// An initial file system that is not made of entries alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Archive {
    /// None.
    None,
    /// The image itself.
    Image,
    /// The first 300,000 bytes of the one of the entries.
    Cut,
    /// The one of the entries, although there is no memory for it.
    Unchecked,
}

/// A text that is typed, and patterns of lines that have to follow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The text; `{n}` is the number of the repetition.
    #[serde(default)]
    pub says: String,
    /// How often it is typed.
    #[serde(default = "one")]
    pub times: u32,
    /// Patterns.
    #[serde(default)]
    pub hears: Vec<String>,
}

fn one() -> u32 {
    1
}

/// A boot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its group, by the name of its table.
    #[serde(skip)]
    pub group: Group,
    /// The boards on which it is made; all if there are none.
    #[serde(default)]
    pub boards: Vec<String>,
    /// A program of `linux/programs` that is `/init`.
    pub program: Option<String>,
    /// More entries of the initial file system. `{here}` is the directory of the kernels,
    /// `{work}` a directory for temporary files with `small` (a program that ends at once),
    /// `short` (its first 100 bytes), `large` (48 MiB of zeros) and `many` (3,000 links), and
    /// `{package}` the directory of `package`.
    #[serde(default)]
    pub entries: Vec<String>,
    /// A package of Debian's without which it is left out, and the subject that is left out then.
    pub package: Option<(String, String)>,
    /// Whether `program` is linked with the library of `package`.
    #[serde(default)]
    pub links: bool,
    /// A script that is `/init`.
    pub script: Option<String>,
    /// Another initial file system.
    pub archive: Option<Archive>,
    /// The profile of the image.
    pub profile: Option<String>,
    /// CPUs (1), as QEMU's option `-smp` has them.
    pub cpus: Option<String>,
    /// Whether the machine has the CPUs and nodes of the board's boots with several.
    #[serde(default)]
    pub several: bool,
    /// Memory, if it is not the board's.
    pub memory: Option<String>,
    /// The command line. `{cpus}` is the number of CPUs.
    #[serde(default)]
    pub words: String,
    /// Words for process 1.
    #[serde(default)]
    pub arguments: String,
    /// QEMU's option `-icount`.
    pub icount: Option<String>,
    /// More arguments of QEMU.
    #[serde(default)]
    pub more: String,
    /// Patterns of lines that have to come, and are printed.
    #[serde(default)]
    pub lines: Vec<String>,
    /// Whether a boot that passes has to give all frames back.
    #[serde(default = "yes")]
    pub frames: bool,
    /// How it ends.
    #[serde(default)]
    pub outcome: Ending,
    /// The thing that is left out, for messages.
    #[serde(default)]
    pub without: String,
    /// Boots up to the first that fails, where not every one shows it.
    #[serde(default = "one")]
    pub tries: u32,
    /// Boots that all have to pass.
    #[serde(default = "one")]
    pub times: u32,
    /// Seconds after which a boot is ended, whatever the environment says.
    pub seconds: Option<u64>,
    /// A conversation on the serial line.
    #[serde(default)]
    pub talk: Vec<Turn>,
}

fn yes() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CheckTable {
    image: Vec<Check>,
    check: Vec<Check>,
    refused: Vec<Check>,
    negative: Vec<Check>,
    soak: Vec<Check>,
}

/// A line that all frames are back.
const FRAMES: &str = "^kernel: all .* frames are back";

/// Reads the boots of a group for a board, in their order.
///
/// # Errors
///
/// A text that names the file, and the line or the pattern, if it cannot be read or is malformed.
pub fn read(group: Group, board: &str) -> Result<Vec<Check>, String> {
    let path = kernel_boot::here().join("checks.toml");
    let mut all = parse(&repository::read(&path)?).map_err(|e| format!("{}: {e}", path.display()))?;
    all.retain(|check| {
        check.group == group && (check.boards.is_empty() || check.boards.iter().any(|b| b == board))
    });
    Ok(all)
}

fn parse(text: &str) -> Result<Vec<Check>, String> {
    let CheckTable { image, check, refused, negative, soak } =
        toml::from_str(text).map_err(|e| e.to_string())?;
    let groups = [
        (Group::Image, image),
        (Group::Check, check),
        (Group::Refused, refused),
        (Group::Negative, negative),
        (Group::Soak, soak),
    ];
    let of_group =
        |(group, checks): (Group, Vec<Check>)| checks.into_iter().map(move |check| Check { group, ..check });
    let all: Vec<Check> = groups.into_iter().flat_map(of_group).collect();
    for check in &all {
        let turns = check.talk.iter().flat_map(|turn| &turn.hears);
        for text in check.lines.iter().chain(turns) {
            pattern(text)?;
        }
        if check.outcome == Ending::Refused && check.lines.len() != 1 {
            return Err(format!("a boot of {:?} that is refused has one line", check.group));
        }
        if check.tries == 0 || check.times == 0 {
            return Err(format!("a boot of {:?} is made at least once", check.group));
        }
    }
    Ok(all)
}

/// Returns the pattern of a text.
///
/// # Errors
///
/// It is malformed.
pub fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| format!("{text}: {e}"))
}

/// Returns the lines that say that all frames are back.
pub fn frames_back(log: &str) -> Vec<&str> {
    let wanted = pattern(FRAMES).ok();
    log.lines().filter(|line| wanted.as_ref().is_some_and(|wanted| wanted.is_match(line))).collect()
}

/// Says why a boot has not ended with the status `pass`.
fn ended_with(ended: &Ended, pass: i32) -> Result<(), String> {
    match &ended.stopped {
        Some(reason) => Err(reason.clone()),
        None if ended.status != pass => {
            Err(format!("QEMU ended with status {}, PASS is {pass}", ended.status))
        }
        None => Ok(()),
    }
}

/// Says why a boot has not passed.
///
/// # Errors
///
/// The reason.
pub fn passed(board: &Board, ended: &Ended) -> Result<(), String> {
    ended_with(ended, board.pass)?;
    if board.linux.is_none() && !ended.has_line("PASS") {
        return Err("the guest did not print PASS".into());
    }
    Ok(())
}

impl Check {
    /// Judges a boot, whose status is `pass` or `fail` as the board says; returns lines about it.
    ///
    /// # Errors
    ///
    /// The reason why it is not as it should be.
    pub fn judge(&self, ended: &Ended, pass: i32, fail: i32) -> Result<Vec<String>, String> {
        let Ended { status, stopped, log } = ended;
        match self.outcome {
            Ending::Pass => {
                ended_with(ended, pass)?;
                let mut shown = Vec::new();
                for text in self.lines.iter().map(|line| &**line).chain(self.frames.then_some(FRAMES)) {
                    let wanted = pattern(text)?;
                    let before = shown.len();
                    shown.extend(log.lines().filter(|line| wanted.is_match(line)).map(str::to_owned));
                    if shown.len() == before {
                        return Err(format!("no line '{text}'"));
                    }
                }
                Ok(shown)
            }
            Ending::Refused => {
                let failures: Vec<&str> = log.lines().filter(|line| line.starts_with("FAIL")).collect();
                let text = self.lines.first().map_or("", |line| line);
                match failures[..] {
                    [line]
                        if *status == fail && !log.contains("panicked") && pattern(text)?.is_match(line) =>
                    {
                        Ok(vec![line.to_owned()])
                    }
                    _ => Err(format!(
                        "QEMU ended with status {status}; it should be {fail}, after one line with FAIL and '{text}'"
                    )),
                }
            }
            Ending::Fails if self.group == Group::Image => self.judge_image(ended, fail),
            Ending::Fails => {
                if *status == pass && stopped.is_none() {
                    return Err(format!("without {} the run should have failed", self.without));
                }
                let tells = |line: &&str| {
                    ["wrong", "panic", "FAIL", "does not"].iter().any(|word| line.contains(word))
                };
                let line = log.lines().find(tells).unwrap_or(ended.last_line());
                Ok(vec![format!("without {}: fails as it should: {line}", self.without)])
            }
        }
    }

    /// Judges an image that leaves a thing out: it has to fail for the reason that goes with it.
    fn judge_image(&self, ended: &Ended, fail: i32) -> Result<Vec<String>, String> {
        let without = &self.without;
        if let Some(reason) = &ended.stopped {
            return Err(format!("without {without}: {reason}"));
        }
        if ended.status != fail {
            return Err(format!("without {without} QEMU ended with status {}, FAIL is {fail}", ended.status));
        }
        if ended.has_line("PASS") {
            return Err(format!("without {without} the guest printed PASS"));
        }
        for text in &self.lines {
            let wanted = pattern(text)?;
            if !ended.log.lines().any(|line| wanted.is_match(line)) {
                let last = ended.last_line();
                return Err(format!("without {without} the guest did not print {text}, but: {last}"));
            }
        }
        let lines = ended.log.lines().filter(|line| line.starts_with("FAIL"));
        Ok(vec![format!("without {without}: {}", lines.collect::<Vec<_>>().join("\n"))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(more: &str) -> Check {
        parse(&format!("[[check]]\n{more}")).unwrap().remove(0)
    }

    fn ended(status: i32, log: &str) -> Ended {
        Ended { status, stopped: None, log: log.into() }
    }

    #[test]
    fn the_repositorys_boots_name_boards_and_programs() {
        let boards = kernel_boot::board::Boards::read().unwrap();
        let text = repository::read(&kernel_boot::here().join("checks.toml")).unwrap();
        for check in parse(&text).unwrap() {
            check.boards.iter().for_each(|board| assert!(boards.named(board).is_ok(), "{board}"));
            let source = check.program.map(|name| kernel_boot::programs().join(format!("{name}.c")));
            assert!(source.is_none_or(|source| source.is_file()));
        }
        assert!(!read(Group::Image, "ppc32").unwrap().is_empty());
        assert!(read(Group::Image, "x86_64").unwrap().is_empty());
    }

    #[test]
    fn malformed_boots_are_named() {
        for (more, part) in [
            ("lines = [\"(\"]", "("),
            ("outcome = \"refused\"", "that is refused has one line"),
            ("times = 0", "at least once"),
            ("line = \"a\"", "line"),
            ("outcome = \"ends\"", "ends"),
            ("talk = [{ hears = [\"[\"] }]", "["),
        ] {
            let err = parse(&format!("[[check]]\n{more}")).unwrap_err();
            assert!(err.contains(part), "{err}");
        }
    }

    #[test]
    fn a_boot_passes_with_its_lines_and_all_frames() {
        let log = "A right\nB\nkernel: all 7 frames are back\n";
        let one = check("lines = [\"^A right\"]");
        assert_eq!(one.judge(&ended(33, log), 33, 35).unwrap(), ["A right", "kernel: all 7 frames are back"]);
        assert_eq!(one.judge(&ended(33, "A right"), 33, 35).unwrap_err(), format!("no line '{FRAMES}'"));
        assert_eq!(one.judge(&ended(33, &log[2..]), 33, 35).unwrap_err(), "no line '^A right'");
        assert_eq!(one.judge(&ended(35, log), 33, 35).unwrap_err(), "QEMU ended with status 35, PASS is 33");
        let stopped = Ended { stopped: Some("late".into()), ..ended(33, log) };
        assert_eq!(one.judge(&stopped, 33, 35).unwrap_err(), "late");
    }

    #[test]
    fn a_boot_is_refused_with_one_line() {
        let one = check("outcome = \"refused\"\nlines = [\"memory\"]");
        assert_eq!(one.judge(&ended(35, "FAIL no memory\n"), 33, 35).unwrap(), ["FAIL no memory"]);
        for (status, log) in [
            (33, "FAIL memory"),
            (35, "FAIL memory\nFAIL b"),
            (35, "FAIL b"),
            (35, "FAIL memory\nit panicked"),
        ] {
            assert!(one.judge(&ended(status, log), 33, 35).unwrap_err().contains("it should be 35"));
        }
    }

    #[test]
    fn a_boot_without_a_thing_fails() {
        let one = check("outcome = \"fails\"\nwithout = \"flush\"");
        assert!(one.judge(&ended(33, ""), 33, 35).unwrap_err().contains("should have failed"));
        let lines = one.judge(&ended(35, "a\nb wrong\nc\n"), 33, 35).unwrap();
        assert_eq!(lines, ["without flush: fails as it should: b wrong"]);
        let stopped = Ended { stopped: Some("late".into()), ..ended(137, "a\n") };
        assert_eq!(one.judge(&stopped, 33, 35).unwrap(), ["without flush: fails as it should: a"]);

        let image = Check { group: Group::Image, lines: vec!["^FAIL stale: ".into()], ..one };
        assert_eq!(
            image.judge(&ended(0, "FAIL stale: a\n"), 0, 0).unwrap(),
            ["without flush: FAIL stale: a"]
        );
        assert!(image.judge(&ended(1, "FAIL stale: a"), 0, 0).unwrap_err().contains("status 1, FAIL is 0"));
        assert!(image.judge(&ended(0, "FAIL stale: a\nPASS"), 0, 0).unwrap_err().contains("printed PASS"));
        assert!(image.judge(&ended(0, "FAIL b"), 0, 0).unwrap_err().ends_with("but: FAIL b"));
    }

    #[test]
    fn a_boot_passes_with_its_line_and_its_status() {
        let boards = kernel_boot::board::Boards::read().unwrap();
        let board = boards.named("x86_64").unwrap();
        assert_eq!(passed(board, &ended(33, "PASS\n")), Ok(()));
        assert!(passed(board, &ended(0, "PASS\n")).unwrap_err().contains("status 0, PASS is 33"));
        assert!(passed(board, &ended(33, "a\n")).unwrap_err().contains("did not print PASS"));
        let stopped = Ended { stopped: Some("late".into()), ..ended(33, "PASS\n") };
        assert_eq!(passed(board, &stopped).unwrap_err(), "late");
    }
}
