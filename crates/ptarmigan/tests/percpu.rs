//! Per-CPU values: refused to pins of other machines, and to handlers of interrupts that come in
//! between.
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{Counter, CpuId, MachineId, NodeId, PerCpu, Pinned};
use std::ptr::NonNull;

/// Per-CPU values of a machine with `cpus` CPUs, in memory that is never freed.
fn per_cpu(machine: MachineId, cpus: usize) -> PerCpu<u64, Counter> {
    let bytes = PerCpu::<u64, Counter>::bytes(cpus);
    let block = Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: 1. the block was leaked just now: valid for ever, and no other code has it.
    let mut boot = unsafe { BootMemory::new(NonNull::from(block).cast(), bytes) };
    PerCpu::new(&mut boot, machine, cpus, |cpu| cpu as u64 * 100).expect("`bytes` says how much is needed")
}

/// A pin of a machine that this test made.
fn pin(machine: MachineId, cpu: u16) -> Pinned<'static> {
    // SAFETY: 1. tests run each CPU of their machines on one thread. 2. no pin of this file is used
    // but with checked calls: the test is about the number of CPUs.
    unsafe { Pinned::assume(machine, CpuId(cpu), NodeId(0)) }
}

#[test]
fn a_pin_of_another_machine_enters_nothing() {
    let (ours, theirs) = (MachineId::new(), MachineId::new());
    let values = per_cpu(ours, 2);
    assert!(values.machine().matches(ours) && !values.machine().matches(theirs));
    for cpu in [0, 1] {
        assert!(values.enter(&pin(theirs, cpu)).is_none());
        assert!(values.own_shown(&pin(theirs, cpu)).is_none());
        let own = pin(ours, cpu);
        assert_eq!(*values.enter(&own).expect("its own CPU"), u64::from(cpu) * 100);
        assert!(values.own_shown(&own).is_some());
    }
}

#[test]
fn a_cpu_beyond_the_last_enters_nothing() {
    let (small, large) = (MachineId::new(), MachineId::new());
    let values = per_cpu(small, 1);
    for cpu in [1, 7, 255, u16::MAX] {
        assert!(values.enter(&pin(large, cpu)).is_none(), "CPU {cpu} of another machine");
        assert!(values.own_shown(&pin(large, cpu)).is_none());
        assert!(values.enter(&pin(small, cpu)).is_none(), "CPU {cpu} of a machine with one");
    }
    assert!(values.enter(&pin(small, 0)).is_some());
}

#[test]
fn a_value_in_use_is_entered_once_and_is_free_after_a_panic() {
    let machine = MachineId::new();
    let values = per_cpu(machine, 2);
    let own = pin(machine, 0);
    let mut first = values.enter(&own).expect("free");
    *first = 7;
    // A handler that comes in between finds no value on its own CPU, and the value on others.
    assert!(values.enter(&own).is_none());
    assert_eq!(*values.enter(&pin(machine, 1)).expect("another CPU"), 100);
    drop(first);
    assert_eq!(*values.enter(&own).expect("free again"), 7);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        *values.enter(&own).expect("free") = 8;
        let _held = values.enter(&own).expect("free");
        panic!("in the middle");
    }));
    assert!(died.is_err());
    assert_eq!(*values.enter(&own).expect("the guard was dropped"), 8);
}

