//! Build systems find an installed library: the first programs and a kernel whose stores the
//! compiler tells are built with `pkg-config`, CMake and make. A tool that is not here is skipped.
#![cfg(unix)]
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn shown(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}

fn is_here(tool: &str) -> bool {
    let is = Command::new(tool).arg("--version").output().is_ok();
    if !is {
        eprintln!("skipped: {tool} is not here");
    }
    is
}

/// Returns the archive that cargo builds with the profile of tests.
fn library() -> PathBuf {
    let messages = succeed(
        Command::new(env!("CARGO"))
            .args(["build", "--lib", "--message-format", "json", "--manifest-path"])
            .arg(root().join("Cargo.toml")),
    );
    let path = messages.split('"').find(|part| part.ends_with("libptsan_c.a"));
    path.expect("cargo says where the library is").into()
}

/// Installs the library and the kit, and moves them elsewhere. Returns an empty directory beside.
fn installed(name: &str) -> (PathBuf, PathBuf) {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("build-{name}"));
    _ = std::fs::remove_dir_all(&here);
    let first = here.join("installed");
    succeed(Command::new(root().join("install")).arg("--library").arg(library()).arg(&first));
    let (moved, work) = (here.join("moved"), here.join("work"));
    std::fs::rename(first, &moved).expect("it can be moved");
    std::fs::create_dir(&work).expect("a directory can be made");
    (moved, work)
}

/// The programs find what they are for.
fn check(directory: &Path) {
    for (program, finding) in [
        ("first", "free-before-flush: a CPU holds the table"),
        ("firstpp", "free-before-flush: a CPU holds the table"),
        ("kernel", "data-freed-before-flush: "),
    ] {
        let output = Command::new(directory.join(program)).output().expect("the program runs");
        assert!(output.status.code() > Some(0), "{program}: {}", shown(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(finding), "{program}: {}", shown(&output));
    }
}

#[test]
fn make_builds_with_its_file() {
    if !is_here("make") {
        return;
    }
    let (prefix, work) = installed("make");
    let examples = root().join("examples");
    succeed(
        Command::new("make")
            .current_dir(&work)
            .arg("-f")
            .arg(root().join("tests/build/Makefile"))
            .arg(format!("PTSAN={}", prefix.display()))
            .arg(format!("EXAMPLES={}", examples.display())),
    );
    check(&work);
}

#[test]
fn cmake_finds_the_package() {
    if !is_here("cmake") {
        return;
    }
    let (prefix, work) = installed("cmake");
    let cmake = |version: &str| {
        let mut command = Command::new("cmake");
        command
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
            .arg(format!("-DEXAMPLES={}", root().join("examples").display()))
            .arg("-S")
            .arg(work.join(format!("source-{version}")))
            .arg("-B")
            .arg(&work);
        command
    };
    let project = std::fs::read_to_string(root().join("tests/build/CMakeLists.txt")).expect("a project");
    for version in ["0.1", "9.9"] {
        let source = work.join(format!("source-{version}"));
        std::fs::create_dir(&source).expect("a directory can be made");
        let wants = project.replace("find_package(ptsan 0.1 ", &format!("find_package(ptsan {version} "));
        std::fs::write(source.join("CMakeLists.txt"), wants).expect("it can be written");
    }
    let other = cmake("9.9").output().expect("cmake runs");
    assert!(!other.status.success() && shown(&other).contains("9.9"), "{}", shown(&other));
    _ = std::fs::remove_file(work.join("CMakeCache.txt"));
    succeed(&mut cmake("0.1"));
    succeed(Command::new("cmake").arg("--build").arg(&work));
    check(&work);
}

#[test]
fn pkg_config_has_the_flags() {
    if !is_here("pkg-config") {
        return;
    }
    let (prefix, work) = installed("pkg-config");
    let pkg_config = |argument: &str| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args([argument, "ptsan"]);
        succeed(&mut command).trim().to_owned()
    };
    assert_eq!(pkg_config("--modversion"), env!("CARGO_PKG_VERSION"));
    let (cflags, libs) = (pkg_config("--cflags"), pkg_config("--libs"));
    let (told, stores) = (pkg_config("--variable=told"), pkg_config("--variable=stores"));
    let kernel = "-DBUG=8 -I$EXAMPLES/kernel -I$EXAMPLES/kernel/stores";
    let commands = format!(
        "set -e
        cc -g $EXAMPLES/first.c {cflags} {libs} -o first
        c++ -std=c++11 -g $EXAMPLES/first.cpp {cflags} {libs} -o firstpp
        cc -g {kernel} {cflags} {told} -c $EXAMPLES/kernel/paging.c
        cc -g {kernel} {cflags} $EXAMPLES/kernel/main.c paging.o {stores} {libs} -o kernel"
    );
    let mut shell = Command::new("sh");
    shell.current_dir(&work).env("EXAMPLES", root().join("examples")).args(["-c", &commands]);
    succeed(&mut shell);
    check(&work);
}
