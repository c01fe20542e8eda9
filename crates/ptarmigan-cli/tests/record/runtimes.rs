//! Runtimes and allocators of real programs, where this machine has them, and the stacks of their
//! threads.
use super::common::{Dir, METHODS, ptarmigan, run};
use ptarmigan_trace::{Kind, Note, Object, Reader, Runtime};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program with a thread that uses its stack.
const THREAD: &str = r#"#include <pthread.h>
#include <string.h>
static void *run(void *unused) {
    char local[65536];
    memset(local, 1, sizeof local);
    __asm__ volatile("" :: "r"(local) : "memory");
    return unused;
}
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL))
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
"#;

/// Returns the first of these programs that is there.
fn found(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    let found = all.into_iter().find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: no {}", names[0]);
    }
    found
}

/// Records a command with each method, and gives its runtimes and the objects of its mappings to
/// `check`. Methods that this machine does not have are left out.
fn each(name: &str, command: &[&str], check: impl Fn(&str, &BTreeSet<Runtime>, &[Object])) {
    for method in METHODS {
        let dir = Dir::new(&format!("runtime-{name}-{method}"));
        let file = dir.path("out.ptrace");
        let mut recorder = ptarmigan();
        recorder
            .args(["record", "--method", method, "--level", "3", "-o"])
            .arg(&file)
            .arg("--")
            .args(command);
        let (status, stderr) = run(&mut recorder);
        if !file.exists() {
            eprintln!("skipped: {method}: {}", stderr.trim());
            continue;
        }
        assert_eq!(status, Some(0), "{method}: {stderr}");
        let (mut runtimes, mut objects) = (BTreeSet::new(), Vec::new());
        for event in Reader::open(&file).expect("a trace") {
            match event.expect("an event").kind {
                Kind::Note(Note::Runtime(runtime)) => drop(runtimes.insert(runtime)),
                Kind::Note(Note::Mapped { object, .. }) => objects.push(object),
                _ => {}
            }
        }
        check(method, &runtimes, &objects);
    }
}

fn compile(dir: &Dir, compiler: &Path, flags: &[&str]) -> String {
    let (source, program) = (dir.path("thread.c"), dir.path("thread"));
    std::fs::write(&source, THREAD).expect("our directory");
    let built = Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(&source).args(flags).output();
    let built = built.expect("the compiler is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn a_java_machine_is_told_and_the_stacks_of_its_threads() {
    let Some(java) = found(&["java"]) else { return };
    each("java", &[java.to_str().expect("UTF-8"), "-version"], |method, runtimes, objects| {
        assert_eq!(*runtimes, BTreeSet::from([Runtime::Glibc, Runtime::Jvm]), "{method}");
        assert!(objects.contains(&Object::ThreadStack), "{method}: {objects:?}");
    });
}

#[test]
fn go_is_told_and_has_no_other_runtime() {
    // Its own command is a program in Go.
    let Some(go) = found(&["go", "../local/go/bin/go"]) else { return };
    each("go", &[go.to_str().expect("UTF-8"), "version"], |method, runtimes, objects| {
        assert_eq!(*runtimes, BTreeSet::from([Runtime::Go]), "{method}");
        // Stacks are parts of Go's own heap, not mappings.
        assert!(!objects.contains(&Object::ThreadStack), "{method}: {objects:?}");
    });
}

#[test]
fn python_is_told_by_its_name_or_its_library() {
    let Some(python) = found(&["python3"]) else { return };
    each("python", &[python.to_str().expect("UTF-8"), "-c", "0"], |method, runtimes, _| {
        assert!(runtimes.contains(&Runtime::Python), "{method}: {runtimes:?}");
    });
}

#[test]
fn an_allocator_that_is_preloaded_stands_beside_the_c_library() {
    let dirs = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let file = dirs.iter().map(|dir| format!("{dir}/libjemalloc.so.2")).find(|file| Path::new(file).exists());
    let Some(file) = file else {
        eprintln!("skipped: no jemalloc");
        return;
    };
    let preload = format!("LD_PRELOAD={file}");
    each("jemalloc", &["env", &preload, "true"], |method, runtimes, _| {
        assert_eq!(*runtimes, BTreeSet::from([Runtime::Glibc, Runtime::Jemalloc]), "{method}");
    });
}

#[test]
fn c_libraries_are_told_in_programs_with_and_without_libraries() {
    let cases: [(&str, &[&str], Runtime, bool); 4] = [
        ("cc", &["-pthread"], Runtime::Glibc, true),
        ("cc", &["-pthread", "-static"], Runtime::Glibc, true),
        // It maps stacks as other memory: no flag tells.
        ("musl-gcc", &["-pthread"], Runtime::Musl, false),
        ("musl-gcc", &["-pthread", "-static"], Runtime::Musl, false),
    ];
    for (n, (compiler, flags, runtime, has_stack)) in cases.into_iter().enumerate() {
        let Some(compiler) = found(&[compiler]) else { continue };
        let dir = Dir::new(&format!("runtime-c-{n}"));
        let program = compile(&dir, &compiler, flags);
        each(&format!("c{n}"), &[&program], |method, runtimes, objects| {
            assert_eq!(*runtimes, BTreeSet::from([runtime]), "{method}: {flags:?}");
            assert_eq!(objects.contains(&Object::ThreadStack), has_stack, "{method}: {flags:?}: {objects:?}");
        });
    }
}