/// Handlers of interrupts, between any two instructions: the processor traps after each one (the
/// trap flag), and the handler of the trap uses the CPU's value as a handler of a kernel's would.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod between_any_two_instructions {
    use super::*;
    use std::ffi::c_int;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

    /// Two halves that are equal whenever the value is not in use.
    #[derive(Clone, Copy)]
    struct Pair(usize, usize);

    /// The data of the interrupted code and its handler.
    struct Scene {
        values: PerCpu<Pair, Counter>,
        pin: Pinned<'static>,
        enters: fn(&PerCpu<Pair, Counter>, &Pinned<'static>) -> Found,
        free: AtomicUsize,
        busy: AtomicUsize,
        torn: AtomicUsize,
    }

    #[derive(PartialEq, Eq)]
    enum Found {
        Free,
        Busy,
        Torn,
    }

    static SCENE: AtomicPtr<Scene> = AtomicPtr::new(std::ptr::null_mut());
    /// Signals belong to the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Adds one to both halves, in two steps.
    #[inline(never)]
    fn add(values: &PerCpu<Pair, Counter>, pin: &Pinned<'static>) -> Found {
        let Some(mut pair) = values.enter(pin) else { return Found::Busy };
        let Pair(a, b) = *pair;
        pair.0 = std::hint::black_box(a + 1);
        pair.1 = std::hint::black_box(b + 1);
        if a == b { Found::Free } else { Found::Torn }
    }

    extern "C" fn trap(_: c_int) {
        // SAFETY: `run` stores it for as long as it traps.
        let Some(scene) = (unsafe { SCENE.load(Relaxed).as_ref() }) else { return };
        let count = match (scene.enters)(&scene.values, &scene.pin) {
            Found::Free => &scene.free,
            Found::Busy => &scene.busy,
            Found::Torn => &scene.torn,
        };
        count.fetch_add(1, Relaxed);
    }

    /// Runs `work` with a trap after each of its instructions.
    fn step(work: impl FnOnce()) {
        let handler: extern "C" fn(c_int) = trap;
        // SAFETY: the handler touches atomics and the scene only, which is made for being
        // interrupted.
        let before = unsafe { libc::signal(libc::SIGTRAP, handler as libc::sighandler_t) };
        assert_ne!(before, libc::SIG_ERR);
        // SAFETY: only the trap flag changes, and the handler of its trap is in place. The stack is
        // used as usual.
        unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        work();
        // SAFETY: as above.
        unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
        // SAFETY: no code traps any more.
        unsafe { libc::signal(libc::SIGTRAP, before) };
    }

    /// Adds to the CPU's value `n` times while handlers come in with `enters`.
    fn run(n: usize, enters: fn(&PerCpu<Pair, Counter>, &Pinned<'static>) -> Found) -> (Pair, Scene) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        let machine = MachineId::new();
        let block = Box::leak(vec![0u64; PerCpu::<Pair, Counter>::bytes(1).div_ceil(8)].into_boxed_slice());
        // SAFETY: 1. the block was leaked just now: valid for ever, and no other code has it.
        let mut boot = unsafe { BootMemory::new(NonNull::from(&mut *block).cast(), size_of_val(block)) };
        let values =
            PerCpu::new(&mut boot, machine, 1, |_| Pair(0, 0)).expect("`bytes` says how much is needed");
        let zero = || AtomicUsize::new(0);
        let scene = Scene { values, pin: pin(machine, 0), enters, free: zero(), busy: zero(), torn: zero() };
        SCENE.store((&raw const scene).cast_mut(), Relaxed);
        let mut own = 0;
        step(|| {
            for _ in 0..n {
                own += usize::from(add(&scene.values, &scene.pin) == Found::Free);
            }
        });
        SCENE.store(std::ptr::null_mut(), Relaxed);
        assert_eq!(own, n, "the handler has returned whenever the interrupted code goes on");
        let pair = *scene.values.enter(&scene.pin).expect("nothing holds it");
        (pair, scene)
    }

    #[test]
    fn a_handler_finds_the_value_whole_or_in_use() {
        let (Pair(a, b), scene) = run(50, add);
        let (free, busy) = (scene.free.load(Relaxed), scene.busy.load(Relaxed));
        assert_eq!(scene.torn.load(Relaxed), 0, "halves that differ");
        assert_eq!((a, b), (50 + free, 50 + free), "additions are lost");
        // An addition is some ten instructions with the value in use, and as many without.
        assert!(free > 50 && busy > 50 * 4, "{free} times free, {busy} times in use");
    }

    #[test]
    fn a_handler_may_write_to_the_shown_part_of_a_value_in_use() {
        fn count(values: &PerCpu<Pair, Counter>, pin: &Pinned<'static>) -> Found {
            match values.enter(pin) {
                Some(pair) if pair.0 == pair.1 => Found::Free,
                Some(_) => Found::Torn,
                None => {
                    let slot = values.own_shown(pin).expect("its own CPU");
                    slot.add(1);
                    Found::Busy
                }
            }
        }
        let (Pair(a, b), scene) = run(20, count);
        assert_eq!((a, b, scene.torn.load(Relaxed)), (20, 20, 0));
        let shown = scene.values.own_shown(&scene.pin).expect("its own CPU").get();
        assert_eq!(
            shown,
            scene.busy.load(Relaxed),
            "what is shown may be written to while the value is in use"
        );
    }
}
