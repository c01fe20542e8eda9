//! Damaged traces of both formats, through every command that reads one: one line, exit status 1,
//! and nothing on standard output.
use crate::program::{Ran, Temporary, fed, program, run, shipped};
use ptarmigan_trace::{
    AreaKind, CloneKind, Event, FaultFlags, Header, HugePages, Kind, Locking, MapFlags, Method, Name, Prot,
    Sampled, Writer,
};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// The ways to read a trace.
const READERS: [&[&str]; 5] = [
    &["inspect"],
    &["inspect", "--json"],
    &["inspect", "--events"],
    &["inspect", "--events", "--task", "0", "--kind", "fault,name"],
    &["replay", "--policy", "plain", "--memory", "64M"],
];

/// A recording of format 1, as it was shipped.
fn old() -> Vec<u8> {
    std::fs::read(shipped("fixture.ptrace")).expect("the shipped trace")
}

/// A trace of format 2 with times, names and locks.
fn new() -> Vec<u8> {
    let mut header = Header::new("new", 2, Method::Tracefs);
    header.huge = HugePages::Advised;
    let mut w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    let fault = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let kinds = [
        (0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (0, Kind::Area { start: 0x400, pages: 16, prot: Prot(3), kind: AreaKind::Anon }),
        (0, Kind::Area { start: 0x7_fff0_0000, pages: 33, prot: Prot(3), kind: AreaKind::Stack }),
        (0, Kind::Name(Name::new("a program"))),
        (0, Kind::Pid(77)),
        (0, fault(0x400)),
        (0, Kind::Lock { start: 0x400, pages: 2, how: Locking(1) }),
        (0, Kind::Touched { start: 0x402, pages: 1, flags: FaultFlags(FaultFlags::WRITE) }),
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, fault(0x401)),
        (1, Kind::Truth { tables: 6, at: Sampled::Exit }),
        (1, Kind::Exit { last: true }),
        (0, Kind::Exit { last: true }),
    ];
    for (n, (task, kind)) in kinds.into_iter().enumerate() {
        w.time(n as u64 * 1000).expect("it has passed");
        w.event(&Event { task, cpu: 1, kind }).expect("a good event");
    }
    w.finish(0).expect("memory takes everything").0
}

/// Runs `reader` on bytes in a file, in a file as standard input, and in a pipe.
fn each_way(reader: &[&str], file: &Path, bytes: &[u8]) -> [Ran; 3] {
    let open = || File::open(file).expect("our file");
    [
        run(program(reader).arg(file)),
        run(program(reader).arg("-").stdin(open())),
        fed(program(reader).arg("-"), bytes),
    ]
}

fn one_line(ran: &Ran, what: &str) {
    let err = &ran.err;
    assert_eq!(ran.status, Some(1), "{what}: {err}");
    assert!(err.starts_with("ptarmigan: ") && err.lines().count() == 1 && err.len() < 300, "{what}: {err}");
    assert!(ran.out.is_empty(), "{what}");
}

#[test]
fn whole_traces_are_read_in_every_way() {
    for (name, bytes) in [("old", old()), ("new", new())] {
        let file = Temporary::file(name, &bytes);
        for reader in READERS {
            let outs = each_way(reader, &file.0, &bytes);
            for out in &outs {
                let err = &out.err;
                assert_eq!(out.status, Some(0), "{name} {reader:?}: {err}");
                assert!(!out.out.is_empty() && err.is_empty(), "{name} {reader:?}: {err}");
            }
            if reader[0] == "inspect" {
                assert!(outs.iter().all(|out| out.out == outs[0].out), "{name} {reader:?}");
            }
        }
    }
}

#[test]
fn damaged_traces_are_refused_in_every_way() {
    let (old, new) = (old(), new());
    for (name, whole, other) in [("old", &old, &new), ("new", &new, &old)] {
        let mut bad: Vec<(String, Vec<u8>)> = Vec::new();
        let len = whole.len();
        for n in (0..len).step_by(len / 9).chain([1, 11, 30, len - 184, len - 1]) {
            bad.push((format!("cut at {n}"), whole[..n].to_vec()));
            let mut changed = whole.clone();
            changed[n] ^= 0x21;
            bad.push((format!("changed at {n}"), changed));
        }
        for at in [len / 3, len - 184] {
            bad.push((
                format!("another's end from {at}"),
                [&whole[..at], &other[other.len() - 200..]].concat(),
            ));
        }
        bad.push(("two in one".to_owned(), [&whole[..], other].concat()));
        for (what, bytes) in bad {
            let what = format!("{name}, {what}");
            let file = Temporary::file(name, &bytes);
            for reader in READERS {
                for out in each_way(reader, &file.0, &bytes) {
                    one_line(&out, &format!("{what}: {reader:?}"));
                }
            }
        }
    }
}

