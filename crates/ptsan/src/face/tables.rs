//! The hooks of the allocator of table frames.
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, State};
use crate::state::Sanitizer;

/// The most bytes that are taken for one allocation of tables.
const MOST_BYTES: u64 = 1 << 28;

/// What a frame holds when it is announced as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zero, as the allocator promised: checked at once ([`Kind::NotZero`]).
    Zero,
    /// Anything; the code under test clears it before it links it. What is there now is remembered, and
    /// compared when the table is linked ([`Kind::LinkedBeforeCleared`]).
    Unknown,
    /// Not looked at: no check, no cost.
    Unchecked,
}

impl Sanitizer {
    /// The `size` bytes at `phys` were handed out to hold a table (or several), of `level` if that is known.
    ///
    /// Call it when the allocator hands the frame out, before the code under test clears it. It reports a frame that
    /// some CPU may still walk as the table it was before ([`Kind::ReuseBeforeFlush`], REQ-4), one that is a table
    /// already ([`Kind::DoubleAllocate`]), and one that breaks the promise of [`Content::Zero`].
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
            self.misuse(Rule::BadArgument, place);
            return;
        }
        let at = match self.frames.sole_freed(phys, size) {
            Some(at) => {
                self.check_held(memory, at, Kind::ReuseBeforeFlush);
                self.frames.reallocate(at, level, self.event)
            }
            None => self.take_place(memory, phys, size, level, place),
        };
        if self.config.track_origins
            && let Some(f) = self.frames.get_mut(at)
        {
            f.remember_owner();
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

    /// The table was given back to an allocator, or to any list from which it may be handed out again.
    ///
    /// By then no CPU may hold it, active or lazy ([`Kind::FreeBeforeFlush`], REQ-4, REQ-5), and no entry that a
    /// walk can reach may point at it ([`Kind::FreeWhileLinked`]). A list from which it is only taken
    /// after a flush is not meant: call this when it leaves that list.
    pub fn table_freed(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.give_back(memory, phys, size);
        });
    }

    fn give_back(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
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
        if f.state == State::Freed {
            self.report(Kind::DoubleFree, Rule::AlreadyFree, place, String::new);
            return;
        }
        if f.size != size {
            let announced = f.size;
            self.report(Kind::ForeignFree, Rule::WrongSize, place, || {
                format!("announced with {announced} bytes, given back with {size}")
            });
        }
        self.check_linked(memory, at);
        self.check_held(memory, at, Kind::FreeBeforeFlush);
        self.frames.free(at, self.event);
        if self.config.track_origins
            && let Some(f) = self.frames.get_mut(at)
        {
            f.remember_giver();
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
