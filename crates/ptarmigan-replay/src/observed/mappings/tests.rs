use super::*;
use crate::input::trace::{PackedEvent, PackedKind, Trace};
use ptarmigan_trace::{FaultFlags, Header, Method, Reader, Writer};

const ANON: u16 = MapFlags::ANON;

fn mmap(start: u64, pages: u64, flags: u16) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(flags) }
}

fn fault(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) }
}

fn tracker(events: &[(u32, Kind)]) -> MappingTracker {
    let mut tracker = MappingTracker::default();
    events.iter().for_each(|&(task, kind)| tracker.see(&Event { task, cpu: 0, kind }));
    tracker
}

/// The kinds of pages in the space of the first task.
fn kinds<const N: usize>(events: &[Kind], pages: [u64; N]) -> [Option<MappingKind>; N] {
    let events: Vec<_> = events.iter().map(|kind| (0, *kind)).collect();
    let tracker = tracker(&events);
    pages.map(|page| tracker.at(0, page).map(|mapping| mapping.kind))
}

#[test]
fn calls_tell_kinds_without_notes() {
    use MappingKind::{Anonymous, File, SharedMemory, ThreadStack};
    let events = [
        mmap(10, 2, ANON),
        mmap(20, 2, 0),
        mmap(30, 2, ANON | MapFlags::SHARED),
        mmap(40, 2, ANON | MapFlags::NO_HUGE),
        mmap(50, 2, ANON | MapFlags::SHARED | MapFlags::SEGMENT),
    ];
    let expected = [Some(Anonymous), Some(File), Some(SharedMemory), Some(ThreadStack), Some(SharedMemory)];
    assert_eq!(kinds(&events, [11, 21, 31, 41, 51]), expected);
    assert_eq!(kinds(&events, [9, 12, 52]), [None; 3]);
}

#[test]
fn a_note_tells_the_object_of_the_pages_that_it_is_about() {
    let object = Object::Library;
    let note = Kind::Note(Note::Mapped { start: 22, pages: 2, object, name: None });
    let kinds = kinds(&[mmap(20, 8, 0), note], [21, 22, 23, 24]);
    assert_eq!(
        kinds.map(|kind| kind.map(MappingKind::name)),
        ["file", "library", "library", "file"].map(Some)
    );
}

#[test]
fn areas_from_before_the_recording_are_of_all_kinds_until_noted() {
    let exec = |arg_pages| Kind::Exec { stack_end: 1 << 30, arg_pages };
    let area = |start, kind| Kind::Area { start, pages: 4, prot: Prot(3), kind };
    let areas = [area(10, AreaKind::File), area(20, AreaKind::Anon), area(30, AreaKind::File)];
    let note = Kind::Note(Note::Mapped { start: 30, pages: 4, object: Object::Program, name: None });
    let of = |arg_pages| kinds(&[&[exec(arg_pages)], &areas[..], &[note]].concat(), [10, 20, 30]);
    let names = |kinds: [Option<MappingKind>; 3]| kinds.map(|kind| kind.map_or("", MappingKind::name));
    assert_eq!(names(of(0)), ["file", "anonymous", "program"]);
    assert_eq!(names(of(1)), ["program", "zeroed data", "program"]);
    // The program that it starts is an ordinary one.
    let next = [&[exec(0), exec(1)], &areas[..]].concat();
    assert_eq!(names(kinds(&next, [10, 20, 30])), ["program", "zeroed data", "program"]);
}

#[test]
fn the_heap_grows_and_shrinks() {
    let brk = |end| Kind::Brk { end };
    let heap = Some(MappingKind::Heap);
    assert_eq!(kinds(&[brk(100)], [99, 100]), [None; 2]);
    assert_eq!(kinds(&[brk(100), brk(110)], [100, 109, 110]), [heap, heap, None]);
    assert_eq!(kinds(&[brk(100), brk(110), brk(104), brk(106)], [103, 105, 106]), [heap, heap, None]);
    assert_eq!(kinds(&[brk(100), brk(110), brk(90)], [100, 105]), [None; 2]);
}

#[test]
fn a_hole_leaves_both_sides_with_one_number() {
    let tracker = tracker(&[(0, mmap(10, 10, ANON)), (0, Kind::Munmap { start: 12, pages: 2 })]);
    let (low, high) = (tracker.at(0, 11).expect("mapped"), tracker.at(0, 14).expect("mapped"));
    assert_eq!((low.start, low.end, high.start, high.end), (10, 12, 14, 20));
    assert_eq!(low.number, high.number);
    assert_eq!(tracker.at(0, 13), None);
}

