//! Harts as [`tasks`](ptarmigan_kernel_base::tasks) use them.

use ptarmigan::machine::On;
use ptarmigan_kernel_base::riscv::{harts, irq, sbi};
use ptarmigan_kernel_base::tasks::{self, Port, Trap};
use ptarmigan_kernel_mailbox::Operation;

use crate::machine::{self, Machine, on, pin};
use crate::mmu;
use crate::trap::{self, Registers};

/// The harts.
pub struct RiscvPort;

/// The tasks.
pub static TASKS: tasks::Tasks<RiscvPort> = tasks::Tasks::new();

impl Port for RiscvPort {
    type Format = crate::mmu::Format;
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

    /// A recorder learns when such calls begin and end.
    fn change<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let _operation = Operation::begin(irq::cpu());
        Self::here(f)
    }

    fn left() {
        mmu::check_fenced("the kernel's");
    }

    fn begin_turn() {
        sbi::set_timer(sbi::time() + sbi::ticks_per_ms());
    }

    fn enter(registers: &mut Registers) -> Trap {
        trap::enter(registers)
    }

    fn interrupt(cpu: usize) {
        harts::interrupt(cpu);
    }

    fn answer() {
        trap::answer();
    }

    fn sleep() {
        irq::sleep();
    }
}
