//! Signals of others. A test that ends its process runs in a process of its own: the test calls
//! itself with a variable set.
use crate::{PAGE, collect, watch};
use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

const INSIDE: &str = "PTSAN_TEST_INSIDE";

/// Runs the test of this name in a process of its own.
pub fn alone(name: &str) -> Output {
    let me = std::env::current_exe().expect("this program");
    Command::new(me)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("runs")
}

pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Makes a store that is seen, and then runs `code`, which should end the process. If it does not,
/// the process ends well.
fn watched(code: impl FnOnce()) {
    let watch = watch(2);
    watch
        .run(|| {
            assert!(watch.memory().store(0, 1));
            code();
            std::process::exit(0);
        })
        .expect("runs");
}

pub fn dies_of(name: &str, signal: c_int) -> String {
    let out = alone(name);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.signal(), Some(signal), "{text}");
    text
}

#[test]
fn a_crash_elsewhere_is_a_crash() {
    // SAFETY: unsound on purpose: the fault is the test.
    let crash = || unsafe { std::ptr::without_provenance_mut::<u64>(8).write_volatile(1) };
    if is_inside() {
        return watched(crash);
    }
    dies_of("signals::a_crash_elsewhere_is_a_crash", libc::SIGSEGV);
}

#[test]
fn a_store_past_the_end_of_the_memory_is_a_crash() {
    if is_inside() {
        let watch = watch(1);
        let end = watch.memory().base().wrapping_add(PAGE as usize);
        // SAFETY: as above.
        let _ = watch.run(|| unsafe { end.sub(4).cast::<u64>().write_unaligned(!0) });
        return;
    }
    dies_of("signals::a_store_past_the_end_of_the_memory_is_a_crash", libc::SIGSEGV);
}

#[test]
fn a_breakpoint_elsewhere_ends_the_process_as_ever() {
    if is_inside() {
        // SAFETY: as above.
        return watched(|| unsafe { std::arch::asm!("int3") });
    }
    let text = dies_of("signals::a_breakpoint_elsewhere_ends_the_process_as_ever", libc::SIGTRAP);
    assert!(!text.contains("ptsan: "), "{text}");
}

#[test]
fn a_signal_sent_by_a_process_does_what_it_does_without_a_watch() {
    if is_inside() {
        // The standard library's handler would take it for a fault and let it pass once.
        install(libc::SIGSEGV, libc::SIG_DFL);
        // SAFETY: as above.
        return watched(|| assert_eq!(unsafe { libc::raise(libc::SIGSEGV) }, 0));
    }
    dies_of("signals::a_signal_sent_by_a_process_does_what_it_does_without_a_watch", libc::SIGSEGV);
}

#[test]
fn an_overflow_of_the_stack_is_told_as_one() {
    #[allow(unconditional_recursion, reason = "that is the test")]
    fn deeper(n: u64) -> u64 {
        let page = std::hint::black_box([n; 512]);
        deeper(page[7] + 1) + page[9]
    }
    if is_inside() {
        return watched(|| assert_ne!(std::hint::black_box(deeper(1)), 0));
    }
    let text = dies_of("signals::an_overflow_of_the_stack_is_told_as_one", libc::SIGABRT);
    assert!(text.contains("overflowed its stack"), "{text}");
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static SOURCE: AtomicUsize = AtomicUsize::new(0);
static COPYING: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Makes the page at `SOURCE` readable, or steps over a breakpoint.
extern "C" fn mend(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Relaxed);
    if signal == libc::SIGSEGV {
        // SAFETY: a handler's argument; the page is the test's own.
        unsafe {
            let address = (*info).si_addr().addr() & !0xfff;
            assert_eq!(address, SOURCE.load(Relaxed));
            let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            COPYING.store(registers[libc::REG_RIP as usize] as usize, Relaxed);
            LEFT.store(registers[libc::REG_RCX as usize] as usize, Relaxed);
            libc::mprotect(std::ptr::with_exposed_provenance_mut(address), 4096, libc::PROT_READ);
        }
    }
}

pub fn install(signal: c_int, handler: usize) -> libc::sigaction {
    // SAFETY: a zeroed action is valid, and `mend` is a handler with three arguments.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &raw const new, &raw mut old), 0);
        old
    }
}

fn handler_of(signal: c_int) -> usize {
    // SAFETY: only reads the action.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut now), 0);
        now.sa_sigaction
    }
}

