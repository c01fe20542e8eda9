//! The trap behind a store: its codes, its mask, and the line about one that no store explains.
use crate::signals::{alone, dies_of, install, is_inside};
use crate::watch;
use ptsan::watch::Ended;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

const TRAP_BRKPT: c_int = 1;
const TRAP_TRACE: c_int = 2;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The watch's handler of `SIGTRAP`.
static INNER: AtomicUsize = AtomicUsize::new(0);
/// Traps of the trap flag, and those of them that came without their cause.
static TRAPS: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Runs the test of this name in a process of its own, which must end well.
fn ends_well(name: &str) {
    let out = alone(name);
    assert!(out.status.success(), "{:?}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// Does what a hypervisor does that loses bit BS of DR6: the kernel then sees a debug exception
/// without a cause, and gives it another code.
extern "C" fn lose_the_cause(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: 1. The arguments are those of a handler. 2. `INNER` is the watch's handler, which was
    // installed for the same arguments.
    unsafe {
        if (*info).si_code == TRAP_TRACE {
            (*info).si_code = TRAP_BRKPT;
            LOST.fetch_add(1, Relaxed);
        }
        std::mem::transmute::<usize, Handler>(INNER.load(Relaxed))(signal, info, context);
    }
}

#[test]
fn a_trap_whose_cause_a_hypervisor_lost_ends_its_store() {
    if !is_inside() {
        return ends_well("traps::a_trap_whose_cause_a_hypervisor_lost_ends_its_store");
    }
    let watch = watch(1);
    INNER.store(install(libc::SIGTRAP, lose_the_cause as *const () as usize).sa_sigaction, Relaxed);
    watch.run(|| (0..8).for_each(|i| assert!(watch.memory().store(i * 8, i + 1)))).expect("runs");
    assert_eq!((watch.stores(), LOST.load(Relaxed)), (8, 8));
}

/// Blocks `SIGTRAP` in this thread while `code` runs. Returns whether it is still blocked then.
fn with_traps_blocked(code: impl FnOnce()) -> bool {
    // SAFETY: the sets are initialised, and the mask is this thread's own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGTRAP);
        let mut before = std::mem::zeroed();
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before), 0);
        code();
        let mut now: libc::sigset_t = std::mem::zeroed();
        assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, &raw mut now), 0);
        libc::sigismember(&raw const now, libc::SIGTRAP) == 1
    }
}

#[test]
fn code_that_blocks_the_trap_is_watched_and_finds_it_blocked() {
    if !is_inside() {
        return ends_well("traps::code_that_blocks_the_trap_is_watched_and_finds_it_blocked");
    }
    let watch = watch(2);
    let base = watch.memory().base();
    let stores = || {
        assert!(watch.memory().store(0, 1));
        // SAFETY: a page of the memory, stored to by a repeated store.
        unsafe {
            std::arch::asm!("rep stosb", inout("rdi") base => _, inout("rcx") 4096usize => _, in("al") 7u8);
        }
        // SAFETY: the instruction is emulated.
        unsafe { std::arch::asm!("wbinvd") };
    };
    // SAFETY: 1. `stores` is ended by no instruction. 2. It needs no more than these.
    let blocked = with_traps_blocked(|| unsafe {
        assert!(matches!(watch.run_on(0, stores), Ok(Ended::Returned(()))));
    });
    assert!(blocked);
    assert_eq!((watch.stores(), watch.memory().load(8)), (2, Some(0x0707_0707_0707_0707)));
}

#[test]
fn a_debug_exception_without_a_store_ends_the_process() {
    if is_inside() {
        let watch = watch(1);
        // The trap flag, set by the code under test.
        let step = || {
            assert!(watch.memory().store(0, 1));
            // SAFETY: the flags are pushed and popped, and the trap ends the process.
            unsafe {
                std::arch::asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq", "nop");
            }
        };
        return watch.run(step).expect("runs");
    }
    let text = dies_of("traps::a_debug_exception_without_a_store_ends_the_process", libc::SIGTRAP);
    let line = text.lines().find(|line| line.starts_with("ptsan: ")).expect("a line");
    // Code 1, if this machine loses the cause just now.
    assert!(line.contains("SIGTRAP with code 2 ") || line.contains("SIGTRAP with code 1 "), "{line}");
    assert!(line.contains("one under way on this thread: no; exception 1;"), "{line}");
}

extern "C" fn count(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: a handler's arguments.
    let (code, registers) =
        unsafe { ((*info).si_code, &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs) };
    TRAPS.fetch_add(1, Relaxed);
    match code {
        TRAP_TRACE => {}
        TRAP_BRKPT => _ = LOST.fetch_add(1, Relaxed),
        // No step is seen as over then.
        _ => std::process::abort(),
    }
    registers[libc::REG_EFL as usize] &= !0x100;
}

/// The machine keeps to what the watch relies on. No code of the watch runs here.
#[test]
#[ignore = "a million traps: cargo xtask ci sanitizer-watched"]
fn each_step_raises_one_trap_though_its_cause_may_be_lost() {
    const STEPS: u64 = 1_000_000;
    if !is_inside() {
        let out = alone("traps::each_step_raises_one_trap_though_its_cause_may_be_lost");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{:?}: {text}", out.status);
        return print!("{text}");
    }
    install(libc::SIGTRAP, count as *const () as usize);
    for _ in 0..STEPS {
        // SAFETY: the flags are pushed and popped. One instruction is stepped, and the handler
        // clears the flag.
        unsafe {
            std::arch::asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq", "nop");
        }
    }
    assert_eq!(TRAPS.load(Relaxed), STEPS);
    println!("{STEPS} steps, {} traps without their cause", LOST.load(Relaxed));
}
