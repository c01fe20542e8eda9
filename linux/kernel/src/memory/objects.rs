//! Pages of objects: files in memory, and shared anonymous memory.
//!
//! # Shape
//!
//! An object has a top frame of 1,024 numbers of frames, each of which holds 1,024 numbers of
//! pages: 4 GiB at the most. All are low frames, and come into being when they are needed. A page
//! that was never written is a hole, which reads as zeroes; it gets a frame when a program touches
//! it through a mapping.
//!
//! ```text
//!  object ── top ──> │ n │ … │ ──> │ page │ hole │ page in a block │ … │
//!                                           └─ a program touches it ──> frame, cleared
//!  users    its place + open files + tasks that map it ──> 0: all frames go
//! ```
//!
//! Shared anonymous memory may have its pages in blocks, for large pages: a span of holes gets a
//! block of frames when a program touches one of them. A block goes with the object, as a whole.
//!
//! # Life
//!
//! An object has users: its place in the file system, open files, and every task that has it
//! mapped, once. While anything but the place itself uses it, no page of it is given back: one that
//! is cut off is cleared. With the last user the object goes, and all of its frames.
//!
//! # Why
//!
//! A page that is cut off by `truncate` may still be mapped by a task that runs on another CPU. To
//! give it back, every space that maps it would have to be found and flushed, for which Linux keeps
//! reverse maps. Clearing the page must be enough here: the program then reads zeroes where Linux
//! sends `SIGBUS`. One lock guards all objects, because each operation is a few loads and stores.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, Request, ZoneClass};
use ptarmigan::sync::SpinLock;
use ptarmigan::window::{OpenWindow, WindowGuard};

use super::code::Fetched;
use crate::errno::Errno;
use crate::grown::{Page, Record, Table};
use crate::task::records::Place;

/// Objects that have their places without frames.
const OBJECTS: usize = 2048;
/// Numbers in a frame.
const NUMBERS: usize = FRAME_SIZE / 4;
/// Bytes of an object at the most.
pub const MOST_BYTES: u64 = NUMBERS as u64 * NUMBERS as u64 * FRAME_SIZE as u64;
/// No frame: cleared memory reads as this number, and no frame that is handed out has number 0.
const HOLE: u32 = 0;
/// Marks the number of a page in a block. No machine of the kernel's has so many frames.
const IN_BLOCK: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Object {
    /// Tasks and open files, of which there are some hundred.
    users: u16,
    /// Binary logarithm of the pages of a block; 0 if it has no blocks.
    block_order: u8,
    top: u32,
    /// Pages that have frames.
    held: u32,
    size: u64,
}

// The table is part of the image's memory.
const _: () = assert!(size_of::<Object>() <= 24);

impl Object {
    /// Returns the number of its pages, holes among them.
    fn pages(&self) -> u64 {
        if self.users > 0 { self.size.div_ceil(FRAME_SIZE as u64) } else { 0 }
    }
}

impl Record for Object {
    const FREE: Self = Object { users: 0, block_order: 0, top: HOLE, held: 0, size: 0 };

    fn set_free(&mut self, next: u32) {
        *self = Object { top: next, ..Self::FREE };
    }

    fn next_free(&self) -> u32 {
        self.top
    }
}

/// All objects.
type All = Table<Object, OBJECTS>;

/// Places of objects.
pub struct ObjectTable(SpinLock<All>);

impl ObjectTable {
    /// Makes a table without objects.
    pub const fn new() -> Self {
        ObjectTable(SpinLock::new(Table::new()))
    }
}

/// The pages of all objects, in the memory of a machine.
pub struct Objects<'m, W> {
    all: &'m SpinLock<All>,
    frames: &'m Frames,
    window: &'m W,
    fetched: Option<&'m Fetched>,
}

impl<'m, W: OpenWindow> Objects<'m, W> {
    pub(super) fn new(
        table: &'m ObjectTable,
        frames: &'m Frames,
        window: &'m W,
        fetched: Option<&'m Fetched>,
    ) -> Self {
        Objects { all: &table.0, frames, window, fetched }
    }

    /// Makes an object of `size` bytes, all holes, with one user.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`], also if it is too large.
    pub fn create(&self, size: u64) -> Result<u32, Errno> {
        self.create_in_blocks(size, 0)
    }

