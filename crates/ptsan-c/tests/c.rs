//! C programs under the sanitizer: the example's kernel with and without its bugs, and the programs
//! in `tests/c`. The programs are compiled by `$CC` or `cc` and linked with the static library.
#![cfg(unix)]
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Flags with which every program and the header must compile without a warning.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shown(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}

fn tool(variable: &str, usual: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| OsString::from(usual)))
}

/// Lets cargo build the static library and say where it is.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--lib", "--message-format", "json", "--manifest-path"])
            .arg(root().join("Cargo.toml"))
            .output()
            .expect("cargo runs");
        assert!(built.status.success(), "{}", shown(&built));
        let messages = String::from_utf8_lossy(&built.stdout);
        // The message is JSON, and no path in it needs an escape unless a directory's name does.
        let end =
            messages.find("libptsan_c.a\"").expect("cargo says where the library is") + "libptsan_c.a".len();
        let start = messages[..end].rfind('"').expect("the path is a string") + 1;
        PathBuf::from(&messages[start..end])
    })
}

/// A directory of the test alone: tests that run at once build programs of the same name.
fn own_directory() -> PathBuf {
    let thread = std::thread::current();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(thread.name().unwrap_or("test"));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    directory
}

/// Compiles a program and returns its path.
fn compiled(name: &str, directory: &Path, sources: &[&str], flags: &[&str]) -> PathBuf {
    compiled_by(tool("CC", "cc"), name, directory, sources, flags)
}

fn compiled_by(
    mut compiler: Command,
    name: &str,
    directory: &Path,
    sources: &[&str],
    flags: &[&str],
) -> PathBuf {
    let program = own_directory().join(name);
    let made = compiler
        .current_dir(directory)
        .args(["-std=c11", "-g", "-O1"])
        .args(WARNINGS)
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler runs");
    assert!(made.status.success(), "{name}: {}", shown(&made));
    program
}

fn run(program: &Path) -> (i32, String, Output) {
    let output = Command::new(program).env_remove("PTSAN_BACKTRACE").output().expect("the program runs");
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), report, output)
}

/// The machines of the example that run here: one told of stores, one whose stores the compiler
/// tells, and one that sees them.
const MACHINES: &[&str] = if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
    &["host", "stores", "watched"]
} else {
    &["host", "stores"]
};

/// Runs the example's kernel with a bug on a machine.
fn kernel(machine: &str, bug: u32) -> (i32, String) {
    let (define, include) = (format!("-DBUG={bug}"), format!("-I{machine}"));
    let kit = kit();
    let flags = [define.as_str(), "-I.", include.as_str(), kit.as_str()];
    let name = format!("kernel-{machine}-{bug}");
    let directory = root().join("examples/kernel");
    let program = if machine == "stores" {
        with_told(|| tool("CC", "cc"), &name, &directory, ["paging.c", "main.c"], &flags)
    } else {
        compiled(&name, &directory, &["paging.c", "main.c"], &flags)
    };
    let (code, report, output) = run(&program);
    assert_eq!(output.stdout, b"", "bug {bug}");
    (code, report)
}

/// The flag with which files of the kit are found.
fn kit() -> String {
    format!("-I{}", root().join("kit").display())
}

/// The flags of code whose stores the compiler tells, as the README has them.
const TOLD: [&str; 5] = [
    "-fsanitize=thread",
    "-fno-builtin",
    "-Dmemset=ptsan_stores_memset",
    "-Dmemcpy=ptsan_stores_memcpy",
    "-Dmemmove=ptsan_stores_memmove",
];

