//! x86, whose MMUs walk the tables: x86-64 with the recorded addresses, and 32-bit x86 with areas
//! packed into 3 GiB and tables that may be in high memory.
use super::walking::WalkingMmu;
use super::{DirectTables, PlacedTables, Platform, ReachedTables, room};
use crate::error::Failure;
use crate::input::relayout::Room;
use ptarmigan::format::X86_64;
use ptarmigan::params::UserPte;
use ptarmigan_hosted::Host;
use ptarmigan_ptsan::{SoftMmu, Watchable};
use ptsan::Config;
use std::marker::PhantomData;

/// A machine of format `F`, with tables that are reached through `T`.
pub struct Walked<F, T> {
    userpte: UserPte,
    room: Option<Room>,
    _format: PhantomData<fn(F, T)>,
}

/// x86-64, with the recorded addresses.
pub type RecordedX86 = Walked<X86_64, DirectTables>;

impl RecordedX86 {
    /// The only one.
    pub const RECORDED: Self = Walked { userpte: UserPte::NoHigh, room: None, _format: PhantomData };
}

impl<F: Watchable, T> Walked<F, T> {
    /// The MMU of a machine without a sanitizer.
    pub const NO_MMU: WalkingMmu<'static, F> = WalkingMmu::NONE;
}

impl<F: Watchable> Walked<F, PlacedTables> {
    /// Describes a 32-bit machine, whose leaf tables are placed as `userpte` says.
    pub fn small(userpte: UserPte) -> Self {
        Walked { userpte, room: Some(room::<F>()), _format: PhantomData }
    }

    /// Describes such a machine with `memory` bytes. `reach` is how much memory its entries name,
    /// in bytes.
    ///
    /// # Errors
    /// If there is more memory than that.
    pub fn small_with(userpte: UserPte, memory: u64, reach: u64) -> Result<Self, Failure> {
        if memory > reach {
            return Err(Failure::new(format!(
                "--memory {} MiB: {} has at most {} MiB",
                memory >> 20,
                F::NAME,
                reach >> 20
            )));
        }
        Ok(Self::small(userpte))
    }
}

impl<F: Watchable, T: ReachedTables<F>> Platform for Walked<F, T> {
    type Format = F;
    type Tables = T;
    type Mmus<'s> = WalkingMmu<'s, F>;
    type Mmu<'m> = WalkingMmu<'m, F>;

    fn tables(&self, host: &Host<F>) -> Result<T, Failure> {
        T::new(host, self.userpte)
    }

    fn mmus<'s>(&self, _: usize, soft: Option<&'s SoftMmu<'s, F>>) -> Result<WalkingMmu<'s, F>, Failure> {
        Ok(WalkingMmu::new(soft))
    }

    fn mmu<'m>(mmus: &'m WalkingMmu<'_, F>) -> WalkingMmu<'m, F> {
        *mmus
    }

    fn sanitizer<'h>(&self, host: &'h Host<F>, config: Config) -> Result<SoftMmu<'h, F>, Failure> {
        let soft = SoftMmu::new(host, config);
        soft.kernel_table_begins();
        Ok(soft)
    }

    fn ended(&self, soft: &SoftMmu<'_, F>) {
        soft.kernel_table_ended();
    }

    fn room(&self) -> Option<Room> {
        self.room
    }
}
