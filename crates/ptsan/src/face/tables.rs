//! The hooks of the allocator of table frames.
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, State};
use crate::state::Sanitizer;

/// The most bytes of one allocation.
const MOST_BYTES: u64 = 1 << 28;

/// The content of a frame when it is announced as a table.
/// ```
/// use ptsan::{Arch, Config, Content, Kind, Sanitizer};
///
/// let mut san = Sanitizer::new(Config::new(Arch::x86_64()));
/// let memory = vec![7u8; 1 << 16];
/// san.table_allocated(&memory, 0x1000, 4096, None, Content::Unknown); // will be cleared
/// san.table_allocated(&memory, 0x2000, 4096, None, Content::Zero);    // the allocator promised it
/// assert_eq!(san.count(Kind::NotZero), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zero, as the allocator promised. It is checked at once ([`Kind::NotZero`]).
    Zero,
    /// Anything. The code under test clears it before it links it. The present content is recorded,
    /// and compared when the table becomes reachable ([`Kind::LinkedBeforeCleared`]).
    ///
    /// Entries that are stored to with [`Sanitizer::entry_written`] are left out of the comparison.
    /// Where stores are not told, an entry that is cleared and then written with its old content
    /// looks like one that was never cleared: use [`Content::Unchecked`] for tables that are
    /// refilled with the same entries. Entries of a root that another root has too, as those of the
    /// kernel, are left out.
    Unknown,
    /// Not checked, at no cost.
    Unchecked,
}

impl Sanitizer {
    /// Tells that the `size` bytes at `phys` were allocated to hold a table (or several), of
    /// `level` if that is known. Otherwise it follows from the entries above, at the latest when
    /// the root is loaded; stores that are told before are checked then.
    ///
    /// Call it when the allocator returns the frame, before the code under test clears it. It
    /// reports
    ///
    /// * a frame that some CPU may still walk as the table it was before
    ///   ([`Kind::ReuseBeforeFlush`]);
    /// * a frame that already is a table ([`Kind::DoubleAllocate`]);
    /// * a frame that breaks the promise of [`Content::Zero`].
    pub fn table_allocated(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        content: Content,
    ) {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.allocate(memory, phys, size, level, content);
        });
    }

    fn allocate(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        content: Content,
    ) {
        let place = Place { frame: Some(phys), level, ..Place::default() };
        let bad_level = level.is_some_and(|l| usize::from(l) >= self.config.arch.levels.len());
        if size == 0 || size > MOST_BYTES || phys.checked_add(size).is_none() || bad_level {
            let needs = "table_allocated needs 1 to 2^28 bytes below 2^64, and a level of the format or None";
            self.bad_argument(place, needs);
            return;
        }
        let is_checked = self.deferred_reused(memory, phys, size);
        self.check_writable(phys, size);
        self.check_data(memory, (phys, size), (Kind::DataReusedBeforeFlush, Rule::DataMadeTable));
        let at = match self.frames.sole_freed(phys, size) {
            Some(at) => {
                if !is_checked {
                    self.check_held(memory, at, Kind::ReuseBeforeFlush);
                }
                self.frames.reallocate(at, level, self.event)
            }
            None => self.take_place(memory, phys, size, level, place),
        };
        if self.config.track_origins
            && let Some(f) = self.frames.get_mut(at)
        {
            f.remember_owner(self.reports.callers());
        }
        match content {
            Content::Unchecked => {}
            Content::Zero => match memory.is_zero(phys, size) {
                Some(true) => {}
                Some(false) => self.report(Kind::NotZero, Rule::ZeroPromised, place, String::new),
                None => self.report(Kind::OutsideMemory, Rule::NoMemory, place, String::new),
            },
            Content::Unknown => match memory.is_zero(phys, size) {
                Some(true) => {}
                Some(false) => self.remember_content(memory, at),
                None => self.report(Kind::OutsideMemory, Rule::NoMemory, place, String::new),
            },
        }
    }

    /// Tells that the table was freed: given to an allocator, or to any list from which it may be
    /// allocated again.
    ///
    /// By then no CPU may hold it, active or lazy ([`Kind::FreeBeforeFlush`]), and no entry that a
    /// walk can reach may point at it ([`Kind::FreeWhileLinked`]). For a list whose frames are
    /// taken only after a flush, call this when the frame leaves that list, or
    /// [`Sanitizer::table_freed_at_flush`] when it gets there.
    pub fn table_freed(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.give_back(memory, phys, size);
        });
    }

    pub(super) fn give_back(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        let place = Place { frame: Some(phys), ..Place::default() };
        let Some(at) = self.frames.find(phys) else {
            self.report(Kind::ForeignFree, Rule::NotATable, place, String::new);
            return;
        };
        let Some(f) = self.frames.get(at) else { return };
        if f.phys != phys {
            let (start, len) = (f.phys, f.size);
            self.report(Kind::ForeignFree, Rule::NotATable, place, || {
                format!("it lies in the table of {len} bytes at {start:#x}")
            });
            return;
        }
        if f.state == State::Freed || self.deferred.contains_key(&phys) {
            self.report(Kind::DoubleFree, Rule::AlreadyFree, place, String::new);
            return;
        }
        if f.size != size {
            let announced = f.size;
            self.report(Kind::ForeignFree, Rule::WrongSize, place, || {
                format!("announced with {announced} bytes, freed with {size}")
            });
        }
        self.check_linked(memory, at);
        self.check_bits_left(memory, at);
        self.check_readers(memory, at);
        if self.check_held(memory, at, Kind::FreeBeforeFlush) {
            self.forgive_unlinked(at);
        } else {
            self.check_unlinked(at);
        }
        self.numbers.release(phys);
        self.locks.forget(phys);
        self.frames.free(at, self.event);
        if self.config.track_origins
            && let Some(f) = self.frames.get_mut(at)
        {
            f.remember_giver(self.reports.callers());
        }
    }

    /// Makes room among frames of another shape, or for the first table at this place.
    fn take_place(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
        level: Option<u8>,
        place: Place,
    ) -> FrameRef {
        for other in self.frames.overlapping(phys, size) {
            if self.is_table(other) {
                self.report(Kind::DoubleAllocate, Rule::AlreadyTable, place, String::new);
            } else {
                self.check_held(memory, other, Kind::ReuseBeforeFlush);
            }
            self.frames.remove(other);
        }
        self.frames.insert(phys, size, level, self.event)
    }
}