/// Compiles a program of code under test, whose stores the compiler tells, and a test.
fn with_told(
    compiler: impl Fn() -> Command,
    name: &str,
    directory: &Path,
    [code, test]: [&str; 2],
    flags: &[&str],
) -> PathBuf {
    let object = own_directory().join(format!("{name}-told.o"));
    let made = compiler()
        .current_dir(directory)
        .args(["-std=c11", "-g", "-O1"])
        .args(WARNINGS)
        .args(TOLD)
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .args(["-c", code, "-o"])
        .arg(&object)
        .output()
        .expect("a C compiler runs");
    assert!(made.status.success(), "{name}: {}", shown(&made));
    let kit = root().join("kit/ptsan_stores.c");
    let sources = [object.to_str(), Some(test), kit.to_str()].map(|path| path.expect("text"));
    compiled_by(compiler(), name, directory, &sources, flags)
}

#[test]
fn the_kernel_without_a_bug_is_silent() {
    for machine in MACHINES {
        assert_eq!(kernel(machine, 0), (0, String::new()), "{machine}");
    }
}

#[test]
fn each_bug_of_the_kernel_is_found_in_its_function() {
    // The kind in the report, and the function that it names where a hook was called in one.
    let bugs = [
        (1, "data-freed-before-flush", "space_unmap"), // no flush on unmap
        (2, "free-before-flush", "space_unmap"),       // tables freed before the flush
        (3, "linked-before-cleared", "walk"),          // tables linked, then cleared
        (4, "double-free", "space_destroy"),           // the root freed twice
        (5, "leak", ""),                               // the last tables not freed
        (6, "data-freed-before-flush", "space_unmap"), // another page flushed
        (7, "free-while-linked", "space_unmap"),       // the entry of a freed table not cleared
        (8, "data-freed-before-flush", "space_unmap"), // no shootdown
        (9, "flush-missing", "space_protect"),         // no flush on protect
        (10, "flush-missing", "space_fork"),           // no flush when pages become copy on write
        (11, "double-free", "free_level"),             // the child of a fork gets a table of the parent
        (12, "free-before-flush", "space_destroy"),    // the root freed while a CPU has it loaded
        (13, "data-freed-before-flush", "space_unmap"), // a page's frame freed before the flush
        (14, "data-reused-before-flush", "space_map"), // a page's frame made a table before the flush
        (15, "data-freed-before-flush", "space_unmap"), // flushed before the entry was cleared
        (16, "flush-missing", "space_write_fault"),    // no flush when a page is copied
        (17, "table-mapped", "walk"),                  // users may write a table
        (18, "bit-lost", "space_protect"),             // a plain store where hardware sets dirty bits
    ];
    for (machine, (bug, kind, function)) in MACHINES.iter().flat_map(|m| bugs.map(|bug| (m, bug))) {
        let (code, report) = kernel(machine, bug);
        let is_of_kind = |finding: &&str| {
            finding.starts_with(&format!("{kind}: ")) || finding.contains(&format!("\n    {kind}/"))
        };
        let of_kind = report.split("\n\n").find(is_of_kind);
        let finding = of_kind.unwrap_or_else(|| panic!("{machine}: bug {bug} is no {kind}: {report}"));
        let named = function.is_empty() || finding.lines().any(|line| line.trim() == function);
        assert!(named, "{machine}: bug {bug} is not in {function}: {finding}");
        let harness = ["hooks.h:", "machine.h:", "main.c:"].into_iter().find(|file| finding.contains(file));
        assert!(
            function.is_empty() || harness.is_none(),
            "{machine}: bug {bug} names {harness:?}: {finding}"
        );
        assert!(code > 0 && !report.contains("ptsan_c::") && !report.contains("__rust"), "{code}: {report}");
        let fits = finding.lines().all(|line| line.chars().count() <= 80);
        assert!(fits, "{machine}: bug {bug}: {finding}");
    }
}

