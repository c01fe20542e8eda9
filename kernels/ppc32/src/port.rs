//! The CPU as [`tasks`](ptarmigan_kernel_base::tasks) use it. There is one, without interrupts.

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::{Access, Ppc32};
use ptarmigan::machine::On;
use ptarmigan::space::SharedSpace;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::tasks::{self, Port, Trap};

use crate::machine::{Machine, on, pin};
use crate::negative_controls::{NegativeControl, leaves_out};
use crate::trap::{self, Registers};
use crate::{hashed, kernel_half};

/// The CPU.
pub struct Ppc32Port;

/// The tasks.
pub static TASKS: tasks::Tasks<Ppc32Port> = tasks::Tasks::new();

impl Port for Ppc32Port {
    type Format = Ppc32;
    type Machine = Machine;
    type Registers = Registers;
    type Masked = ();

    fn mask() {}

    fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let pin = pin();
        f(on(&pin))
    }

    /// Puts a page that was missed into the hash table, as its entry says. After a fault the page
    /// is not hashed yet, so the access misses once more.
    fn refills(
        space: &SharedSpace<Ppc32>,
        on: On<'_, Machine>,
        va: VirtAddr,
        access: Access,
        protected: bool,
    ) -> bool {
        if leaves_out(NegativeControl::Bit) {
            // As a handler does it that only reads the software's entry.
            return match space.query(on, va) {
                Ok(Some((frame, attr))) => hashed::insert_unmarked(va, protected, frame, attr, access),
                _ => false,
            };
        }
        space
            .refill(on, va, access, |entry| hashed::refill_user(va.0 as u32, protected, entry))
            .unwrap_or_else(|e| fail(format_args!("{e}")))
    }

    fn enter(registers: &mut Registers) -> Trap {
        kernel_half::use_page();
        trap::enter(registers)
    }
}