    /// As [`create`](Self::create), of an object that may have its pages in blocks of
    /// 2^`block_order` pages.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn create_in_blocks(&self, size: u64, block_order: u8) -> Result<u32, Errno> {
        Errno::ENOMEM.when(size > MOST_BYTES)?;
        let object = Object { users: 1, block_order, top: HOLE, held: 0, size };
        self.all.lock().claim(object, || self.new_page())
    }

    /// Adds a user.
    pub fn share(&self, object: u32) {
        if let Some(object) = self.all.lock().get_mut(object) {
            object.users += 1;
        }
    }

    /// Takes a user away, and with the last one the object.
    pub fn release(&self, object: u32) {
        let mut all = self.all.lock();
        let Some(found) = all.get_mut(object) else { return };
        // A free one has no users, and its top is none.
        let Some(users) = found.users.checked_sub(1) else { return };
        found.users = users;
        if users > 0 {
            return;
        }
        let (top, order) = (found.top, found.block_order);
        all.release(object);
        if top == HOLE {
            return;
        }
        self.numbers(top, |tops| {
            for middle in tops.iter().map(|n| n.load(Ordering::Relaxed)).filter(|n| *n != HOLE) {
                self.numbers(middle, |pages| {
                    for page in pages.iter().map(|n| n.load(Ordering::Relaxed)).filter(|n| *n != HOLE) {
                        // SAFETY: 1. A page of the object, whose last user has gone; its block
                        // goes with its first page.
                        unsafe { self.give_page(page, order) };
                    }
                });
                // SAFETY: 1. A frame of numbers of the object, which is not read any more.
                unsafe { self.give(middle, 0) };
            }
        });
        // SAFETY: 1. As above.
        unsafe { self.give(top, 0) };
    }

    /// Returns the number of an object's users.
    pub fn users(&self, object: u32) -> u16 {
        self.all.lock().get(object).map_or(0, |object| object.users)
    }

    /// Returns the size of an object, in bytes.
    pub fn size(&self, object: u32) -> u64 {
        self.all.lock().get(object).map_or(0, |object| object.size)
    }

    /// Returns how many pages of an object have frames.
    pub fn held(&self, object: u32) -> u64 {
        self.all.lock().get(object).map_or(0, |object| object.held.into())
    }

    /// Returns the frame of a page; `None` if it is a hole.
    pub fn page(&self, object: u32, page: u64) -> Option<Pfn> {
        let all = self.all.lock();
        let found = all.get(object)?;
        self.find(found.top, page)
    }

    /// Returns the frame of a page, and makes one of zeroes if it is a hole.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`].
    pub fn page_or_new(&self, object: u32, page: u64) -> Result<Pfn, Errno> {
        let mut all = self.all.lock();
        let found = all.get_mut(object).filter(|object| object.users > 0).ok_or(Errno::ENOMEM)?;
        self.make(found, page)
    }

    /// Returns the frame that a mapping of a page shows; `None` beyond the end, and for lack of
    /// memory.
    pub fn page_for_fault(&self, object: u32, page: u64) -> Option<Pfn> {
        let mut all = self.all.lock();
        let found = all.get_mut(object).filter(|object| page < object.pages())?;
        self.find(found.top, page).or_else(|| self.make(found, page).ok())
    }

    /// Returns the first frame of the block in which `pages` pages from `page` on are kept, and
    /// makes one of zeroes if all are holes; `None` if they are kept otherwise, beyond the end, and
    /// for lack of a block.
    pub fn block_for_fault(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        let order = pages.ilog2() as u8;
        if !page.is_multiple_of(pages.into()) || pages as usize > NUMBERS {
            return None;
        }
        let find = |all: &All| {
            let found = all.get(object).filter(|object| object.block_order == order)?;
            let fits = page.checked_add(pages.into()).is_some_and(|end| end <= found.pages());
            fits.then(|| self.span(found.top, page, pages))
        };
        match find(&self.all.lock())? {
            ObjectSpan::Block(first) => return Some(first),
            ObjectSpan::Pages => return None,
            ObjectSpan::Holes => {}
        }
        // Cleared without the lock.
        let block = self.take(order).ok()?;
        let mut all = self.all.lock();
        let span = find(&all).unwrap_or(ObjectSpan::Pages);
        if let ObjectSpan::Holes = span
            && let Some((upper, lower)) = places(page)
            && let Some(found) = all.get_mut(object)
            && let Ok(middle) = self.middle(found, upper)
        {
            self.numbers(middle, |numbers| {
                for (number, frame) in numbers[lower..][..pages as usize].iter().zip(block..) {
                    number.store(frame | IN_BLOCK, Ordering::Relaxed);
                }
            });
            found.held += pages;
            return Some(Pfn(block));
        }
        // SAFETY: 1. No object has it.
        unsafe { self.give(block, order) };
        match span {
            ObjectSpan::Block(first) => Some(first),
            ObjectSpan::Holes | ObjectSpan::Pages => None,
        }
    }

    /// Finds the frames of pages from `first` on, one for each of `frames`. A hole, which stays
    /// one, and a page beyond the end are left out.
    pub fn pages_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        let all = self.all.lock();
        let Some(object) = all.get(object) else { return };
        let mut pages = first..object.pages().min(first.saturating_add(frames.len() as u64));
        let mut rest = frames;
        while let Some((upper, lower)) = places(pages.start).filter(|_| !pages.is_empty()) {
            let n = (NUMBERS - lower).min((pages.end - pages.start) as usize);
            let (part, others) = rest.split_at_mut(n);
            self.with_numbers(object.top, upper, |numbers| {
                for (frame, number) in part.iter_mut().zip(&numbers[lower..]) {
                    match number.load(Ordering::Relaxed) {
                        HOLE => {}
                        number => *frame = Pfn(number & !IN_BLOCK),
                    }
                }
            });
            (pages.start, rest) = (pages.start + n as u64, others);
        }
    }

    /// Sets the size. The part that is cut off reads as zeroes if the object grows again.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`] if the size is too large.
    pub fn set_size(&self, object: u32, size: u64) -> Result<(), Errno> {
        Errno::ENOMEM.when(size > MOST_BYTES)?;
        let mut all = self.all.lock();
        let found = all.get_mut(object).ok_or(Errno::ENOMEM)?;
        let old = core::mem::replace(&mut found.size, size);
        self.cut(found, size..old);
        Ok(())
    }

    /// Has bytes read as zeroes.
    fn cut(&self, object: &mut Object, bytes: Range<u64>) {
        const PAGE: u64 = FRAME_SIZE as u64;
        if bytes.is_empty() || object.top == HOLE {
            return;
        }
        // A block goes as a whole, with the object.
        let sole = object.users == 1 && object.block_order == 0;
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            let Some(pfn) = self.find(object.top, page) else { continue };
            let start = bytes.start.saturating_sub(page * PAGE) as usize;
            let end = (bytes.end - page * PAGE).min(PAGE) as usize;
            // Bytes behind the size are zeroes already.
            let is_whole = start == 0 && (end == FRAME_SIZE || bytes.end >= object.size);
            if is_whole && sole {
                self.with_number(object.top, page, |number| number.store(HOLE, Ordering::Relaxed));
                object.held -= 1;
                // SAFETY: 1. A page of the object, in no block, that no space maps and no code
                // reads: there is one user.
                unsafe { self.give(pfn.0, 0) };
                continue;
            }
            let guard = self.window.open_low(pfn.addr());
            // SAFETY: 1. The frame is the object's, of low memory, which the window reaches, and
            // the bytes lie in it. Programs that have it mapped may race with this, as with each
            // other: there are no Rust references to its bytes.
            unsafe { guard.base().add(start).write_bytes(0, end - start) };
            self.stored(pfn);
        }
    }

    /// Makes a hole of bytes: pages that lie in it as a whole are given back, unless a program maps
    /// the object. The size stays.
    pub fn punch(&self, object: u32, bytes: Range<u64>) {
        let mut all = self.all.lock();
        let Some(found) = all.get_mut(object) else { return };
        self.cut(found, bytes);
    }

    /// Makes the pages of a range of bytes that are holes, for `most` bytes at the most; whether
    /// all are there. The size stays.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`]; pages behind the end have gone again then.
    pub fn fill_holes(&self, object: u32, bytes: Range<u64>, most: u64) -> Result<bool, Errno> {
        const PAGE: u64 = FRAME_SIZE as u64;
        let (mut page, end) = (bytes.start / PAGE, bytes.end.div_ceil(PAGE));
        let mut left = most / PAGE;
        while let Some(hole) = self.next_hole(object, page).filter(|hole| *hole < end) {
            if left == 0 {
                return Ok(false);
            }
            if let Err(e) = self.page_or_new(object, hole) {
                let size = self.size(object).next_multiple_of(PAGE);
                self.punch(object, size.max(bytes.start)..bytes.end.next_multiple_of(PAGE));
                return Err(e);
            }
            (page, left) = (hole + 1, left - 1);
        }
        Ok(true)
    }

    /// Returns the first page from `page` on without a frame, whatever the size.
    fn next_hole(&self, object: u32, mut page: u64) -> Option<u64> {
        let all = self.all.lock();
        let found = all.get(object)?;
        loop {
            let (upper, lower) = places(page)?;
            let next = self.with_numbers(found.top, upper, |numbers| {
                numbers[lower..].iter().position(|number| number.load(Ordering::Relaxed) == HOLE)
            });
            match next {
                None => return Some(page),
                Some(Some(n)) => return Some(page + n as u64),
                Some(None) => page = (upper as u64 + 1) * NUMBERS as u64,
            }
        }
    }

    /// Returns the first byte from `at` on that is in a page with a frame, or with `hole` in one
    /// without. The end of the object is a hole. `None` behind the end, and if there is no more
    /// data.
    pub fn next_data(&self, object: u32, at: u64, hole: bool) -> Option<u64> {
        const PAGE: u64 = FRAME_SIZE as u64;
        let all = self.all.lock();
        let found = all.get(object).filter(|object| at < object.size)?;
        let mut page = at / PAGE;
        while page < found.pages() {
            let (upper, lower) = places(page)?;
            let next = self.with_numbers(found.top, upper, |numbers| {
                let mut rest = numbers[lower..].iter();
                rest.position(|number| (number.load(Ordering::Relaxed) == HOLE) == hole)
            });
            match next {
                Some(Some(n)) => {
                    page += n as u64;
                    break;
                }
                // All of them are holes.
                None if hole => break,
                Some(None) | None => page = (upper as u64 + 1) * NUMBERS as u64,
            }
        }
        match (page * PAGE).max(at) {
            place if place < found.size => Some(place),
            _ => hole.then_some(found.size),
        }
    }
}

