//! The beginning and the end of runs.
use super::{Machine, config, store};
use crate::PAGE;
use crate::signals::{alone, install, is_inside};
use ptsan::watch::{Ended, Error};
use ptsan::{Access, Config, Flush};
use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use x86_64::VirtAddr;
use x86_64::instructions::{hlt, tlb};

const VA: u64 = 0x4020_4000;

#[test]
fn hlt_ends_a_run_and_what_comes_after_it_is_not_executed() {
    let machine = Machine::plain(VA);
    let place = machine.root + 12 * PAGE;
    for round in 1..4u64 {
        let mut reached = Vec::new();
        // SAFETY: 1. The frames hold no value that must be dropped. 2. It needs no more.
        let ended = unsafe {
            machine.watch.run_on(0, || {
                reached.push(1);
                store(place, round);
                hlt();
                reached.push(2);
                store(place, 99);
            })
        };
        let Ok(Ended::Halted { rip }) = ended else { panic!("{ended:?}") };
        // SAFETY: the instruction is one byte of this program.
        assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u8>(rip).read() }, 0xf4);
        assert_eq!((reached, machine.watch.memory().load(place)), (vec![1], Some(round)));
        assert_eq!(machine.watch.stores(), round);
        // Outside of a run no store is watched.
        store(place + 8, 1);
        assert_eq!(machine.watch.stores(), round);
    }
    machine.watch.assert_clean();
}

#[test]
fn a_halted_run_leaves_registers_flags_and_signals_as_a_call() {
    let machine = Machine::plain(VA);
    let blocked = || {
        // SAFETY: only reads the mask.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set), 0);
            (1..32).filter(|&s| libc::sigismember(&raw const set, s) == 1).collect::<Vec<_>>()
        }
    };
    let before = blocked();
    let kept = std::hint::black_box([3u64, 5, 7, 11, 13, 17]);
    let halt = || {
        // SAFETY: blocks signals in this thread; that and the rest are put back at the end of the
        // run.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            libc::sigaddset(&raw mut set, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            asm!(
                "push 0x7f80",
                "ldmxcsr [rsp]",
                "mov word ptr [rsp], 0x0f7f",
                "fldcw [rsp]",
                "fld1",
                "std",
                "xor r12, r12",
                "xor r13, r13",
                "xor r14, r14",
                "xor r15, r15",
                "xor rbx, rbx",
                "xor rbp, rbp",
                "hlt",
                "ud2",
                options(noreturn),
            );
        }
    };
    // SAFETY: 1. The frames hold no value that must be dropped. 2. It needs no more.
    let ended = unsafe { machine.watch.run_on(0, || -> () { halt() }) };
    assert!(ended.expect("runs").halted());
    let (mut mxcsr, mut control, flags) = (0u32, 0u16, x86_64::registers::rflags::read_raw());
    // SAFETY: stores the registers.
    unsafe { asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut control) };
    assert_eq!((mxcsr & 0xffc0, control, flags & (1 << 10 | 1 << 8)), (0x1f80, 0x037f, 0));
    assert_eq!((blocked(), kept.iter().sum::<u64>()), (before, 56));
    assert_eq!(1.0f64.sqrt() + std::hint::black_box(0.5), 1.5);
}

#[test]
fn an_inner_run_that_halts_returns_to_the_outer_one() {
    let machine = Machine::plain(VA);
    machine.use_both(0);
    machine.unmap_both();
    machine.run(|| {
        for _ in 0..3 {
            // SAFETY: 1. The frames hold no value that must be dropped. 2. It needs no more.
            let ended = unsafe { machine.watch.run_on(1, hlt) };
            assert!(ended.expect("runs").halted());
        }
        tlb::flush(VirtAddr::new(VA));
    });
    assert_eq!(machine.held(0), [false, true], "the outer run is on CPU 0");
}

#[test]
fn a_run_inside_that_is_abandoned_is_over() {
    let machine = Machine::plain(VA);
    let inner = || machine.watch.run(|| machine.watch.run(hlt).expect("halts")).expect("halts");
    // SAFETY: 1. The frames hold no value that must be dropped. 2. It needs no more.
    let ended = unsafe { machine.watch.run_on(0, inner) };
    assert!(ended.expect("runs").halted());
    let stores = machine.watch.stores();
    store(machine.entry, 0);
    assert_eq!(machine.watch.stores(), stores, "nothing runs any more");
    machine.run(|| machine.watch.run(|| store(machine.entry, 1)).expect("runs"));
    store(machine.entry, 0);
    assert_eq!(machine.watch.stores(), stores + 1);
}

#[test]
fn a_panic_of_the_code_propagates_and_the_watch_is_reusable() {
    let machine = Machine::plain(VA);
    let caught = catch_unwind(AssertUnwindSafe(|| machine.run(|| panic!("by the code"))));
    assert_eq!(caught.expect_err("panics").downcast_ref::<&str>(), Some(&"by the code"));
    let stores = machine.watch.stores();
    machine.run(|| store(machine.entry, 0));
    store(machine.entry, 7);
    assert_eq!(machine.watch.stores(), stores + 1);
    machine.watch.on_store(|_, _, _| panic!("by the callback"));
    let caught = catch_unwind(AssertUnwindSafe(|| machine.run(|| store(machine.entry, 0))));
    assert_eq!(caught.expect_err("panics").downcast_ref::<&str>(), Some(&"by the callback"));
}

