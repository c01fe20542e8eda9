//! Per-CPU values: refused to pins of other machines, and to handlers of interrupts that come in between.
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{Counter, CpuId, MachineId, NodeId, PerCpu, Pinned};
use std::ptr::NonNull;

/// Per-CPU values of a machine with `cpus` CPUs, in memory that is never freed.
fn per_cpu(machine: MachineId, cpus: usize) -> PerCpu<u64, Counter> {
    let bytes = PerCpu::<u64, Counter>::bytes(cpus);
    let block = Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: 1. the block was leaked just now: valid for ever, and nothing else has it.
    let mut boot = unsafe { BootMemory::new(NonNull::from(block).cast(), bytes) };
    PerCpu::new(&mut boot, machine, cpus, |cpu| cpu as u64 * 100).expect("`bytes` says how much is needed")
}

/// A pin of a machine that this test made.
fn pin(machine: MachineId, cpu: u16) -> Pinned<'static> {
    // SAFETY: 1. tests run each CPU of their machines on one thread. 2. no pin of this file is used but with checked calls: the
    // number of CPUs is what is tested.
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
fn a_value_in_use_is_entered_by_nothing_else_and_is_free_after_a_panic() {
    let machine = MachineId::new();
    let values = per_cpu(machine, 2);
    let own = pin(machine, 0);
    let mut first = values.enter(&own).expect("free");
    *first = 7;
    // What a handler finds that comes in between: on its own CPU nothing, on others what is there.
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
