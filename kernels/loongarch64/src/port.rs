//! The CPU as [`tasks`](ptarmigan_kernel_base::tasks) use it. There is one, without interrupts.

use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::{Access, LoongArch64};
use ptarmigan::machine::On;
use ptarmigan::space::SharedSpace;
use ptarmigan_kernel_base::fail_if;
use ptarmigan_kernel_base::tasks::{self, Port, Trap};

use crate::machine::{Machine, on, pin};
use crate::trap::{self, Registers};

/// The CPU.
pub struct LoongArchPort;

/// The tasks.
pub static TASKS: tasks::Tasks<LoongArchPort> = tasks::Tasks::new();

/// The address of the last fault, and how many came there in a row.
static LAST: AtomicU64 = AtomicU64::new(0);
static IN_A_ROW: AtomicU64 = AtomicU64::new(0);
/// More faults in a row at one address than programs make.
const TOO_MANY: u64 = 64;

impl Port for LoongArchPort {
    type Format = LoongArch64;
    type Machine = Machine;
    type Registers = Registers;
    type Masked = ();

    fn mask() {}

    fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let pin = pin();
        f(on(&pin))
    }

    /// The handler of misses fills the TLB, so a fault is the library's. One that comes again and
    /// again has an entry in the TLB that is older than its table's.
    fn refills(
        _: &SharedSpace<LoongArch64>,
        _: On<'_, Machine>,
        va: VirtAddr,
        _: Access,
        _protected: bool,
    ) -> bool {
        let again = LAST.swap(va.0, Ordering::Relaxed) == va.0;
        let row = if again { IN_A_ROW.load(Ordering::Relaxed) + 1 } else { 0 };
        IN_A_ROW.store(row, Ordering::Relaxed);
        fail_if(row == TOO_MANY, format_args!("a page faults for ever: {va}"));
        false
    }

    fn enter(registers: &mut Registers) -> Trap {
        trap::enter(registers)
    }
}