#[test]
fn each_thread_is_a_cpu_of_its_own_and_flushes_for_itself() {
    let machine = Machine::new(Config { cpus: 4, ..config() }, VA, 0);
    for cpu in 1..4 {
        machine.watch.with(|san, ram| san.switch(ram, cpu, machine.root, machine.root));
    }
    for round in 0..20 {
        let mapped = [(machine.root + 8 * PAGE) | 7, (machine.root + 9 * PAGE) | 7];
        machine.run(|| (0..2).for_each(|i| store(machine.entry + i * 8, mapped[i as usize])));
        (0..4).for_each(|cpu| machine.use_both(cpu));
        machine.unmap_both();
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for cpu in 0..4 {
                let (watch, barrier) = (&machine.watch, &barrier);
                scope.spawn(move || {
                    let flush = || {
                        barrier.wait();
                        tlb::flush(VirtAddr::new(VA));
                        // The last CPU forgets the second page.
                        if cpu < 3 {
                            tlb::flush(VirtAddr::new(VA + PAGE));
                        }
                        barrier.wait();
                    };
                    // SAFETY: 1. The code does not halt. 2. It needs no more.
                    unsafe { watch.run_on(cpu, flush) }.expect("runs").returned().expect("returns");
                });
            }
        });
        assert!((0..3).all(|cpu| machine.held(cpu) == [false; 2]), "{}", machine.watch);
        assert_eq!(machine.held(3), [false, true]);
        assert_eq!(machine.total(), round + 1);
        machine.watch.with(|san, ram| san.flush(ram, 3, Flush::all()));
    }
}

#[test]
fn a_cpu_that_is_not_there_or_runs_another_thread_is_refused() {
    let machine = Machine::plain(VA);
    // SAFETY: 1. The code does not halt. 2. It needs no more.
    let on = |cpu| unsafe { machine.watch.run_on(cpu, || ()) };
    let error = on(2).expect_err("refused");
    assert_eq!(error, Error::NoSuchCpu { cpu: 2, cpus: 2 });
    assert!(error.to_string().contains("the sanitizer has 2"), "{error}");
    machine.run(|| {
        let error = std::thread::scope(|scope| scope.spawn(|| on(0)).join().expect("no panic"));
        assert_eq!(error, Err(Error::CpuTaken { cpu: 0 }));
        assert!(on(0).is_ok(), "this thread is that CPU");
    });
    let free = std::thread::scope(|scope| scope.spawn(|| on(0).is_ok()).join().expect("no panic"));
    assert!(free, "free again");
    let inside = AssertUnwindSafe(|| machine.watch.with(|_, _| on(0)));
    let message = catch_unwind(inside).expect_err("panics").downcast::<&str>().expect("a text");
    assert!(message.contains("has the sanitizer"), "{message}");
}

#[test]
fn a_program_may_use_memory_between_kernel_instructions() {
    let machine = Machine::plain(VA);
    let read = || machine.watch.with(|san, ram| san.translate(ram, 0, VA, Access::READ.kernel()).is_ok());
    machine.run(|| {
        assert!(read());
        store(machine.entry, 0);
        tlb::flush(VirtAddr::new(VA));
        assert!(!read());
    });
    machine.watch.assert_clean();
}

#[test]
fn threads_halt_and_flush_while_others_store() {
    const ROUNDS: u64 = 200;
    let machine = Machine::new(Config { cpus: 4, ..config() }, VA, 0);
    let before = machine.watch.stores();
    std::thread::scope(|scope| {
        for cpu in 0..4 {
            let machine = &machine;
            scope.spawn(move || {
                let place = machine.root + (10 + cpu as u64) * PAGE;
                for round in 1..=ROUNDS {
                    let code = || {
                        store(place, round);
                        tlb::flush(VirtAddr::new(VA));
                        if cpu % 2 == 0 {
                            hlt();
                        }
                        store(place + 8, round);
                    };
                    // SAFETY: 1. The frames hold no value that must be dropped. 2. It needs no
                    // more.
                    let ended = unsafe { machine.watch.run_on(cpu, code) };
                    assert_eq!(ended.expect("runs").halted(), cpu % 2 == 0);
                }
                assert_eq!(machine.watch.memory().load(place), Some(ROUNDS));
            });
        }
    });
    assert_eq!(machine.watch.stores() - before, 4 * ROUNDS + 2 * ROUNDS);
    machine.watch.assert_clean();
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);
static BETWEEN: AtomicUsize = AtomicUsize::new(0);

/// Counts the signals, and those that come while a privileged instruction is carried out: the
/// thread is then at a breakpoint, which the code under test has not.
extern "C" fn look(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    SIGNALS.fetch_add(1, Relaxed);
    // SAFETY: a handler's argument, and the thread is about to execute the instruction there.
    let next = unsafe {
        let rip = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        std::ptr::with_exposed_provenance::<u8>(rip as usize).read_volatile()
    };
    BETWEEN.fetch_add(usize::from(next == 0xcc), Relaxed);
}

#[test]
fn no_other_signal_comes_in_while_an_instruction_is_carried_out() {
    if !is_inside() {
        let out = alone("kernel::runs::no_other_signal_comes_in_while_an_instruction_is_carried_out");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let machine = Machine::plain(VA);
    install(libc::SIGUSR1, look as *const () as usize);
    // SAFETY: the number of this thread.
    let me = unsafe { libc::pthread_self() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // SAFETY: the thread outlives the scope.
                assert_eq!(unsafe { libc::pthread_kill(me, libc::SIGUSR1) }, 0);
            }
        });
        machine.run(|| {
            while SIGNALS.load(Relaxed) < 1000 {
                tlb::flush(VirtAddr::new(VA));
            }
        });
        stop.store(true, Relaxed);
    });
    assert_eq!(BETWEEN.load(Relaxed), 0, "of {} signals", SIGNALS.load(Relaxed));
}
