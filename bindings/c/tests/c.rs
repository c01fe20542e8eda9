//! Programs in C under ASan and UBSan, in both configurations, with and without the library's own
//! checks. They are compiled by `$CC` or `gcc` and linked with the static library.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const X86_64: &str = "x86_64-unknown-linux-gnu";
const I386: &str = "i586-unknown-linux-gnu";

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wstrict-prototypes"];
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shown(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", shown(&output));
    String::from_utf8(output.stdout).expect("output is text")
}

fn compiler(variable: &str, usual: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| OsString::from(usual)))
}

/// Builds the static library of a target and returns its path.
fn library(target: &str, option: Option<&str>) -> PathBuf {
    run(Command::new(root().join("build")).args(option).arg(target)).trim_end().into()
}

fn width(target: &str) -> &'static str {
    if target == I386 { "-m32" } else { "-m64" }
}

/// Compiles a program of `tests/c` and returns its path.
fn compiled(name: &str, target: &str, option: Option<&str>, flags: &[&str]) -> PathBuf {
    let mut compiler = compiler("CC", "gcc");
    compiler.arg(width(target));
    compiled_by(compiler, name, target, option, flags)
}

fn compiled_by(
    mut compiler: Command,
    name: &str,
    target: &str,
    option: Option<&str>,
    flags: &[&str],
) -> PathBuf {
    let file = format!("{name}-{target}{}", option.unwrap_or_default());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    run(compiler
        .args(["-std=c11", "-g"])
        .args(WARNINGS)
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .arg(root().join("tests/c").join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .arg(library(target, option))
        .arg("-lpthread"));
    program
}

/// Runs a program in each configuration, with and without the library's own checks; returns its
/// output, the same each time.
fn everywhere(name: &str, expected: &str) {
    for (target, option) in
        [(X86_64, None), (X86_64, Some("--checked")), (I386, None), (I386, Some("--checked"))]
    {
        let flags = [&["-O1"], &SANITIZERS[..]].concat();
        let output = run(&mut Command::new(compiled(name, target, option, &flags)));
        assert_eq!(output, expected, "{name} on {target} {option:?}");
    }
}

#[test]
fn senseless_calls_return_errors_and_change_nothing() {
    everywhere("misuse", "all refused\n");
}

#[test]
fn two_threads_with_senseless_calls_lose_nothing() {
    everywhere("hostile", "nothing lost\n");
}

#[test]
fn what_goes_to_a_gather_is_handed_out_after_its_flush() {
    everywhere("gather", "gathered\n");
}

#[test]
fn a_cpu_that_unmaps_interrupts_the_others_and_waits() {
    everywhere("threads", "shot down\n");
}

#[test]
fn a_root_or_a_direct_map_that_hardware_cannot_walk_is_refused() {
    everywhere("root", "walked\n");
}

#[test]
fn high_frames_have_one_address_each_while_mapped() {
    everywhere("kmap", "mapped\n");
}

#[test]
fn every_frame_is_in_one_of_the_counts() {
    everywhere("counts", "added up\n");
}

#[test]
fn the_kernel_is_told_of_frames_before_they_are_executable() {
    everywhere("executable", "told\n");
}

#[test]
fn pages_get_their_memory_type_or_it_is_refused() {
    everywhere("types", "typed\n");
}

#[test]
fn large_pages_are_told_once_and_split_without_memory() {
    everywhere("large", "large\n");
}

/// Needs clang and `qemu-user`, and for each machine its binutils, C library and `libgcc`. GCC's
/// cross compilers cannot be installed beside `gcc-multilib`.
#[test]
#[ignore = "needs clang, C libraries of two machines, and qemu-user"]
fn the_same_programs_run_on_aarch64_and_riscv64() {
    for (target, machine) in [("aarch64-unknown-none", "aarch64"), ("riscv64gc-unknown-none-elf", "riscv64")]
    {
        for (name, expected) in [
            ("misuse", "all refused\n"),
            ("hostile", "nothing lost\n"),
            ("counts", "added up\n"),
            ("executable", "told\n"),
            ("types", "typed\n"),
            ("root", "walked\n"),
            ("large", "large\n"),
            ("threads", "shot down\n"),
            ("gather", "gathered\n"),
        ] {
            let mut compiler = Command::new("clang");
            compiler.arg(format!("--target={machine}-linux-gnu"));
            let program = compiled_by(compiler, name, target, None, &["-O1", "-static"]);
            let output = run(Command::new(format!("qemu-{machine}")).arg(program));
            assert_eq!(output, expected, "{name} on {machine}");
        }
    }
}

/// Returns the output of the reference in Rust.
fn reference(target: &str) -> String {
    let manifest = root().join("Cargo.toml");
    let cargo = |command| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([command, "--quiet", "--release", "--example", "reference", "--target", target]);
        cargo.arg("--manifest-path").arg(&manifest);
        cargo
    };
    run(&mut cargo("run"))
}