/// Without a shootdown, pages and tables are freed too early at each level and used at each access.
#[test]
fn one_wrong_line_is_one_cause_whatever_follows_from_it() {
    for machine in MACHINES {
        let (code, report) = kernel(machine, 8);
        let summary = report.lines().find(|line| line.starts_with("summary: ")).unwrap_or_default();
        assert!(code > 5 && report.contains("from the same cause"), "{machine}: {report}");
        // Each function whose stores nobody flushed, and two that take a table again.
        let causes = summary.split(", ").find(|part| part.contains("cause")).unwrap_or_default();
        let causes: u32 = causes.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default();
        assert!((1..=8).contains(&causes), "{machine}: {report}");
    }
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_watched_store_has_a_line_and_an_address_in_its_file() {
    let (_, report) = kernel("watched", 3);
    let line = report.split("\n\n").find(|part| part.starts_with("finding 1 ")).unwrap_or_default();
    assert!(line.contains(": walk at ./examples/kernel/paging.c:"), "{report}");
    let (_, address) = line.split_once("(0x").unwrap_or_default();
    let (address, _) = address.split_once(" of kernel-watched-3) stored to 0x").unwrap_or_default();
    let address = u64::from_str_radix(address, 16).unwrap_or_else(|e| panic!("{e}: {line}"));
    // The program is loaded anywhere: the address is that of the file.
    assert!(address < 1 << 32, "{line}");
    // A flush that is missing is told at the end, and names the store that was watched.
    let (_, report) = kernel("watched", 9);
    let stored = report.split("the store was made in\n").nth(1).unwrap_or_default();
    assert!(stored.contains("    space_protect\n      at ./examples/kernel/paging.c:"), "{report}");
}

/// Runs a program of `tests/c`.
fn program(name: &str) -> (i32, String, String) {
    let source = format!("{name}.c");
    let (code, report, output) = run(&compiled(name, &root().join("tests/c"), &[&source], &[]));
    (code, report, String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn senseless_calls_are_errors_or_findings_and_never_crash() {
    let (code, report, output) = program("misuse");
    assert_eq!((code, output.as_str()), (0, "all refused\n"), "{report}");
}

#[test]
fn devices_guests_readers_locks_and_errata_have_functions() {
    let (code, report, output) = program("readers");
    assert_eq!((code, output.as_str()), (0, ""), "{report}");
}

#[test]
fn functions_return_addresses_answers_and_findings() {
    let (code, report, output) = program("results");
    assert_eq!((code, output.as_str()), (6, ""), "{report}");
    assert!(report.contains("allowed and not seen: stale-use"), "{report}");
    assert!(report.contains("ptsan refused a call:\n  ptsan_flush_all: CPU -55;"), "{report}");
}

/// Makes the command of a compiler.
type Compiler = fn() -> Command;

/// The C compilers that are here: that of `$CC`, and `clang`.
fn compilers() -> Vec<(&'static str, Compiler)> {
    let all: [(&str, Compiler); 2] = [("cc", || tool("CC", "cc")), ("clang", || Command::new("clang"))];
    let is_here = |(_, command): &(&str, Compiler)| command().arg("--version").output().is_ok();
    all.into_iter().filter(is_here).collect()
}

#[test]
fn the_compiler_tells_of_every_store() {
    for (compiler, command) in compilers() {
        let (name, directory) = (format!("stores-{compiler}"), root().join("tests/c"));
        let program = with_told(command, &name, &directory, ["stores_code.c", "stores.c"], &[&kit()]);
        let (code, report, output) = run(&program);
        assert_eq!((code, report.as_str()), (0, ""), "{compiler}: {}", shown(&output));
    }
}

/// The kernel's allocator and its callers are in one file, and the file is as it is.
#[test]
#[cfg(target_os = "linux")]
fn an_allocator_in_the_file_under_test_is_heard() {
    for (compiler, command) in compilers() {
        for (bug, findings) in [(0, 0), (1, 1)] {
            let directory = root().join("examples/allocator");
            let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("allocator-{compiler}-{bug}"));
            let (object, shared) = (place.with_extension("o"), place.with_extension("so"));
            let (define, kit) = (format!("-DBUG={bug}"), kit());
            let made = command()
                .current_dir(&directory)
                .args(["-std=c99", "-g", "-O1", "-fPIC", "-fno-inline", "-fsemantic-interposition"])
                .args(WARNINGS)
                .args(TOLD)
                .args([&define, "-c", "kernel.c", "-o"])
                .arg(&object)
                .output()
                .expect("a C compiler runs");
            assert!(made.status.success(), "{compiler}: {}", shown(&made));
            let made = command().arg("-shared").arg(&object).arg("-o").arg(&shared).output();
            assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{compiler}: {made:?}");
            let stores = root().join("kit/ptsan_stores.c");
            let sources = [Some("test.c"), stores.to_str(), shared.to_str()].map(|path| path.expect("text"));
            let name = format!("allocator-{compiler}-{bug}");
            let program = compiled_by(command(), &name, &directory, &sources, &[&kit, "-rdynamic"]);
            let (code, report, _) = run(&program);
            assert_eq!(code, findings, "{compiler}: {report}");
            let lines = report.matches("\n    unmap\n      at ./examples/allocator/kernel.c:").count();
            assert_eq!(lines > 0, bug == 1, "{compiler}: {report}");
            assert!(!report.contains("test.c:"), "{compiler}: {report}");
        }
    }
}

#[test]
fn the_kit_is_plain_c() {
    for (compiler, command) in compilers() {
        for file in ["ptsan_stores.c", "ptsan_log.c"] {
            let made = command()
                .current_dir(root().join("kit"))
                .args(["-std=c99", "-fsyntax-only", "-I../include", file])
                .args(WARNINGS)
                .output()
                .expect("a C compiler runs");
            assert!(made.status.success(), "{compiler} {file}: {}", shown(&made));
        }
    }
    for header in ["ptsan_stores.h", "ptsan_log.h"] {
        let made = tool("CXX", "c++")
            .current_dir(root().join("kit"))
            .args([
                "-std=c++11",
                "-fsyntax-only",
                "-I../include",
                "-x",
                "c++",
                "-include",
                header,
                "/dev/null",
            ])
            .args(WARNINGS)
            .output()
            .expect("a C++ compiler runs");
        assert!(made.status.success(), "{header}: {}", shown(&made));
    }
}

#[test]
fn tables_without_a_level_are_known_when_their_root_is_loaded() {
    assert_eq!(program("levels"), (0, String::new(), String::new()));
}

#[test]
fn threads_stand_for_cpus() {
    assert_eq!(program("threads"), (0, String::new(), String::new()));
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_watch_sees_stores_that_nobody_tells() {
    let (code, report, output) = program("watch");
    assert_eq!((code, output.as_str()), (1, ""), "{report}");
    let trace = report.split("found in\n").nth(1).unwrap_or_default();
    assert!(trace.starts_with("    map\n      at "), "{report}");
    assert!(!report.contains("ptsan_c::"), "{report}");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn kernel_code_runs_with_its_privileged_instructions() {
    let (code, report, output) = program("identity");
    assert_eq!((code, output.as_str()), (0, ""), "{report}");
}

/// The examples beside the first: each with a bug and without.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn the_other_examples_find_their_bugs() {
    for (name, bugs) in [("barriers", 2), ("identity", 1)] {
        let source = format!("examples/{name}.c");
        for bug in 0..=bugs {
            let define = format!("-DBUG={bug}");
            let program = compiled(&format!("{name}-{bug}"), root(), &[&source], &[&define]);
            let (code, report, _) = run(&program);
            assert_eq!(code, i32::from(bug > 0), "{name} {bug}: {report}");
            assert_eq!(report.contains("data-freed-before-flush"), bug > 0, "{name} {bug}: {report}");
        }
    }
}

/// Compiles a file that only includes the header.
fn header_compiles(mut compiler: Command, flags: &[&str]) {
    let made = compiler
        .args(WARNINGS)
        .args(flags)
        .args(["-fsyntax-only", "-include", "ptsan.h", "/dev/null", "-I"])
        .arg(root().join("include"))
        .output()
        .expect("a compiler runs");
    assert!(made.status.success(), "{flags:?}: {}", shown(&made));
}

#[test]
fn the_header_compiles_as_c_and_as_cpp() {
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        header_compiles(tool("CC", "cc"), &["-x", "c", "-Wconversion", "-Wstrict-prototypes", standard]);
    }
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        header_compiles(tool("CXX", "c++"), &["-x", "c++", "-Wconversion", standard]);
    }
}

/// Compiles a program in C++11 by a compiler.
fn compiled_cpp(mut compiler: Command, name: &str, source: &str) -> PathBuf {
    let program = own_directory().join(name);
    let made = compiler
        .current_dir(root())
        .args(["-std=c++11", "-g"])
        .args(WARNINGS)
        .args(["-I", "include", source, "-o"])
        .arg(&program)
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C++ compiler runs");
    assert!(made.status.success(), "{}", shown(&made));
    program
}

#[test]
fn a_program_in_cpp_calls_the_library() {
    let (code, report, _) = run(&compiled_cpp(tool("CXX", "c++"), "cpp", "tests/c/cpp.cpp"));
    assert!(code == 1 && report.contains("double-free: the table was freed before"), "{code}: {report}");
}

/// The report of the program in C is that in the README.
#[test]
fn the_first_program_in_cpp_reports_what_that_in_c_does() {
    let in_c = run(&compiled("first-in-c", root(), &["./examples/first.c"], &[])).1;
    let source = std::fs::read_to_string(root().join("examples/first.cpp")).expect("there is an example");
    let line = 1 + source.lines().position(|line| line.contains("table_free(0x4000)")).expect("it frees");
    // Compilers differ in the column and in the name of a function in an unnamed namespace.
    let without_place = |report: &str| {
        let is_place = |line: &&str| !line.contains("unmap") && !line.contains("at ./examples/first.c");
        report.lines().filter(is_place).collect::<Vec<_>>().join("\n")
    };
    let all: [(&str, Compiler); 2] =
        [("c++", || tool("CXX", "c++")), ("clang++", || Command::new("clang++"))];
    for (name, compiler) in all {
        if compiler().arg("--version").output().is_err() {
            continue;
        }
        let (code, report, _) =
            run(&compiled_cpp(compiler(), &format!("first-{name}"), "./examples/first.cpp"));
        assert_eq!((code, without_place(&report)), (1, without_place(&in_c)), "{name}: {report}");
        let frames = report.split("found in\n").nth(1).unwrap_or_default();
        let frames: Vec<_> = frames.lines().take(2).map(str::trim).collect();
        let [function, at] = frames[..] else { panic!("{name}: {report}") };
        assert!(function.ends_with("unmap"), "{name}: {report}");
        assert!(at.contains(&format!("./examples/first.cpp:{line}")), "{name}: {report}");
    }
}

/// Returns the command of Zig's compiler: `$ZIG`, `zig`, or the module that pip installs.
fn zig() -> Option<Vec<OsString>> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let named = std::env::var_os("ZIG").map(|zig| vec![zig]);
    let candidates = named.into_iter().chain([words(&["zig"]), words(&["python3", "-m", "ziglang"])]);
    candidates.into_iter().find(|command| {
        let version = Command::new(&command[0]).args(&command[1..]).arg("version").output();
        version.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn a_program_in_zig_calls_the_library() {
    let Some(zig) = zig() else {
        eprintln!("skipped: no Zig here; `pip install ziglang` or set ZIG");
        return;
    };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zig-program");
    std::fs::create_dir_all(&scratch).expect("a directory can be made");
    let call = |arguments: &[&str], paths: &[&Path]| {
        let mut command = Command::new(&zig[0]);
        command.current_dir(&scratch).args(&zig[1..]).args(arguments).args(paths);
        let made = command.output().expect("zig runs");
        assert!(made.status.success(), "{arguments:?}: {}", shown(&made));
        made.stdout
    };
    let header = call(&["translate-c", "-lc"], &[&root().join("include/ptsan.h")]);
    std::fs::write(scratch.join("ptsan.zig"), header).expect("a file can be written");
    std::fs::copy(root().join("tests/c/zig.zig"), scratch.join("zig.zig")).expect("a file can be copied");
    call(&["build-exe", "zig.zig", "-lc", "-lunwind", "-femit-bin=program"], &[library()]);
    let program = scratch.join("program");
    let (code, report, _) = run(&program);
    assert!(code == 1 && report.contains("double-free: the table was freed before"), "{code}: {report}");
}

#[test]
fn the_readme_shows_the_first_program_and_what_it_prints() {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).expect("there is a README");
    let source = std::fs::read_to_string(root().join("examples/first.c")).expect("there is an example");
    assert!(readme.contains(&format!("```c\n{source}```\n")), "the README has another program");
    let (code, report, _) = run(&compiled("first", root(), &["./examples/first.c"], &["-O0"]));
    let (before, rest) = readme.split_once("```text\n").expect("the README has a report");
    let (shown, after) = rest.split_once("```\n").expect("the report ends");
    if shown != report && std::env::var_os("PTSAN_WRITE").is_some() {
        std::fs::write(&path, format!("{before}```text\n{report}```\n{after}")).expect("it can be written");
    } else {
        assert_eq!(shown, report, "the README shows another report; run with PTSAN_WRITE=1");
    }
    assert_eq!(code, 1);

    // The flush comes first, as the README says that it must.
    let is_free = |line: &&str| line.contains("table_free(0x4000)");
    let free = source.lines().find(is_free).expect("the program frees the table");
    let is_flush = |line: &&str| line.contains("invlpg(0)");
    let flush = source.lines().find(is_flush).expect("the program flushes the page");
    let right = source.replace(&format!("{free}\n{flush}"), &format!("{flush}\n{free}"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join("right.c"), right).expect("a file can be written");
    let (code, report, _) = run(&compiled("right", directory, &["right.c"], &[]));
    assert_eq!((code, report.as_str()), (0, ""));
}

/// Runs the commands of the README that compile programs, in a copy of the crate and of the
/// directories around it, because the commands name the library by its path in the repository.
#[test]
fn commands_of_the_readme_compile_and_find_the_bug() {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    _ = std::fs::remove_dir_all(&here);
    let (copy, release) = (here.join("crates/ptsan-c"), here.join("target/release"));
    for directory in [&copy, &release] {
        std::fs::create_dir_all(directory).expect("a directory can be made");
    }
    for directory in ["include", "kit", "examples"] {
        let copied = Command::new("cp").arg("-r").arg(root().join(directory)).arg(&copy).status();
        assert!(copied.expect("cp runs").success());
    }
    std::os::unix::fs::symlink(library(), release.join("libptsan_c.a")).expect("a link can be made");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut programs = 0;
    for commands in blocks.filter(|block| block.contains("cc ")) {
        let output = Command::new("sh")
            .args(["-c", commands])
            .current_dir(&here)
            .env_remove("PTSAN_BACKTRACE")
            .output()
            .expect("sh runs");
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(report.contains("-before-flush: "), "{commands}{}", shown(&output));
        assert_ne!(output.status.code(), Some(0), "{commands}");
        programs += 1;
    }
    assert!(programs >= 4, "{programs} programs in the README");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_kernel_compiles_for_its_hardware() {
    let checked = tool("CC", "cc")
        .current_dir(root().join("examples/kernel"))
        .args(["-std=c11", "-Ihardware", "-fsyntax-only", "paging.c"])
        .args(WARNINGS)
        .output()
        .expect("a C compiler runs");
    assert!(checked.status.success(), "{}", shown(&checked));
}
