//! The hooks of data frames, and of moments at which everything must have been flushed.
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Tells that a page was just mapped at `va` in a space. Every CPU that has the space loaded
    /// then walks for it, as hardware may at any time.
    ///
    /// Not needed where stores are told: there the CPUs that could have walked are known.
    pub fn frame_mapped(&mut self, memory: &(impl Memory + ?Sized), space: u64, va: u64) {
        self.hook(|s| {
            s.notice(va);
            for cpu in 0..s.cpus.len() {
                if s.cpus[cpu].runs(space)
                    && let Ok(loaded) = s.loaded(memory, cpu, va)
                {
                    s.probe(memory, cpu, loaded, va);
                }
            }
        });
    }

    /// Tells that the `size` bytes of data at `phys` were freed: given to an allocator, or to any
    /// list from which they may be handed out again. Call it when the last user is gone; the
    /// sanitizer counts no references.
    ///
    /// By then no CPU may translate to them in a space that it runs in, and no entry of such a
    /// space may map them to user mode ([`Kind::DataFreedBeforeFlush`]). A lazy CPU uses no
    /// addresses of the space, and owes the flush until it [resumes](Self::resume).
    ///
    /// With told stores this holds for each CPU that could have cached a translation. Whatever is
    /// told, it holds for those that did: the simulated TLBs are looked at, global translations
    /// too. A kernel's own mapping of the frame that memory still gives does not count.
    pub fn frame_freed(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.hook(|s| s.give_away(memory, phys, size, Kind::DataFreedBeforeFlush));
    }

    /// Tells that a data frame is handed out again, for code whose frees are not told. It makes the
    /// same check as [`Sanitizer::frame_freed`] ([`Kind::DataReusedBeforeFlush`]).
    ///
    /// A frame that is announced as a table ([`Sanitizer::table_allocated`]) is checked without it.
    pub fn frame_reused(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.hook(|s| s.give_away(memory, phys, size, Kind::DataReusedBeforeFlush));
    }

    fn give_away(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64, kind: Kind) {
        let place = Place { frame: Some(phys), ..Place::default() };
        if size == 0 || phys.checked_add(size).is_none() {
            return self.misuse(Rule::BadArgument, place);
        }
        self.adversary_acts(memory);
        if kind == Kind::DataReusedBeforeFlush {
            self.deferred_reused(memory, phys, size);
        }
        self.check_data(memory, (phys, size), (kind, Rule::DataNotFlushed));
    }

    /// Tells that everything that was unmapped, remapped or restricted so far has been flushed, as
    /// far as it belongs to no operation under way.
    ///
    /// Reports the CPUs that may still hold any of it ([`Kind::FlushMissing`]), for which it needs
    /// told stores, as [`Sanitizer::operation_ends`] does; and the CPUs and devices that have
    /// faulted on an entry which they keep from before it was valid, and have not flushed since
    /// ([`Rule::InvalidKept`](crate::Rule::InvalidKept)). So no CPU is between a fault and the end
    /// of its handler. [`Sanitizer::finish_with`] calls it.
    pub fn flushes_done(&mut self, memory: &(impl Memory + ?Sized)) {
        self.hook(|s| s.all_due(memory));
    }

    /// Reports whatever CPUs and devices owe while no operation and no handler is under way.
    pub(super) fn all_due(&mut self, memory: &(impl Memory + ?Sized)) {
        self.flushes_due(memory);
        self.invalid_due(memory);
    }
}