#[test]
fn trees_equal_those_of_the_same_calls_in_rust() {
    for target in [X86_64, I386] {
        let flags = [&["-O1"], &SANITIZERS[..]].concat();
        let (rust, c) = (reference(target), run(&mut Command::new(compiled("same", target, None, &flags))));
        let differs = rust.lines().zip(c.lines()).position(|(a, b)| a != b);
        assert!(rust == c, "{target}: first at line {:?}", differs.map(|line| line + 1));
        assert!(rust.lines().count() > 10_000, "{target}: {rust}");
    }
}

/// Instructions of `function`, called by `speed` for so many pairs.
fn instructions(speed: &Path, who: &str, function: &str, pairs: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={function}"))
        .arg(speed)
        .args([who, &pairs.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split("Collected : ").nth(1)).unwrap_or_default();
    count.trim().parse().unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Not times, which belong to the machine: `tests/c/speed.c` prints these.
#[test]
fn a_pair_takes_no_more_instructions_than_in_rust() {
    const PAIRS: u64 = 20_000;
    let speed = compiled("speed", X86_64, Some("--yardstick"), &["-O2"]);
    let [rust, checked, c] =
        [("0", "pt_yardstick_pairs"), ("1", "pt_yardstick_checked_pairs"), ("2", "c_pairs")]
            .map(|(who, function)| instructions(&speed, who, function, PAIRS) / PAIRS);
    println!("instructions a pair: Rust {rust}, Rust with checks {checked}, C {c}");
    assert!(rust > 30 && checked > rust && c > rust, "{rust} {checked} {c}");
    assert!(c * 10 <= checked * 13, "C takes {c}, the same checks in Rust {checked}");
    assert!(c * 10 <= rust * 25, "C takes {c}, Rust without checks {rust}");
}

/// Compiles a file that only includes the header.
fn header_compiles(mut compiler: Command, flags: &[&str]) {
    run(compiler
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion"])
        .args(flags)
        .args(["-fsyntax-only", "-include", "ptarmigan.h", "/dev/null", "-I"])
        .arg(root().join("include")));
}

#[test]
fn the_header_compiles_as_c_and_as_cpp() {
    for width in ["-m64", "-m32"] {
        for standard in ["-std=c11", "-std=c17"] {
            header_compiles(compiler("CC", "gcc"), &["-x", "c", width, "-Wstrict-prototypes", standard]);
        }
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            header_compiles(compiler("CXX", "g++"), &["-x", "c++", width, standard]);
        }
    }
}

/// As it stands there, with the warnings of `run`.
#[test]
fn the_example_in_the_readme_compiles() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    let code = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme.c");
    std::fs::write(&source, code).expect("it can be written");
    run(compiler("CC", "gcc")
        .args(["-std=c11", "-ffreestanding", "-fsyntax-only"])
        .args(WARNINGS)
        .arg("-I")
        .arg(root().join("include"))
        .arg(source));
}

/// A bound against growth, less than 1 % above the present size; README.md has the aim.
#[test]
fn the_library_has_no_more_text_than_it_had() {
    let text = run(Command::new(root().join("text")).arg(library("x86_64-unknown-none", None)));
    let bytes = text.split(": ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let bytes: u32 = bytes.parse().unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(text.starts_with("50 functions") && (50_000..=99_900).contains(&bytes), "{text}");
}
