//! Logs the pages of a space that are used or written: see [`TreeMut::take_dirty`] for the rules.
//!
//! [`TreeMut::take_dirty`]: crate::table::TreeMut::take_dirty
use super::SpaceMachine;
use super::areas::AreaError;
use super::state::{SpaceMut, State};
use crate::addr::VirtRange;
use crate::format::{Attr, Format};
use crate::page::Level;
use crate::table::Mapped;

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Takes the dirty bit from every leaf that maps a part of `range`, and calls `dirty` once for
    /// each that had it, in order, with its former attributes. All CPUs are flushed when this
    /// returns: the memory of the leaves must be read afterwards, and the next call tells those
    /// that are written from now on.
    ///
    /// A large page is told as a whole, also if `range` has only a part of it. Afterwards all large
    /// pages of tables above `largest` are split as far as they lie in `range`, clean ones too, so
    /// that the next call tells their parts. With the format's root as `largest` no page is split.
    ///
    /// Where the MMU does not set the bit, a write to a page without it faults, and
    /// [`fault`](super::Space::fault) sets it. Pages that a fault maps for a write are dirty.
    ///
    /// ```
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # use ptarmigan::{format::X86_64, machine::Machine};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    /// # let cpus = host.slots();
    /// # let pin = cpus[0].pin();
    /// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
    /// # let on = machine.on(&pin)?;
    /// use ptarmigan::addr::{VirtAddr, VirtRange};
    /// use ptarmigan::page::Level;
    /// use ptarmigan::space::{Access, AreaFlags, Space};
    ///
    /// let mut space = Space::<X86_64>::new(on)?;
    /// let heap = VirtRange::fixed::<0x40_0000, 0x50_0000>();
    /// space.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
    /// space.fault(on, VirtAddr(0x40_0123), Access::Write)?;
    /// space.fault(on, VirtAddr(0x40_1000), Access::Read)?;
    /// let mut written = Vec::new();
    /// space.edit(on)?.take_dirty(heap, Level::PTE, |page| written.push(page.at))?;
    /// assert_eq!(written, [VirtAddr(0x40_0000)]);
    /// space.end(on)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`AreaError::BadRange`] and [`AreaError::Refused`]; no bit is taken then.
    pub fn take_dirty(
        &mut self,
        range: VirtRange,
        largest: Level,
        dirty: impl FnMut(Mapped),
    ) -> Result<(), AreaError> {
        self.log(range, Attr::DIRTY, largest, dirty)
    }

    /// Takes the accessed bit from every leaf that maps a part of `range`, and calls `used` once
    /// for each that had it, in order, with its former attributes. The next call tells the leaves
    /// that are used from now on. Large pages stay as they are.
    ///
    /// # Errors
    ///
    /// As for [`take_dirty`](Self::take_dirty).
    pub fn take_accessed(&mut self, range: VirtRange, used: impl FnMut(Mapped)) -> Result<(), AreaError> {
        self.log(range, Attr::ACCESSED, F::LAYOUT.root(), used)
    }

    /// Takes write permission from every page in `range`, of whatever area, and calls `protected`
    /// once for each leaf that had it, in order, with its former attributes. From now on the first
    /// write to each of them faults. Areas keep their permissions.
    ///
    /// [`fault`](super::Space::fault) allows such a write again, and copies a page that fork has
    /// shared. So a fault that was a write, and that returned another result than
    /// [`Done::Spurious`](super::Done), tells that the page is written, or the large page that maps
    /// it afterwards ([`query_leaf`](crate::table::TreeRef::query_leaf)). A page that was not
    /// mapped, or could not be written before, tells so as well.
    ///
    /// Large pages that lie partly in `range` are split first. Afterwards large pages of tables
    /// above `largest` are split too, see [`take_dirty`](Self::take_dirty).
    ///
    /// [`mprotect`](Self::mprotect) that allows writes and [`collapse`](Self::collapse) may give
    /// the permission back without a fault. A caller that makes such calls meanwhile must take the
    /// dirty bits as well, when the log begins and when it ends: they tell these pages.
    ///
    /// ```
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # use ptarmigan::{format::X86_64, machine::Machine};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    /// # let cpus = host.slots();
    /// # let pin = cpus[0].pin();
    /// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
    /// # let on = machine.on(&pin)?;
    /// use ptarmigan::addr::{VirtAddr, VirtRange};
    /// use ptarmigan::page::Level;
    /// use ptarmigan::space::{Access, AreaFlags, Done, Space};
    ///
    /// let mut space = Space::<X86_64>::new(on)?;
    /// let heap = VirtRange::fixed::<0x40_0000, 0x50_0000>();
    /// space.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
    /// let page = VirtAddr(0x40_0000);
    /// space.fault(on, page, Access::Write)?;
    ///
    /// space.edit(on)?.write_protect(heap, Level::PTE, |leaf| assert_eq!(leaf.at, page))?;
    /// // The program writes to the page, which faults.
    /// let mut log = Vec::new();
    /// if space.fault(on, page, Access::Write)? != Done::Spurious {
    ///     log.push(page);
    /// }
    /// assert_eq!(log, [page]);
    /// space.end(on)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`take_dirty`](Self::take_dirty); no permission is taken then.
    pub fn write_protect(
        &mut self,
        range: VirtRange,
        largest: Level,
        protected: impl FnMut(Mapped),
    ) -> Result<(), AreaError> {
        self.log(range, Attr::WRITE, largest, protected)
    }

    fn log(
        &mut self,
        range: VirtRange,
        bits: Attr,
        largest: Level,
        visit: impl FnMut(Mapped),
    ) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        self.may_flush()?;
        let mut gather = self.gather();
        Ok(self.state.tables.log(range, bits, largest, &mut gather, visit)?)
    }
}
