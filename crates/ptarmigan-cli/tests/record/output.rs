//! The output file.
use super::common::{Dir, METHODS, Mounted, ptarmigan, report, run, with_each_method};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_full_disk_ends_the_recording_and_not_the_command() {
    for method in METHODS {
        let dir = Dir::new(&format!("full-{method}"));
        let small = dir.path("small");
        let Some(mounted) = Mounted::new(&small, "6m") else { return };
        let file = small.join("out.ptrace");
        let script = "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done; exit 5";
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "-o"]).arg(&file).args(["--", "sh", "-c", script]);
        let (status, stderr) = run(&mut command);
        if status != Some(5) && stderr.lines().count() == 1 {
            eprintln!("skipped: {method} cannot record here");
            continue;
        }
        assert_eq!(status, Some(5), "{stderr}");
        assert!(stderr.contains("the recording ended before the command did"), "{stderr}");
        let found = report(&file);
        assert!(found.execs > 20 && found.execs < 3000, "{method}: {}", found.execs);
        assert!(found.unseen.contains(&"the end of the command"));
        drop(mounted);
    }
}

#[test]
fn an_output_that_cannot_be_written() {
    for output in ["/does/not/exist/out.ptrace", "/"] {
        let (status, stderr) = run(ptarmigan().args(["record", "-o", output, "--", "true"]));
        assert_eq!(status, Some(1), "{stderr}");
        assert!(stderr.starts_with("ptarmigan: ") && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn a_new_file_is_named_by_the_program_with_most_tables() {
    for method in METHODS {
        let dir = Dir::new(&format!("unnamed-{method}"));
        let record = |command: &[&str]| {
            run(ptarmigan().args(["record", "--method", method]).args(command).current_dir(&dir.0))
        };
        // `sort` holds all lines in memory.
        let script = "head -c 9000000 /dev/zero | tr '\\0' '\\n' | sort >/dev/null; exit 3";
        let command = ["sh", "-c", script, "--level", "1"];
        let (status, stderr) = record(&command);
        if status == Some(1) && stderr.lines().count() == 1 {
            eprintln!("skipped: {method} cannot record here");
            continue;
        }
        assert_eq!((status, dir.files()), (Some(3), vec!["sort.ptrace".to_owned()]), "{method}: {stderr}");
        assert!(stderr.contains("sort.ptrace: "), "{stderr}");
        assert_eq!(report(&dir.path("sort.ptrace")).name, "sort");
        // No file is replaced.
        let first = std::fs::read(dir.path("sort.ptrace")).expect("the trace");
        assert_eq!(record(&command).0, Some(3));
        assert_eq!(dir.files(), ["sort-2.ptrace", "sort.ptrace"], "{method}");
        assert_eq!(std::fs::read(dir.path("sort.ptrace")).expect("the trace"), first);
        let (status, stderr) = record(&["--name", "a name", "true"]);
        assert_eq!(status, Some(0), "{stderr}");
        assert!(dir.files().contains(&"a-name.ptrace".to_owned()), "{:?}", dir.files());
        assert_eq!(report(&dir.path("a-name.ptrace")).name, "a name");
    }
}

#[test]
fn a_trace_is_not_a_command() {
    let dir = Dir::new("trace-as-command");
    std::fs::write(dir.path("x.ptrace"), b"").expect("a file");
    let (status, stderr) = run(ptarmigan().args(["record", "x.ptrace"]).current_dir(&dir.0));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.ends_with("print it with: ptarmigan inspect x.ptrace\n"), "{stderr}");
    assert_eq!((stderr.lines().count(), dir.files()), (1, vec!["x.ptrace".to_owned()]));
}

/// Records `true` to `output`. This must be refused in one line, before the command runs.
fn refused(output: &Path) -> String {
    let (status, stderr) = run(ptarmigan().args(["record", "-o"]).arg(output).args(["--", "true"]));
    assert_eq!(status, Some(1), "{}: {stderr}", output.display());
    let start = format!("ptarmigan: {}: ", output.display());
    assert!(stderr.starts_with(&start) && stderr.lines().count() == 1, "{stderr}");
    stderr
}

#[test]
fn only_a_regular_file_is_replaced() {
    let dir = Dir::new("kinds");
    // The test makes its own device node. It uses the real one only where a defect could not
    // replace it.
    let null = dir.path("null");
    let made = Command::new("mknod").arg(&null).args(["c", "1", "3"]).stderr(Stdio::null()).status();
    let made = made.is_ok_and(|status| status.success());
    if made || !rustix::process::geteuid().is_root() {
        let device = if made { null } else { "/dev/null".into() };
        assert!(refused(&device).contains("a device"));
        let linked = dir.path("linked-device");
        symlink(&device, &linked).expect("a link");
        assert!(refused(&linked).contains("a device"), "a link does not hide what it leads to");
        assert!(device.metadata().expect("the device").file_type().is_char_device(), "it is what it was");
    } else {
        eprintln!("skipped: no device node can be made here");
    }

    let pipe = dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    assert!(refused(&pipe).contains("a pipe"));

    let dangling = dir.path("dangling");
    symlink("nothing", &dangling).expect("a link");
    assert!(refused(&dangling).contains("a symbolic link to nothing"));
    let circle = dir.path("circle");
    symlink("circle", &circle).expect("a link");
    refused(&circle);

    assert!(refused(&dir.0).contains("a directory"));
    let directory = dir.path("linked-directory");
    symlink(&dir.0, &directory).expect("a link");
    assert!(refused(&directory).contains("a directory"));
    refused(&dir.path("absent/out.ptrace"));
    for name in ["new/", "new/."] {
        assert!(refused(&dir.path(name)).contains("not the name of a file"));
    }
    for link in [dangling, circle, directory] {
        assert!(link.symlink_metadata().expect("the link").is_symlink(), "it is what it was");
    }
}

#[test]
fn an_unwritable_directory_is_refused_before_the_command_runs() {
    let dir = Dir::new("read-only");
    let ran = dir.path("ran");
    // No user can create a file there, root included.
    let (status, stderr) =
        run(ptarmigan().args(["record", "-o", "/proc/out.ptrace", "--", "touch"]).arg(&ran));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.starts_with("ptarmigan: /proc/out.ptrace: cannot be written: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!ran.exists());
}

#[test]
fn a_link_to_a_regular_file_stays_and_the_file_gets_the_trace() {
    with_each_method("link", &["/bin/true"], |status, stderr, file, dir| {
        assert_eq!(status, Some(0), "{stderr}");
        let link = dir.path("link.ptrace");
        let elsewhere =
            Dir::new(&format!("elsewhere-{}", dir.0.file_name().unwrap_or_default().to_string_lossy()));
        let target = elsewhere.path("target.ptrace");
        std::fs::rename(file, &target).expect("same file system");
        symlink(&target, &link).expect("a link");
        let (status, stderr) =
            run(ptarmigan().args(["record", "-o"]).arg(&link).args(["--name", "linked", "--", "true"]));
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!(std::fs::read_link(&link).expect("still a link"), target);
        assert_eq!(report(&target).name, "linked");
        assert_eq!(elsewhere.files(), ["target.ptrace"], "no temporary file is left");
        assert_eq!(dir.files(), ["link.ptrace"]);
    });
}
