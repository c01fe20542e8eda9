//! CPUs: where a caller is.
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PT_OK, PtError, answer};
use crate::machine::PtMachine;
use crate::object::{Arg, ConstArg, LastArg};
use ptarmigan::cpu::NodeId;

/// Makes the object of CPU `number`, from 0, of NUMA node `node`.
///
/// Fails with `PT_ERROR_ARGUMENT` if the machine has no such CPU or node, and with
/// `PT_ERROR_IN_USE` if the CPU has an object.
///
/// # Safety
///
/// - `cpu` is NULL or points to a `struct pt_cpu`, which stays where it is and is left alone until
///   `pt_cpu_exit`.
/// - `machine` is NULL or points to a `struct pt_machine`.
/// - From here on only code that runs on that CPU, and is not preempted meanwhile, hands the object
///   to functions. Handlers of interrupts hand it to `pt_cpu_serve` and to no other function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_cpu_init(
    cpu: Arg<'_, PtCpu>,
    machine: ConstArg<'_, PtMachine>,
    number: u32,
    node: u32,
) -> i32 {
    answer(Cpu::make(cpu, machine, number, node))
}

/// Gives back all that the CPU holds, and ends it: before it goes offline, and before the machine
/// ends. The last CPU gives back the pages that rest for all of them.
///
/// Fails with `PT_ERROR_IN_USE` while one of its gathers has not finished.
///
/// # Safety
///
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU, which is in no other call:
///   no callback calls this.
/// - The CPU has left every space: others would wait for its answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_cpu_exit(cpu: LastArg<'_, PtCpu>) -> i32 {
    let exit = || {
        let here = cpu.find::<Cpu>()?;
        if here.has_gathers() {
            return Err(PtError::InUse);
        }
        let on = here.on();
        on.drain();
        if here.parts().cpus().snapshot().len() == 1 {
            for node in 0..on.frames().nodes() {
                on.policy().reclaim(NodeId(node), u32::MAX);
            }
        }
        here.end(cpu);
        Ok(())
    };
    answer(exit())
}

/// Answers the requests of other CPUs: the handler of the interrupt that `send_ipi` causes calls
/// it. It may be called at any moment, costs a few loads if no CPU asks, and is the only function
/// that a handler may call.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_cpu_serve(cpu: Arg<'_, PtCpu>) -> i32 {
    answer(Cpu::find(&cpu).map(|here| here.on().tlb().serve(here.on().pin())))
}

/// Does a bounded amount of work for an idle CPU: trims its lists, and clears up to `budget` free
/// frames ahead of their use. Returns how many it cleared, or an error. An idle loop calls it until
/// it returns 0; 16 frames are some 10 microseconds. On a machine with high memory it returns 0.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_cpu_idle(cpu: Arg<'_, PtCpu>, budget: u32) -> i32 {
    match Cpu::find(&cpu) {
        Ok(here) => {
            here.on().idle();
            here.parts().kmap().idle(here.on().pin());
            here.on().clear_ahead(budget.min(i32::MAX as u32)) as i32
        }
        Err(e) => e.code(),
    }
}

/// Returns why the last function on this CPU that returns a pointer or a physical address returned
/// NULL or 0; `PT_OK` if no function has.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_cpu_error(cpu: ConstArg<'_, PtCpu>) -> i32 {
    match cpu.find::<Cpu>() {
        Ok(here) if here.error() == 0 => PT_OK,
        Ok(here) => here.error(),
        Err(e) => e.code(),
    }
}
