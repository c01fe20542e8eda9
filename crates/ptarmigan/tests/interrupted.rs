//! Handlers of interrupts that use a CPU's lists, between any two instructions of code that uses
//! them: the processor traps after each one (the trap flag), and the handler of the trap allocates
//! and frees pages as a kernel's handler would. Locks mask it, as they mask interrupts in a kernel.
//!
//! A file of its own: a program installs its mask once.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod common;
mod physical;
use common::{At, assert_zero, small};
use fastrand::Rng;
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{ListsConfig, Policy};
use ptarmigan::sync::{InterruptMask, install_interrupt_mask};
use ptarmigan_hosted::{CpuSlot, Host};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// How deeply the only thread that takes traps has masked them.
static MASKED: AtomicUsize = AtomicUsize::new(0);
static MASK: InterruptMask = InterruptMask {
    save: || MASKED.fetch_add(1, Relaxed),
    restore: |_| {
        MASKED.fetch_sub(1, Relaxed);
    },
};

/// The data of the handler. It is entered from the thread that made it, and never twice.
struct Scene<'a> {
    policy: &'a dyn Policy,
    cpu: &'a CpuSlot,
    own: RefCell<Vec<PhysAddr>>,
    rng: RefCell<Rng>,
    /// Calls, and pages that were no longer zero.
    calls: AtomicUsize,
    masked: AtomicUsize,
}

static SCENE: AtomicPtr<Scene<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// Pages that the handler keeps at most.
const KEPT: usize = 24;

impl Scene<'_> {
    fn interrupt(&self) {
        if MASKED.load(Relaxed) != 0 {
            self.masked.fetch_add(1, Relaxed);
            return;
        }
        self.calls.fetch_add(1, Relaxed);
        let mut own = self.own.borrow_mut();
        if own.len() < KEPT && self.rng.borrow_mut().bool() {
            if let Ok(page) = self.policy.at(&self.cpu.pin()).alloc(Level::PTE, AllocFlags::NORMAL) {
                own.push(page.into_raw());
            }
        } else if let Some(at) = own.pop() {
            // SAFETY: 1. handed out above and forgotten here. 2. not written to. 3. never linked.
            let page = unsafe { Clean::from_raw(at, Level::PTE) };
            self.policy.at(&self.cpu.pin()).free_unlinked(page);
        }
    }
}

extern "C" fn trap(_: c_int) {
    // SAFETY: the test stores it for as long as it traps, on this thread.
    if let Some(scene) = unsafe { SCENE.load(Relaxed).as_ref() } {
        scene.interrupt();
    }
}

/// Runs `work` with a trap after each of its instructions.
fn step(work: impl FnOnce()) {
    // SAFETY: only the trap flag changes, and the handler of its trap is in place. The stack is
    // used as usual.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    work();
    // SAFETY: as above.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
}

#[test]
fn a_handler_between_any_two_instructions_gets_no_page_twice() {
    // SAFETY: 1. the only thread that takes traps looks at the depth first. 2. they count. 3. no
    // code of the library runs yet.
    unsafe { install_interrupt_mask(&MASK) }.unwrap();
    let host = Host::<X86_64>::new(small(1, 1, 8)).unwrap();
    let cpu = host.slot(0).unwrap();
    // Small magazines, so that the depot and the allocator are used, too.
    let config = ListsConfig { magazine: 1, ..ListsConfig::new(1) };
    let policy = host.quicklists_with(config).unwrap();
    let (calls, masked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let own = RefCell::new(Vec::with_capacity(KEPT));
    let scene =
        Scene { policy: &policy, cpu: &cpu, own, rng: RefCell::new(Rng::with_seed(5)), calls, masked };
    let handler: extern "C" fn(c_int) = trap;
    // SAFETY: the handler uses the scene only, which is made for being interrupted.
    let before = unsafe { libc::signal(libc::SIGTRAP, handler as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
    SCENE.store((&raw const scene).cast::<Scene<'static>>().cast_mut(), Relaxed);
    let mut held: Vec<PhysAddr> = Vec::with_capacity(64);
    let mut rng = Rng::with_seed(9);
    let mut most = 0;
    for _ in 0..300 {
        if held.len() < 40 && rng.bool() {
            let mut page = None;
            step(|| page = scene.policy.at(&cpu.pin()).alloc(Level::PTE, AllocFlags::NORMAL).ok());
            held.extend(page.map(Clean::into_raw));
        } else if let Some(at) = held.pop() {
            // SAFETY: 1. handed out above and forgotten here. 2. not written to. 3. never linked.
            let page = unsafe { Clean::from_raw(at, Level::PTE) };
            step(|| scene.policy.at(&cpu.pin()).free_unlinked(page));
        }
        let out: HashSet<_> = held.iter().chain(scene.own.borrow().iter()).copied().collect();
        assert_eq!(out.len(), held.len() + scene.own.borrow().len(), "a page was handed out twice");
        assert_eq!(policy.counts().live(), out.len(), "pages out");
        most = most.max(out.len());
    }
    SCENE.store(std::ptr::null_mut(), Relaxed);
    // SAFETY: no code traps any more.
    unsafe { libc::signal(libc::SIGTRAP, before) };
    let (calls, masked) = (scene.calls.load(Relaxed), scene.masked.load(Relaxed));
    assert!(calls > 50_000 && masked > 50 && most > 30, "{calls} calls, {masked} masked, {most} pages");
    for at in held.into_iter().chain(scene.own.take()) {
        assert_zero(&host, at);
        // SAFETY: as above.
        policy.at(&cpu.pin()).free_unlinked(unsafe { Clean::from_raw(at, Level::PTE) });
    }
    policy.at(&cpu.pin()).drain();
    policy.at(&cpu.pin()).reclaim(ptarmigan::cpu::NodeId(0), u32::MAX);
    assert_eq!((policy.counts().live(), policy.counts().cached()), (0, 0));
    host.audit().unwrap();
}