#[test]
fn a_pipe_that_never_ends_is_read_to_the_first_wrong_byte_only() {
    let whole = new();
    // No byte of a trace; a header; all but its last byte.
    for begin in [&b""[..], &whole[..32], &whole[..whole.len() - 1]] {
        let mut child = program(&["inspect", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(begin).expect("it reads");
        let noise = [0xa5; 1 << 16];
        let written = (0..4096).take_while(|_| input.write_all(&noise).is_ok()).count();
        assert!(written < 64, "it has stopped reading after {written} of 4096 pieces");
        one_line(&child.wait_with_output().expect("it ends").into(), "noise without end");
    }
}

#[test]
fn what_is_no_file_is_read_like_a_pipe_or_refused() {
    let whole = new();
    let out = fed(program(&["inspect"]).arg("/dev/stdin"), &whole);
    assert_eq!(out.status, Some(0), "{}", out.err);
    for (path, what) in
        [("/", "directory"), ("/dev/null", "not a trace"), ("/does/not/exist", "No such file")]
    {
        for reader in READERS {
            let ran = run(program(reader).arg(path));
            one_line(&ran, path);
            assert!(ran.err.contains(what), "{}", ran.err);
        }
    }
    let out = fed(&mut program(&["replay", "-"]), b"");
    one_line(&out, "an empty pipe");
    assert!(out.err.starts_with("ptarmigan: standard input: not a trace"));
}

#[test]
fn tasks_and_kinds_that_do_not_exist_are_named() {
    let file = Temporary::file("choice", new());
    for (choice, what) in [
        (["--task", "2"], "no task 2; its tasks are 0 to 1"),
        (["--task", "0,4294967295"], "no task 4294967295"),
        (["--kind", "fault,tuth"], "tuth: no kind of event; known are fault, clone, "),
    ] {
        let Ran { status, err, .. } = run(program(&["inspect", "--events"]).args(choice).arg(&file.0));
        assert_eq!(status, Some(1), "{err}");
        assert!(err.contains(what) && err.lines().count() == 1, "{err}");
    }
    for usage in [&["--task", "-1"][..], &["--task", "x"], &["--kind"], &["--events", "--json"]] {
        let ran = run(program(&["inspect", "--events"]).args(usage).arg(&file.0));
        assert_eq!(ran.status, Some(2), "{usage:?}");
    }
}

#[test]
fn a_range_beyond_any_machines_frames_takes_no_memory() {
    let mut w = Writer::new(Vec::new(), &Header::new("range", 1, Method::Synthetic), 3).expect("a header");
    let (start, pages) = (1 << 20, 1 << 34);
    let flags = MapFlags(MapFlags::ANON);
    for kind in [
        Kind::Mmap { start, pages, prot: Prot(3), flags },
        Kind::Touched { start, pages, flags: FaultFlags(0) },
        Kind::Exit { last: true },
    ] {
        w.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
    }
    let file = Temporary::file("range", &w.finish(0).expect("memory takes everything").0);
    let mut child = program(&["replay", "--policy", "plain"]).arg(&file.0).stderr(Stdio::piped()).spawn();
    let child = child.as_mut().expect("it is there");
    let mut err = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut err).expect("text");
    let (mut status, mut usage) = (0, no_usage());
    // SAFETY: the child is this process's; both pointers are to variables that live until the call
    // returns, and any bytes the kernel writes are valid for them.
    let ended = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!((ended, libc::WEXITSTATUS(status)), (child.id() as i32, 1), "{err}");
    assert!(err.contains("process 0 got no memory at event 1") && err.contains("--memory"), "{err}");
    // KiB, of 4 GiB that the machine has.
    assert!(usage.ru_maxrss < 512 << 10, "{} KiB", usage.ru_maxrss);
}

/// Usage of resources, before any value is written to it.
fn no_usage() -> libc::rusage {
    // SAFETY: the structure has integers only, for which zero is valid.
    unsafe { std::mem::zeroed() }
}
