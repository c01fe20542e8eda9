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
    /// Reports the CPUs that may still hold any of it ([`Kind::FlushMissing`]). It needs told
    /// stores. [`Sanitizer::operation_ends`] and [`Sanitizer::finish_with`] call it.
    pub fn flushes_done(&mut self, memory: &(impl Memory + ?Sized)) {
        self.hook(|s| s.flushes_due(memory));
    }
}
