//! Runs the built program, which the executable of tests names, and removes the files of a test at
//! its end. Tests of `ptarmigan-papers` use it, too.
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The machines that need the feature `formats`.
pub const MORE: [&str; 12] = [
    "i386",
    "x86-64-5",
    "sv32",
    "sv39",
    "sv48",
    "sv57",
    "aarch64-4k",
    "aarch64-16k",
    "aarch64-64k",
    "loongarch64",
    "ia64",
    "sparc64",
];

/// What the program left.
pub struct Ran {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(out: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { status: out.status.code(), out: text(&out.stdout), err: text(&out.stderr) }
    }
}

impl Ran {
    /// Returns the standard output of a success.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.status, Some(0), "{}", self.err);
        self.out
    }

    /// Returns the document that a success has printed.
    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.good()).expect("one JSON document")
    }
}

/// Returns the program with these arguments, which reads no terminal. A replay of the fixture gets
/// little memory if they do not say how much: that takes much longer to set up than to use.
pub fn program(args: &[&str]) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.args(args).stdin(Stdio::null());
    let replays = matches!(args.first(), Some(&("replay" | "advise")));
    let has = |part: &str| args.iter().any(|arg| arg.contains(part));
    if replays && has("fixture.ptrace") && !["--memory", "--arch", "--params"].iter().any(|of| has(of)) {
        command.args(["--memory", "256M"]);
    }
    command
}

pub fn run(command: &mut Command) -> Ran {
    command.output().expect("the program is there").into()
}

pub fn ptarmigan(args: &[&str]) -> Ran {
    run(&mut program(args))
}

#[track_caller]
pub fn json(args: &[&str]) -> Value {
    ptarmigan(args).json()
}

/// Runs the program with these bytes in a pipe as standard input.
pub fn fed(command: &mut Command, bytes: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is there");
    let mut input = child.stdin.take().expect("a pipe");
    let bytes = bytes.to_vec();
    // A reader that has seen enough closes the pipe.
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let out = child.wait_with_output().expect("it ends");
    writer.join().expect("it does not panic");
    out.into()
}

/// Runs the program, reads so many bytes of its standard output, and goes away. The program then
/// ends in silence and with success. Returns the bytes.
#[track_caller]
pub fn reader_goes_away(command: &mut Command, after: usize) -> Vec<u8> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the program is there");
    let mut bytes = vec![0; after];
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut bytes).expect("so much is there");
    drop(out);
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{command:?}");
    bytes
}

/// Returns the path of a file of this crate.
pub fn crate_file(name: &str) -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).to_owned()
}

/// Returns the path of a shipped recording.
pub fn shipped(name: &str) -> String {
    crate_file(&format!("../../traces/{name}"))
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A file or directory of one test, removed at its end.
pub struct Temporary(pub PathBuf);

impl Temporary {
    /// Names a file or directory that is not there yet.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ptarmigan-test-{}-{number}-{name}", std::process::id());
        Temporary(std::env::temp_dir().join(name))
    }

    /// Makes a file.
    pub fn file(name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let file = Self::new(name);
        std::fs::write(&file.0, bytes).expect("a temporary file");
        file
    }

    pub fn path(&self) -> &str {
        text(&self.0)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}

/// Fields whose keys are data: kinds, advice, levels, names of Linux.
const MAPS: [&str; 10] = [
    "by_kind",
    "advice",
    "by_level",
    "kinds",
    "differences",
    "meminfo",
    "levels",
    "unknown",
    "options",
    "settings",
];

/// Returns the names of all fields of a document that the page of documents lacks.
pub fn undocumented(document: &Value) -> Vec<String> {
    let page = include_str!("../../json.md");
    let mut names = BTreeSet::new();
    fields(document, &mut names);
    names.into_iter().filter(|name| !page.contains(&format!("`{name}`"))).collect()
}

/// Adds the names of all fields.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| fields(one, names)),
        Value::Object(all) => {
            for (name, inner) in all {
                names.insert(name.clone());
                let data = MAPS.contains(&name.as_str());
                match inner {
                    Value::Object(entries) if data => entries.values().for_each(|one| fields(one, names)),
                    _ => fields(inner, names),
                }
            }
        }
        _ => {}
    }
}
