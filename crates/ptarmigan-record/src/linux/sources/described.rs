//! Records of perf events that describe the work of a task: its mappings, and samples of its
//! callers.
//!
//! They become raw events in a temporary file for each CPU.
use super::members::Fork;
use super::merge::Stream;
use super::ring::{Record, Strange, StrangeRecords};
use super::samples::{self, Samplers};
use super::spill::{self, Room, Spill};
use crate::linux::object::MappedObject;
use crate::linux::raw::{Raw, RawKind};
use crate::linux::system::proc::PAGE_SHIFT;
use perf_event_open_sys::bindings as b;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::Prot;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

/// Bytes behind a record that is no sample: process, task, time, CPU.
const TAIL: usize = 24;
/// Bytes of a record of a mapping before its path.
const MAPPING: usize = 72;

/// The temporary files of mappings.
pub(crate) const MAPPED: &str = "mapped";

/// A temporary file of one CPU, for its reader.
pub(crate) struct Described {
    out: BufWriter<File>,
    room: Arc<Room>,
    samplers: Option<Samplers>,
    /// The samples that are kept until it is known whether they are of recorded processes.
    waiting: VecDeque<Vec<u8>>,
    strange: StrangeRecords,
}

impl Described {
    /// Creates the file of a kind for a CPU.
    pub(crate) fn new(spill: &Spill, files: &str, cpu: u16, samplers: Option<Samplers>) -> io::Result<Self> {
        let out = BufWriter::with_capacity(1 << 16, File::create(spill.path(&format!("{files}{cpu}")))?);
        let (waiting, strange) = (VecDeque::new(), spill.strange.clone());
        Ok(Self { out, room: Arc::clone(&spill.room), samplers, waiting, strange })
    }

    /// Begins one look at the ring.
    pub(crate) fn look(&mut self) {
        if let Some(samplers) = &mut self.samplers {
            samplers.look();
        }
    }

    /// Writes a record if it is of use. Counts one that is not as it should be, and records that
    /// were lost.
    pub(crate) fn write(&mut self, record: Record<'_>, lost: &mut u64) -> io::Result<()> {
        let raw = match (record, &mut self.samplers) {
            (Record::Sample(r), Some(samplers)) if samplers.members.is_some() => {
                self.waiting.push_back(r.to_vec());
                Ok(None)
            }
            (Record::Sample(r), Some(samplers)) => samplers.decode(r),
            (Record::Mapping(r), _) => mapping(r),
            (Record::Fork(r), Some(Samplers { members: Some(members), .. })) => {
                Fork::of(r).into_iter().for_each(|fork| members.forked(fork));
                Ok(None)
            }
            (Record::Fork(_) | Record::Exec(_) | Record::OfTask, _) => Ok(None),
            (Record::Lost(records), _) => {
                *lost += records;
                Ok(None)
            }
            (Record::Sample(_), None) | (Record::Unknown, _) => Err(Strange),
        };
        self.put(raw)
    }

    /// Writes the samples of recorded processes before `until`, up to which all rings have been
    /// read.
    pub(crate) fn settle(&mut self, until: u64) -> io::Result<()> {
        let Some(members) = self.samplers.as_ref().and_then(|samplers| samplers.members.clone()) else {
            return Ok(());
        };
        members.follow(until);
        while let (Some(record), Some(samplers)) = (self.waiting.front(), &mut self.samplers) {
            let of = samples::process_of(record);
            if of.is_some_and(|(_, time)| time >= until) {
                break;
            }
            let raw = match of {
                Some((process, time)) if members.has(process, time) => samplers.decode(record),
                Some(_) => Ok(None),
                None => Err(Strange),
            };
            self.waiting.pop_front();
            self.put(raw)?;
        }
        Ok(())
    }

    fn put(&mut self, raw: Result<Option<Raw>, Strange>) -> io::Result<()> {
        match raw {
            Ok(Some(raw)) if self.room.keeps(raw.time) => {
                self.room.write(&mut self.out, &spill::bytes_of(&raw))
            }
            Ok(_) => Ok(()),
            Err(Strange) => {
                self.strange.add();
                Ok(())
            }
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.room.flush(&mut self.out)
    }
}

/// Returns the raw events in the file of a kind for a CPU.
pub(crate) fn read(spill: &Spill, files: &str, cpu: u16) -> Result<Stream<'static>, Failure> {
    let events = spill::noted(&spill.path(&format!("{files}{cpu}")));
    let events = events.context("the temporary files beside the output")?;
    // These events are beside the others: without the last of them a recording is complete.
    Ok(Stream { events: Box::new(events), cut: false })
}