/// Where a span of pages is kept.
enum ObjectSpan {
    /// None of them has a frame.
    Holes,
    /// In one block, from this frame on.
    Block(Pfn),
    /// Otherwise.
    Pages,
}

fn places(page: u64) -> Option<(usize, usize)> {
    let upper = usize::try_from(page / NUMBERS as u64).ok()?;
    (upper < NUMBERS).then_some((upper, (page % NUMBERS as u64) as usize))
}

impl<W: OpenWindow> Objects<'_, W> {
    /// Takes 2^`order` frames of zeroes; the number of the first one.
    fn take(&self, order: u8) -> Result<u32, Errno> {
        let request = Request {
            node: NodeId(0),
            order,
            zero: true,
            class: ZoneClass::Low,
            end: End::High,
            flags: AllocFlags::NORMAL,
        };
        let taken = self.frames.take(request)?;
        // SAFETY: 1. The window reaches all memory (`Arch`, point 5).
        let first = unsafe { taken.zeroed(self.window) }.into_raw();
        (first.0..).take(1 << order).for_each(|frame| self.stored(Pfn(frame)));
        Ok(first.0)
    }

    /// Takes a page of zeroes for records.
    fn new_page(&self) -> Result<Place<Page>, Errno> {
        let frame = self.take(0)?;
        // The window reaches low memory in place, with or without its guard (`Arch`, points 5 and
        // 6).
        let at = self.window.open_low(Pfn(frame).addr()).base();
        let at = NonNull::new(at.cast::<Page>()).ok_or(Errno::ENOMEM)?;
        // SAFETY: 1. It is a frame of zeroes, and `take` has given it to this caller. 2. No other
        // code has the frame.
        Ok(unsafe { Place::new(at, Pfn(frame)) })
    }

    /// Gives the frames of the table back, for the kernel's end: there are no objects any more.
    pub(crate) fn clear_table(&self) {
        let mut all = self.all.lock();
        while let Some(page) = all.take_page() {
            // SAFETY: 1. `new_page` took it, and the table has no link to it any more.
            unsafe { self.give(page.frame.0, 0) };
        }
    }

    /// Notes that the kernel has written to a frame.
    fn stored(&self, frame: Pfn) {
        if let Some(fetched) = self.fetched {
            fetched.remove(frame);
        }
    }

    /// Gives 2^`order` frames of an object back.
    ///
    /// # Safety
    ///
    /// 1. `number` came from [`take`](Self::take) of that order, and no code uses the frames or
    ///    gives them back again.
    unsafe fn give(&self, number: u32, order: u8) {
        // SAFETY: 1. Point 1 is passed on. 2. `Dirty` makes no claim about the content.
        self.frames.give(unsafe { Frame::<Dirty>::from_raw(self.frames.machine(), Pfn(number), order) });
    }

    /// Gives the page back that `number` names in a frame of numbers, or with the first page of a
    /// block the block.
    ///
    /// # Safety
    ///
    /// 1. An object with blocks of 2^`order` pages has the page, and no code uses it, or its block,
    ///    or gives it back again.
    unsafe fn give_page(&self, number: u32, order: u8) {
        let frame = number & !IN_BLOCK;
        if number & IN_BLOCK == 0 {
            // SAFETY: 1. `make` took it alone; no code uses it.
            unsafe { self.give(frame, 0) };
        } else if frame.trailing_zeros() >= order.into() {
            // SAFETY: 1. `block_for_fault` took it with this order: blocks are aligned to their
            // size, and have one size. No code uses it.
            unsafe { self.give(frame, order) };
        }
    }

    /// Runs `f` on the numbers in a frame of them.
    fn numbers<R>(&self, frame: u32, f: impl FnOnce(&[AtomicU32; NUMBERS]) -> R) -> R {
        let guard = self.window.open_low(Pfn(frame).addr());
        // SAFETY: 1. The frame is one that `take` returned for numbers: low memory, which the
        // window reaches (`Arch`, point 5), page-aligned, zeroed, and read and written as atomics
        // of this type only. 2. It stays while the guard lives: frames of numbers go with their
        // object, under its lock, which the callers hold.
        f(unsafe { &*guard.base().cast::<[AtomicU32; NUMBERS]>() })
    }

    /// Runs `f` on the number of a page, if there is a frame of numbers for it.
    fn with_number<R>(&self, top: u32, page: u64, f: impl FnOnce(&AtomicU32) -> R) -> Option<R> {
        let (upper, lower) = places(page)?;
        self.with_numbers(top, upper, |pages| f(&pages[lower]))
    }

    /// Runs `f` on a frame of numbers of pages, if there is one.
    fn with_numbers<R>(
        &self,
        top: u32,
        upper: usize,
        f: impl FnOnce(&[AtomicU32; NUMBERS]) -> R,
    ) -> Option<R> {
        if top == HOLE {
            return None;
        }
        let middle = self.numbers(top, |tops| tops[upper].load(Ordering::Relaxed));
        (middle != HOLE).then(|| self.numbers(middle, f))
    }

    fn find(&self, top: u32, page: u64) -> Option<Pfn> {
        let found = self.with_number(top, page, |number| number.load(Ordering::Relaxed))?;
        (found != HOLE).then_some(Pfn(found & !IN_BLOCK))
    }

    /// Says where a span of pages is kept, which are numbered in one frame.
    fn span(&self, top: u32, page: u64, pages: u32) -> ObjectSpan {
        let Some((upper, lower)) = places(page) else { return ObjectSpan::Pages };
        let span = self.with_numbers(top, upper, |numbers| {
            let mut span = numbers[lower..][..pages as usize].iter().map(|n| n.load(Ordering::Relaxed));
            match span.next() {
                // The pages of a block have come together.
                Some(first) if first & IN_BLOCK != 0 => ObjectSpan::Block(Pfn(first & !IN_BLOCK)),
                Some(HOLE) if span.all(|number| number == HOLE) => ObjectSpan::Holes,
                _ => ObjectSpan::Pages,
            }
        });
        span.unwrap_or(ObjectSpan::Holes)
    }

    fn make(&self, object: &mut Object, page: u64) -> Result<Pfn, Errno> {
        let (upper, lower) = places(page).ok_or(Errno::ENOMEM)?;
        let middle = self.middle(object, upper)?;
        let (number, is_new) = self.fill(middle, lower)?;
        object.held += u32::from(is_new);
        Ok(Pfn(number & !IN_BLOCK))
    }

    /// Returns the frame of numbers at `upper`, and makes it if it is missing.
    fn middle(&self, object: &mut Object, upper: usize) -> Result<u32, Errno> {
        if object.top == HOLE {
            object.top = self.take(0)?;
        }
        self.fill(object.top, upper).map(|(number, _)| number)
    }

    /// Returns the number at `at` in a frame of them, and takes a frame if it is a hole: then it is
    /// new.
    fn fill(&self, table: u32, at: usize) -> Result<(u32, bool), Errno> {
        let there = self.numbers(table, |all| all[at].load(Ordering::Relaxed));
        if there != HOLE {
            return Ok((there, false));
        }
        let new = self.take(0)?;
        self.numbers(table, |all| all[at].store(new, Ordering::Relaxed));
        Ok((new, true))
    }
}
