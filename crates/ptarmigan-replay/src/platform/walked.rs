//! Machines whose MMUs, or the handlers that fill their TLBs, walk the tables: x86-64 with the
//! recorded addresses, 32-bit x86 with areas packed into 3 GiB and tables that may be in high
//! memory, and the other formats with recorded addresses where there is room for them.
use super::walking::WalkingMmu;
use super::{DirectTables, PlacedTables, Platform, ReachedTables, room};
use crate::input::relayout::Room;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::params::UserPte;
use ptarmigan_hosted::Host;
use ptarmigan_ptsan::{Interrupting, MmuTraits, SoftMmu, Watchable};
use ptarmigan_term::{Bytes, Failure};
use ptsan::Config;
use std::marker::PhantomData;

/// A machine of format `F`, with tables that are reached through `T` and MMUs like `M`.
pub struct Walked<F, T, M = Interrupting> {
    userpte: UserPte,
    room: Option<Room>,
    _format: PhantomData<fn(F, T, M)>,
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
        check_reach::<F>(memory, reach)?;
        Ok(Self::small(userpte))
    }
}

/// A machine of format `F` with MMUs like `M`, and its tables in the host's own map.
#[cfg(feature = "formats")]
pub type Direct<F, M> = Walked<F, DirectTables, M>;

#[cfg(feature = "formats")]
impl<F: Watchable, M: MmuTraits> Direct<F, M> {
    /// Describes such a machine with `memory` bytes. It has the recorded addresses if the user's
    /// half has 47 bits.
    ///
    /// # Errors
    /// If there is more memory than its entries reach.
    pub fn with(memory: u64) -> Result<Self, Failure> {
        /// Recorded addresses are below this.
        const RECORDED_END: u64 = 1 << 47;
        check_reach::<F>(memory, 1 << F::PHYS_BITS)?;
        let room = (F::USER_END < RECORDED_END).then(room::<F>);
        Ok(Walked { userpte: UserPte::NoHigh, room, _format: PhantomData })
    }
}

/// Checks that the entries of a format, which name `reach` bytes, reach all memory.
fn check_reach<F: Format>(memory: u64, reach: u64) -> Result<(), Failure> {
    if memory <= reach {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--memory {} MiB: {} has at most {} MiB",
        Bytes(memory).mib(),
        F::NAME,
        Bytes(reach).mib()
    )))
}

impl<F: Watchable, T: ReachedTables<F>, M: MmuTraits> Platform for Walked<F, T, M> {
    type Format = F;
    type Traits = M;
    type Tables = T;
    type Mmus<'s> = WalkingMmu<'s, F, M>;
    type Mmu<'m> = WalkingMmu<'m, F, M>;

    fn tables(&self, host: &Host<F>) -> Result<T, Failure> {
        T::new(host, self.userpte)
    }

    fn mmus<'s>(
        &self,
        _: usize,
        soft: Option<&'s SoftMmu<'s, F, M>>,
    ) -> Result<WalkingMmu<'s, F, M>, Failure> {
        Ok(WalkingMmu::new(soft))
    }

    fn mmu<'m>(mmus: &'m WalkingMmu<'_, F, M>) -> WalkingMmu<'m, F, M> {
        *mmus
    }

    fn sanitizer<'h>(&self, host: &'h Host<F>, config: Config) -> Result<SoftMmu<'h, F, M>, Failure> {
        let soft = SoftMmu::<F, M>::like(host, config);
        soft.kernel_table_begins();
        Ok(soft)
    }

    fn ended(&self, soft: &SoftMmu<'_, F, M>) {
        soft.kernel_table_ended();
    }

    fn room(&self) -> Option<Room> {
        self.room
    }
}