fn word(r: &[u8], at: usize) -> Option<u32> {
    r.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn long(r: &[u8], at: usize) -> Option<u64> {
    r.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Decodes the record of a mapping. `None` if the memory has no name.
fn mapping(r: &[u8]) -> Result<Option<Raw>, Strange> {
    if r.len() < MAPPING + TAIL {
        return Err(Strange);
    }
    decode_mapping(r).ok_or(Strange).map(|(raw, named)| named.then_some(raw))
}

/// Decodes the record of a mapping, and tells whether the memory has a name.
fn decode_mapping(r: &[u8]) -> Option<(Raw, bool)> {
    let tail = r.len() - TAIL;
    let path = r[MAPPING..tail].split(|&b| b == 0).next().unwrap_or_default();
    let (prot, flags) = (word(r, 64)?, word(r, 68)?);
    let misc = u32::from(u16::from_le_bytes([r[4], r[5]]));
    let has_build = misc & b::PERF_RECORD_MISC_MMAP_BUILD_ID != 0;
    let object = MappedObject {
        start: long(r, 16)? >> PAGE_SHIFT,
        pages: long(r, 24)? >> PAGE_SHIFT,
        offset: long(r, 32)?,
        executable: prot & u32::from(Prot::EXEC) != 0,
        shared: flags & libc::MAP_SHARED as u32 != 0,
        inode: if has_build { 0 } else { long(r, 48)? },
        build: if has_build { r[44..64][..usize::from(r[40].min(20))].to_vec() } else { Vec::new() },
        path: String::from_utf8_lossy(path).into_owned(),
    };
    let named = !object.is_nameless();
    let what = RawKind::Mapped(Box::new(object));
    let (time, cpu, pid) = (long(r, tail + 8)?, word(r, tail + 16)? as u16, word(r, tail + 4)? as i32);
    Some((Raw { time, cpu, pid, what }, named))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a mapping, as the kernel writes it.
    fn record(path: &str, build: bool) -> Vec<u8> {
        let mut r = vec![0; 16];
        let misc = if build { b::PERF_RECORD_MISC_MMAP_BUILD_ID as u16 } else { 0 };
        r[4..6].copy_from_slice(&misc.to_le_bytes());
        r.extend([0x7000_u64, 0x3000, 0x2000].iter().flat_map(|n| n.to_le_bytes()));
        if build {
            r.extend([20, 0, 0, 0]);
            r.extend([7; 20]);
        } else {
            r.extend([0; 8]);
            r.extend(99_u64.to_le_bytes());
            r.extend([0; 8]);
        }
        // PROT_READ and PROT_EXEC, MAP_PRIVATE
        r.extend([5_u32, 2].iter().flat_map(|n| n.to_le_bytes()));
        let mut path = path.as_bytes().to_vec();
        path.resize((path.len() + 8) & !7, 0);
        r.extend(path);
        r.extend([4_u32, 5].iter().flat_map(|n| n.to_le_bytes()));
        r.extend(1234_u64.to_le_bytes());
        r.extend([3_u32, 0].iter().flat_map(|n| n.to_le_bytes()));
        r
    }

    #[test]
    fn records_of_mappings_become_raw_events() {
        let raw = mapping(&record("/lib/libc.so.6", false)).expect("known").expect("a mapping");
        assert_eq!((raw.time, raw.cpu, raw.pid), (1234, 3, 5));
        let RawKind::Mapped(object) = raw.what else { panic!("{raw:?}") };
        assert_eq!((object.start, object.pages, object.offset), (7, 3, 0x2000));
        assert_eq!((object.inode, object.executable, object.shared), (99, true, false));
        assert_eq!((&*object.path, &object.build[..]), ("/lib/libc.so.6", &[][..]));
        let raw = mapping(&record("/x", true)).expect("known").expect("a mapping");
        let RawKind::Mapped(object) = raw.what else { panic!("{raw:?}") };
        assert_eq!((object.inode, object.build), (0, vec![7; 20]));
    }

    #[test]
    fn unnamed_memory_is_left_out_and_a_cut_record_is_strange() {
        assert_eq!(mapping(&record("//anon", false)), Ok(None));
        let whole = record("/x", false);
        for len in 0..MAPPING + TAIL {
            assert_eq!(mapping(&whole[..len.min(whole.len())]), Err(Strange));
        }
    }
}
