//! A trace's times of calls and processes.
use super::common::{Dir, ptarmigan, with_each_method};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Forks 20 times with 200 MiB in use, and prints the CPU time of the calls in nanoseconds.
const FORKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int arguments, char **argv) {
    size_t size = 200ul << 20;
    char *data = malloc(size);
    memset(data, 1, size);
    double took = 0;
    for (int child = 0; child < 20; child++) {
        double before = now();
        if (fork() == 0) _exit(0);
        took += now() - before;
        wait(NULL);
    }
    FILE *out = fopen(argv[1], "w");
    fprintf(out, "%.0f\n", took);
    return fclose(out) + data[size / 2] - 1;
}
"#;

/// Compiles a program. `None` if there is no compiler.
fn compiled(dir: &Dir, text: &str) -> Option<PathBuf> {
    let (source, program) = (dir.path("program.c"), dir.path("program"));
    std::fs::write(&source, text).expect("our directory");
    let compiler = Command::new("cc").arg("-O1").arg("-o").args([&program, &source]).status();
    if !compiler.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    Some(program)
}

fn inspect(file: &Path) -> Value {
    let out = ptarmigan().args(["inspect", "--json"]).arg(file).output().expect("the program is there");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

/// Records a program that writes a number to the file that it is given. Passes on the number, the
/// times and the messages of each recording.
fn with_what_it_says(name: &str, dir: &Dir, program: &Path, check: impl Fn(f64, &Value, &str)) {
    let said = dir.path("said");
    let command = [program.to_str().expect("UTF-8"), said.to_str().expect("UTF-8")];
    with_each_method(name, &command, |status, stderr, file, _| {
        assert_eq!(status, Some(0), "{stderr}");
        let said = std::fs::read_to_string(&said).expect("it was written");
        check(said.trim().parse().expect("a number"), &inspect(file)["times"], stderr);
    });
}

#[test]
fn forks_of_a_large_process_take_as_long_as_the_program_says() {
    let dir = Dir::new("times");
    let Some(program) = compiled(&dir, FORKS) else { return };
    with_what_it_says("times", &dir, &program, |said, times, stderr| {
        let forks = &times["calls"]["fork"];
        assert_eq!(forks["calls"], 20, "{times}");
        let seconds = forks["seconds"].as_f64().expect("a number");
        let ratio = seconds / (said / 1e9);
        assert!((0.75..1.25).contains(&ratio), "{seconds} s, and the program says {said} ns: {times}");
        // Each copy ends with an exit that takes it down.
        assert_eq!(times["calls"]["exit"]["calls"], 21, "{times}");
        assert_eq!((&times["processes"], &times["processes_timed"]), (&21.into(), &21.into()), "{times}");
        let kernel = times["kernel_seconds"].as_f64().expect("a number");
        let exits = times["calls"]["exit"]["seconds"].as_f64().expect("a number");
        let cpu = kernel + times["user_seconds"].as_f64().expect("a number");
        assert!(exits > 0.0 && seconds + exits < cpu * 1.05, "{times}");
        let minor = times["minor_faults"].as_f64().expect("a number");
        let faults = times["faults"].as_f64().expect("a number");
        assert!((0.98..1.1).contains(&(minor / faults)), "{times}");
        let line = times["line"].as_str().expect("a line");
        assert!(line.contains(" CPU time in the kernel; 20 forks took "), "{line}");
        let programs = times["programs"].as_array().expect("programs");
        assert_eq!((programs.len(), &programs[0]["name"]), (1, &"program".into()), "{times}");
        // Of a call that stops, the stops are no part.
        let by_stops = times["stop_cost_nanoseconds"].as_u64();
        assert_eq!(by_stops.is_some(), stderr.contains("with perf"), "{times}");
    });
}

#[test]
fn a_vfork_includes_its_child_up_to_its_exec() {
    // The child sleeps before its execve.
    const SPAWN: &str = r#"
#include <unistd.h>
#include <sys/wait.h>
int main(void) {
    int child = vfork();
    if (child == 0) {
        usleep(200000);
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}
"#;
    let dir = Dir::new("vfork-times");
    let Some(program) = compiled(&dir, SPAWN) else { return };
    with_each_method("vfork-times", &[program.to_str().expect("UTF-8")], |status, stderr, file, _| {
        assert_eq!(status, Some(0), "{stderr}");
        let times = &inspect(file)["times"];
        let vfork = &times["calls"]["vfork"];
        assert_eq!(vfork["calls"], 1, "{times}");
        let whole =
            vfork["seconds"].as_f64().expect("a number") + vfork["away_seconds"].as_f64().expect("a number");
        assert!(whole >= 0.2, "{times}");
        let remarks = times["remarks"].to_string();
        assert!(remarks.contains("The time of a vfork includes its child's"), "{remarks}");
    });
}

/// Threads that come and go, and that sleep between work; two are left at the end. Prints the CPU
/// time of the process in nanoseconds.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double cpu(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *work(void *last) {
    for (int n = 0; n < 10; n++) {
        double before = cpu(CLOCK_THREAD_CPUTIME_ID);
        while (cpu(CLOCK_THREAD_CPUTIME_ID) < before + 3e6) {}
        usleep(2000);
    }
    while (last) pause();
    return 0;
}

int main(int arguments, char **argv) {
    pthread_t threads[8];
    for (int n = 0; n < 6; n++) {
        pthread_create(&threads[n], 0, work, 0);
        if (n % 3 == 2) pthread_join(threads[n], 0);
    }
    pthread_create(&threads[6], 0, work, argv);
    pthread_create(&threads[7], 0, work, argv);
    sleep(1);
    FILE *out = fopen(argv[1], "w");
    fprintf(out, "%.0f\n", cpu(CLOCK_PROCESS_CPUTIME_ID));
    fclose(out);
    return 0;
}
"#;

#[test]
fn the_cpu_time_of_threads_that_sleep_come_and_go_is_known() {
    let dir = Dir::new("threads");
    let Some(program) = compiled(&dir, THREADS) else { return };
    with_what_it_says("threads", &dir, &program, |said, times, _| {
        assert_eq!(times["processes_timed"], 1, "{times}");
        let seconds = |name: &str| times[name].as_f64().expect("a number");
        let recorded = seconds("user_seconds") + seconds("kernel_seconds");
        // The recording has the start and the end too; less the time of its own stops.
        assert!(said >= 0.24e9, "{said}");
        assert!((0.93..1.15).contains(&(recorded / (said / 1e9))), "{recorded} of {said}");
    });
}
