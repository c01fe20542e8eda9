//! CPUs as [`tasks`](ptarmigan_kernel_base::tasks) use them.

use ptarmigan::format::Aarch64;
use ptarmigan::machine::On;
use ptarmigan_kernel_base::aarch64::{clock, irq};
use ptarmigan_kernel_base::tasks::{self, Port, Trap};

use crate::machine::{self, Machine, on, pin};
use crate::trap::{self, Registers};

/// The CPUs.
pub struct Aarch64Port;

/// The tasks.
pub static TASKS: tasks::Tasks<Aarch64Port> = tasks::Tasks::new();

impl Port for Aarch64Port {
    type Format = Aarch64;
    type Machine = Machine;
    type Registers = Registers;
    type Masked = irq::Masked;

    fn cpu() -> usize {
        irq::cpu()
    }

    fn cpus() -> usize {
        machine::cpus()
    }

    fn mask() -> irq::Masked {
        irq::Masked::new()
    }

    fn enabled<R>(f: impl FnOnce() -> R) -> R {
        irq::enabled(f)
    }

    fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let pin = pin();
        f(on(&pin))
    }

    fn begin_turn() {
        clock::set_timer(clock::time() + clock::ticks_per_ms());
    }

    fn enter(registers: &mut Registers) -> Trap {
        trap::enter(registers)
    }

    fn interrupt(cpu: usize) {
        irq::send(cpu);
    }

    fn answer() {
        trap::answer();
    }

    fn sleep() {
        irq::sleep();
    }
}
