//! Finds the functions that caused faults and calls, after the recording.
//!
//! A sample has the registers of a task and the end of its stack. The stack is unwound with the
//! tables for exceptions of the programs and libraries that were mapped at that time, or else with
//! frame pointers. Names and lines come from symbols and debug information. A file that is not the
//! mapped one any more is not used.
//!
//! The first function outside the C library, the loader and the allocator is the caller. A function
//! of those alone is no answer.
mod file;
mod frames;
mod image;
mod runtime;
mod sample;

pub(crate) use frames::Frame;
pub(crate) use sample::CallerSample;

use super::object::MappedObject;
use super::system::proc::PAGE_SHIFT;
use file::FileKey;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{MayAllocateDuringUnwind, Module, Unwinder};
use image::Image;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

pub(crate) use file::{Files, Unknown};

/// The most functions of one stack that are looked at.
const DEEPEST: usize = 64;
/// The most functions of one stack that a trace gets, the caller included.
pub(crate) const LONGEST: usize = 8;
/// The most address spaces whose stacks can be unwound without preparing it again.
const MOST_UNWINDERS: usize = 64;
/// The most addresses whose functions are remembered.
const MOST_ADDRESSES: usize = 1 << 20;

/// The executable mappings of an address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    /// By their first pages, each with the time at which it was there.
    mappings: Rc<Vec<(MappedObject, u64)>>,
    /// Tells one state of the mappings from others.
    version: u64,
}

impl Code {
    /// Adds a mapping, in the place of all before it. `version` is a new number.
    pub(crate) fn map(&mut self, object: &MappedObject, time: u64, version: u64) {
        self.unmap(object.start, object.pages, version);
        if object.executable {
            let mappings = Rc::make_mut(&mut self.mappings);
            let at = mappings.partition_point(|(other, _)| other.start < object.start);
            mappings.insert(at, (object.clone(), time));
            self.version = version;
        }
    }

    /// Cuts a range out.
    pub(crate) fn unmap(&mut self, start: u64, pages: u64, version: u64) {
        let end = start.saturating_add(pages);
        let touched = |other: &MappedObject| other.start < end && start < other.start + other.pages;
        if !self.mappings.iter().any(|(other, _)| touched(other)) {
            return;
        }
        self.version = version;
        let cut = |(other, time): (MappedObject, u64)| {
            if !touched(&other) {
                return vec![(other, time)];
            }
            let parts = [(other.start, start), (end, other.start + other.pages)];
            let parts = parts.into_iter().filter(|(from, to)| from < to).map(|(from, to)| {
                let offset = other.offset + ((from - other.start) << PAGE_SHIFT);
                (MappedObject { start: from, pages: to - from, offset, ..other.clone() }, time)
            });
            parts.collect()
        };
        let mappings = std::mem::take(Rc::make_mut(&mut self.mappings));
        self.mappings = Rc::new(mappings.into_iter().flat_map(cut).collect());
    }
}

/// The mappings of one space, ready to unwind its stacks.
struct Prepared<'f> {
    version: u64,
    unwinder: UnwinderX86_64<&'f [u8], MayAllocateDuringUnwind>,
    /// First and last address, difference between the addresses in memory and in the file, and the
    /// number of the image.
    images: Vec<(u64, u64, u64, usize)>,
}

/// Finds callers.
pub(crate) struct Callers<'f> {
    files: &'f Files,
    /// Bytes in `files`.
    loaded: u64,
    images: Vec<Image<'f>>,
    by_file: HashMap<FileKey, Option<usize>>,
    prepared: HashMap<u64, Prepared<'f>>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
    frames: HashMap<(usize, u64), Rc<[Frame]>>,
    /// Names of files whose functions are not known, by the reason.
    pub(crate) unknown: BTreeMap<Unknown, Vec<String>>,
    /// Samples, and those of them whose caller is not known.
    pub(crate) samples: (u64, u64),
}

impl<'f> Callers<'f> {
    pub(crate) fn new(files: &'f Files) -> Self {
        Self {
            files,
            loaded: 0,
            images: Vec::new(),
            by_file: HashMap::new(),
            prepared: HashMap::new(),
            cache: CacheX86_64::new_in(),
            frames: HashMap::new(),
            unknown: BTreeMap::new(),
            samples: (0, 0),
        }
    }

    /// Returns the caller in the space with this number, and the functions that called it, inner
    /// ones first. An empty list: the caller is not known.
    pub(crate) fn find(&mut self, space: u64, code: &Code, sample: &CallerSample) -> Vec<Frame> {
        self.prepare(space, code);
        let Some(Prepared { unwinder, images, .. }) = self.prepared.get(&space) else { return Vec::new() };
        let registers = UnwindRegsX86_64::new(sample.ip, sample.sp, sample.bp);
        let mut read = |address| sample.word(address).ok_or(());
        let mut stack = unwinder.iter_frames(sample.ip, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < DEEPEST
            && let Ok(Some(frame)) = stack.next()
        {
            addresses.push(frame.address_for_lookup());
        }
        let mut found: Vec<Frame> = Vec::new();
        for address in addresses {
            let image = images.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
            let Some(&(_, _, bias, image)) = image else {
                // Code without a file, or of a file that is not known. No function outside it
                // caused the work.
                if found.is_empty() {
                    break;
                }
                continue;
            };
            if self.frames.len() >= MOST_ADDRESSES {
                self.frames.clear();
            }
            let (images, in_file) = (&self.images, address.wrapping_sub(bias));
            let frames = self.frames.entry((image, in_file)).or_insert_with(|| images[image].frames(in_file));
            found.extend(frames.iter().filter(|frame| !frame.runtime).cloned());
            if found.len() >= LONGEST {
                break;
            }
        }
        found.truncate(LONGEST);
        self.samples.0 += 1;
        self.samples.1 += u64::from(found.first().is_none_or(|frame| frame.function.is_none()));
        found
    }

    /// Prepares to unwind stacks of a space, unless that is done for this state of its mappings.
    fn prepare(&mut self, space: u64, code: &Code) {
        if self.prepared.get(&space).is_some_and(|prepared| prepared.version == code.version) {
            return;
        }
        if self.prepared.len() >= MOST_UNWINDERS {
            self.prepared.clear();
        }
        let mut prepared =
            Prepared { version: code.version, unwinder: UnwinderX86_64::new(), images: Vec::new() };
        for (object, time) in code.mappings.iter() {
            let Some(number) = self.image(object, *time) else { continue };
            let image = &self.images[number];
            let (start, end) = (object.start << PAGE_SHIFT, (object.start + object.pages) << PAGE_SHIFT);
            let Some(bias) = image.bias(object) else { continue };
            let sections = image.sections.clone();
            prepared.unwinder.add_module(Module::new(object.base().to_owned(), start..end, bias, sections));
            prepared.images.push((start, end, bias, number));
        }
        self.prepared.insert(space, prepared);
    }

    /// Returns the image of a file, by its number.
    fn image(&mut self, object: &MappedObject, time: u64) -> Option<usize> {
        let key = FileKey::of(object);
        if let Some(known) = self.by_file.get(&key) {
            return *known;
        }
        let loaded = file::load(object, time, self.loaded).and_then(|bytes| {
            self.loaded += bytes.len() as u64;
            Image::new(self.files, bytes, object)
        });
        let number = match loaded {
            Ok(image) => {
                self.images.push(image);
                Some(self.images.len() - 1)
            }
            Err(why) => {
                self.unknown.entry(why).or_default().push(object.base().to_owned());
                None
            }
        };
        self.by_file.insert(key, number);
        number
    }
}

#[cfg(test)]
mod tests;
