use super::*;
use ptarmigan_trace::{
    Call, Cause, CloneKind, Header, MapFlags, Method, Name, Note, Place, Prot, Reader, Writer,
};

/// Writes events with `fill` and adds them up.
fn work(fill: impl FnOnce(&mut dyn FnMut(u32, Kind), Note, Note)) -> Work {
    let header = Header::new("t", 1, Method::Synthetic);
    let mut writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
    let [work, main, file] = ["work", "main", "work.c"].map(|name| writer.text(name).expect("a name"));
    let place = Place { function: Some(main), file: Some(file), line: 3, ..Place::default() };
    let caller = Some(writer.place(place).expect("a place"));
    let place = Place { function: Some(work), line: 9, caller, ..place };
    let place = Some(writer.place(place).expect("a place"));
    let faults = Note::Caller { cause: Cause::Fault, page: 0, events: 10, place };
    let forks = Note::Caller { cause: Cause::Call(Call::Fork), page: 0, events: 1, place: caller };
    let mut write = |task, kind| writer.event(&Event { task, cpu: 0, kind }).expect("a good event");
    fill(&mut write, faults, forks);
    let (bytes, _) = writer.finish(0).expect("memory");
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    let mut survey = WorkSurvey::default();
    for event in reader.by_ref() {
        survey.see(&event.expect("an event"));
    }
    survey.finish(reader.symbols())
}

fn fault(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) }
}

fn anonymous(start: u64, pages: u64) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) }
}

const EXEC: Kind = Kind::Exec { stack_end: 1 << 30, arg_pages: 0 };

#[test]
fn faults_belong_to_mappings_of_programs() {
    let work = work(|event, _, _| {
        for base in [512, 512 * 50] {
            event(0, EXEC);
            event(0, Kind::Name(Name::new("prog")));
            event(0, anonymous(base, 1024));
            (0..600).for_each(|page| event(0, fault(base + page)));
            event(0, Kind::Munmap { start: base, pages: 1024 });
            event(0, anonymous(base, 1024));
            event(0, fault(base));
            event(0, fault(3));
        }
    });
    let [all, unknown] = &work.mappings[..] else { panic!("{work:?}") };
    assert_eq!((&*all.program, all.kind, all.faults, all.tables), ("prog", "anonymous", 1202, None));
    assert_eq!((all.mappings, all.bytes, all.address.as_deref()), (4, 1024 << 12, Some("0x200000")));
    assert_eq!((unknown.kind, unknown.faults, &unknown.address), ("unknown", 2, &None));
    assert!((all.share - 1202.0 / 1204.0).abs() < 1e-9);
}

#[test]
fn samples_stand_for_all_faults_of_their_program() {
    let work = work(|event, faults, _| {
        event(0, EXEC);
        event(0, Kind::Name(Name::new("prog")));
        (0..55).for_each(|page| event(0, fault(page)));
        (0..4).for_each(|_| event(0, Kind::Note(faults)));
        event(0, Kind::Note(Note::Caller { cause: Cause::Fault, page: 0, events: 10, place: None }));
    });
    let [known, unknown] = &work.functions[..] else { panic!("{work:?}") };
    assert_eq!((&*known.label(), known.events, known.work), ("work (work.c:9)", 44, "fault"));
    assert_eq!(known.callers, ["main"]);
    assert_eq!((&*unknown.label(), unknown.events), ("caller unknown", 11));
    assert!((known.share - 0.8).abs() < 1e-9);
}

#[test]
fn forks_have_the_seconds_that_they_took() {
    let took = |call, nanos| Kind::Note(Note::Took { call, nanos, away: 5 });
    let work = work(|event, _, forks| {
        for child in 1..=2 {
            event(0, Kind::Note(forks));
            event(0, Kind::Clone { child, kind: CloneKind::Fork });
            event(0, took(Call::Fork, 250_000_000));
        }
        // Not that of a fork whose caller is known.
        event(0, took(Call::Fork, 7));
        event(0, Kind::Note(forks));
        event(0, took(Call::Mmap, 7));
    });
    let [forks] = &work.functions[..] else { panic!("{work:?}") };
    assert_eq!((forks.work, forks.events, forks.seconds), ("fork", 3, Some(0.5)));
    assert_eq!((&*forks.label(), &forks.callers[..]), ("main (work.c:3)", &[][..]));
}

#[test]
fn rows_that_are_left_out_are_summed_in_the_last() {
    let row =
        |faults| MappingWork { faults, share: 0.25, tables: Some(1), mappings: 2, ..MappingWork::default() };
    let mut work = Work { mappings: [4, 3, 2, 1].map(row).to_vec(), functions: Vec::new() };
    work.shorten(4);
    assert_eq!(work.mappings.len(), 4);
    work.shorten(2);
    let [first, rest] = &work.mappings[..] else { panic!("{work:?}") };
    assert_eq!((first.faults, &*rest.program, rest.faults, rest.tables), (4, "others", 6, Some(3)));
    assert_eq!((rest.mappings, rest.share), (6, 0.75));
}