#[test]
fn earlier_handlers_get_foreign_signals_and_are_restored() {
    if !is_inside() {
        let out = alone("signals::earlier_handlers_get_foreign_signals_and_are_restored");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let mend = mend as *const () as usize;
    for signal in [libc::SIGSEGV, libc::SIGTRAP] {
        install(signal, mend);
    }
    // SAFETY: a new mapping, given up at the end of the process.
    let source = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            8192,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let second = source.wrapping_byte_add(4096);
    // SAFETY: the second page of the mapping.
    assert_eq!(unsafe { libc::mprotect(second, 4096, libc::PROT_NONE) }, 0);
    SOURCE.store(second.expose_provenance(), Relaxed);

    let first = watch(4);
    let seen = collect(&first);
    let base = first.memory().base();
    for at in (0..2 * PAGE).step_by(8) {
        assert!(first.memory().store(at, !0));
    }
    // A copy whose source faults half-way: the previous handler repairs it, and the copy goes on.
    // It does not begin at a page, so it meets a boundary of the destination as well.
    let code = || {
        // SAFETY: a breakpoint, which the handler returns from; and a copy of one page within the
        // mappings.
        unsafe {
            std::arch::asm!("int3");
            let (mut rsi, mut rdi, mut rcx) =
                (source.wrapping_byte_add(2048), base.wrapping_add(1024), 4096usize);
            let copying: usize;
            std::arch::asm!("lea {l}, [rip + 2f]", "2: rep movsb", l = out(reg) copying,
                inout("rsi") rsi, inout("rdi") rdi, inout("rcx") rcx);
            assert_eq!(COPYING.load(Relaxed), copying, "the handler saw the code under test");
            assert_eq!(LEFT.load(Relaxed), 2048, "... half-way");
            assert_eq!((rsi, rdi, rcx), (source.wrapping_byte_add(6144), base.wrapping_add(5120), 0));
        }
    };
    first.run(code).expect("runs");
    assert_eq!(CALLS.load(Relaxed), 2);
    let changed: Vec<u64> = seen.lock().expect("no panic").iter().flatten().map(|c| c.phys).collect();
    assert_eq!(changed, (1024..5120).step_by(8).collect::<Vec<u64>>());

    let another = watch(1);
    drop(first);
    another.run(|| assert!(another.memory().store(8, 1))).expect("runs");
    assert_eq!(another.stores(), 1);
    assert_ne!(handler_of(libc::SIGSEGV), mend);
    drop(another);
    assert_eq!([libc::SIGSEGV, libc::SIGTRAP].map(handler_of), [mend, mend]);
    drop(watch(1));
    assert_eq!([libc::SIGSEGV, libc::SIGTRAP].map(handler_of), [mend, mend]);
}

#[test]
fn blocked_signals_stay_blocked_and_others_wait_for_the_handler() {
    fn mask() -> Vec<c_int> {
        // SAFETY: only reads the mask.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set), 0);
            (1..32).filter(|&s| libc::sigismember(&raw const set, s) == 1).collect()
        }
    }
    let watch = watch(1);
    watch.on_store(|_, _, _| assert!(mask().contains(&libc::SIGALRM)));
    // SAFETY: blocks a signal that is never sent, in this thread.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGUSR2);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
    let before = mask();
    assert!(before.contains(&libc::SIGUSR2) && !before.contains(&libc::SIGALRM));
    watch.run(|| assert!(watch.memory().store(0, 1))).expect("runs");
    assert_eq!((mask(), watch.stores()), (before, 1));
}

/// Reads a zero byte into the watched memory: the system refuses unless stores are allowed at this
/// moment.
extern "C" fn try_to_store(_: c_int) {
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: a byte of the watched memory that is zero; if it cannot be stored to, the call fails.
    let stored = unsafe {
        let at = std::ptr::with_exposed_provenance_mut::<c_void>(SOURCE.load(Relaxed));
        libc::read(COPYING.load(Relaxed) as c_int, at, 1)
    };
    LEFT.fetch_add(usize::from(stored == 1), Relaxed);
}

#[test]
fn no_other_signal_comes_in_while_a_page_is_open() {
    if !is_inside() {
        let out = alone("signals::no_other_signal_comes_in_while_a_page_is_open");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let watch = watch(1);
    let zeroes = std::fs::File::open("/dev/zero").expect("opens");
    COPYING.store(std::os::fd::AsRawFd::as_raw_fd(&zeroes) as usize, Relaxed);
    SOURCE.store(watch.memory().base().wrapping_add(64).expose_provenance(), Relaxed);
    install(libc::SIGUSR1, try_to_store as *const () as usize);
    // SAFETY: the number of this thread.
    let me = unsafe { libc::pthread_self() };
    let stop = AtomicBool::new(false);
    watch
        .run(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        // SAFETY: the thread outlives the scope.
                        assert_eq!(unsafe { libc::pthread_kill(me, libc::SIGUSR1) }, 0);
                    }
                });
                let mut value = 0;
                while CALLS.load(Relaxed) < 1000 {
                    value += 1;
                    assert!(watch.memory().store(0, value));
                }
                stop.store(true, Relaxed);
            });
        })
        .expect("runs");
    assert_eq!(LEFT.load(Relaxed), 0, "of {} signals", CALLS.load(Relaxed));
}