#[test]
fn mremap_moves_what_is_known() {
    let name = None;
    let note = Kind::Note(Note::Mapped { start: 20, pages: 4, object: Object::SharedMemory, name });
    let moved = |keep| Kind::Mremap { from: 20, old_pages: 4, to: 60, new_pages: 8, keep };
    let shared = Some(MappingKind::SharedMemory);
    let events = |keep| [mmap(20, 4, 0), note, moved(keep)];
    assert_eq!(kinds(&events(false), [20, 60, 63, 67, 68]), [None, shared, shared, shared, None]);
    assert_eq!(kinds(&events(true), [20, 63]), [shared; 2]);
    let shrunk = Kind::Mremap { from: 20, old_pages: 4, to: 20, new_pages: 1, keep: false };
    assert_eq!(kinds(&[mmap(20, 4, 0), note, shrunk], [20, 21]), [shared, None]);
    let grown = Kind::Mremap { from: 20, old_pages: 4, to: 20, new_pages: 6, keep: false };
    assert_eq!(kinds(&[mmap(20, 4, 0), note, grown], [25, 26]), [shared, None]);
}

#[test]
fn a_stack_grows_to_its_limit() {
    let area = Kind::Area { start: 10_000, pages: 10, prot: Prot(3), kind: AreaKind::Stack };
    let stack = Some(MappingKind::Stack);
    assert_eq!(kinds(&[area], [9_999, 10_010 - 2048, 10_009 - 2048]), [stack, stack, None]);
    assert_eq!(kinds(&[area, Kind::StackLimit { pages: 20 }], [9_991, 9_989]), [stack, None]);
}

#[test]
fn a_stack_is_that_of_the_thread_that_uses_it() {
    let stack = ANON | MapFlags::NO_HUGE;
    let clone = Kind::Clone { child: 1, kind: CloneKind::Share };
    // The first thread writes to it before the other one runs.
    let tracker = tracker(&[(0, mmap(10, 8, stack)), (0, fault(17)), (0, clone), (1, fault(16))]);
    let mapping = tracker.at(0, 10).expect("mapped");
    assert_eq!(mapping.thread, Some(1));
    assert_eq!(mapping.label(&Symbols::default()), "stack of thread 1");
}

#[test]
fn a_fork_has_its_parents_mappings_and_changes_only_its_own() {
    let fork = Kind::Clone { child: 1, kind: CloneKind::Fork };
    let gone = Kind::Munmap { start: 10, pages: 4 };
    let mut tracker = tracker(&[(0, mmap(10, 4, ANON)), (0, fork), (1, gone)]);
    assert_eq!((tracker.space(0), tracker.space(1)), (Some(0), Some(1)));
    assert!(tracker.at(0, 10).is_some() && tracker.at(1, 10).is_none());
    tracker.see(&Event { task: 1, cpu: 0, kind: Kind::Exec { stack_end: 99, arg_pages: 0 } });
    assert_eq!(tracker.space(1), Some(2));
    assert!(tracker.map_of(1).is_none());
    tracker.see(&Event { task: 1, cpu: 0, kind: Kind::Exit { last: true } });
    assert_eq!(tracker.at(1, 10), None);
}

#[test]
fn pages_are_found_at_their_time() {
    let header = Header::new("t", 1, Method::Synthetic);
    let mut writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
    let kinds = [mmap(10, 4, ANON), fault(11), Kind::Munmap { start: 10, pages: 4 }, mmap(10, 4, 0)];
    for kind in kinds.into_iter().chain([Kind::Exit { last: true }]) {
        writer.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
    }
    let (bytes, _) = writer.finish(0).expect("memory");
    assert_eq!(Reader::new(&bytes[..]).expect("a header").count(), 5);
    let trace = Trace::from_bytes(&bytes, "t").expect("a trace");
    assert!(matches!(trace.steps[1], PackedEvent { what: PackedKind::Fault { page: 11, .. }, .. }));
    let asked = [4, 0, 2, 1].map(|step| PageAt { step, space: 0, page: 11 });
    let kinds: Vec<_> = trace.mappings_of(&asked).into_iter().map(|m| m.map(|m| m.kind)).collect();
    assert_eq!(
        kinds,
        [Some(MappingKind::File), Some(MappingKind::Anonymous), None, Some(MappingKind::Anonymous)]
    );
}
