use super::*;
use ptarmigan_trace::{AreaKind, CloneKind, Name, Prot};

const FAULT: Kind = Kind::Fault { page: 7, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
const COPY: Kind =
    Kind::Fault { page: 7, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE | FaultFlags::PRESENT) };
const MUNMAP: Kind = Kind::Munmap { start: 1, pages: 40 };
const DONTNEED: Kind = Kind::Madvise { start: 1, pages: 40, advice: 4 };
const EXEC: Kind = Kind::Exec { stack_end: 1 << 30, arg_pages: 1 };
const FORK: Kind = Kind::Clone { child: 1, kind: CloneKind::Fork };

fn flush(reason: u8, pages: u64) -> Kind {
    Kind::TlbFlush { pages, reason }
}

fn survey(events: &[Kind]) -> LinuxFlushes {
    let mut survey = FlushSurvey::default();
    events.iter().for_each(|kind| survey.see(&Event { task: 0, cpu: 0, kind: *kind }));
    survey.finish()
}

/// The causes with their flushes that were carried out, and their requests.
fn causes(events: &[Kind]) -> Vec<(Cause, [u64; 3], [u64; 3])> {
    let rows = survey(events).by_cause.into_iter();
    rows.map(|row| (row.cause, row.carried_out.by_size(), row.requested.by_size())).collect()
}

#[test]
fn each_reason_is_counted_as_what_it_says() {
    let of = |reason| {
        let sums = survey(&[COPY, flush(reason, 0), flush(reason, 1), flush(reason, 9)]);
        let sizes = [sums.carried_out, sums.requested, sums.for_others].map(|flushes| flushes.by_size());
        (sizes, sums.wrong_cpu, sums.at_switches, sums.unknown.len())
    };
    let (none, each) = ([0; 3], [1; 3]);
    assert_eq!(of(0), ([none, none, none], 0, 3, 0), "a switch");
    assert_eq!(of(1), ([none, none, each], 0, 0, 0), "for another CPU");
    assert_eq!(of(2), ([each, none, none], 0, 0, 0), "of all spaces");
    assert_eq!(of(3), ([each, none, none], 0, 0, 0), "of one space");
    assert_eq!(of(4), ([none, each, none], 0, 0, 0), "a request");
    assert_eq!(of(5), ([none, none, none], 3, 0, 0), "the wrong CPU");
    assert_eq!(of(6), ([none, none, none], 0, 0, 1), "a later version's");
}

#[test]
fn an_unknown_reason_is_named_and_counted_nowhere() {
    let sums = survey(&[COPY, flush(9, 0), flush(9, 0), flush(3, 1)]);
    assert_eq!((sums.carried_out.by_size(), sums.calls.carried_out.total()), ([1, 0, 0], 0));
    let [line] = &sums.remarks()[..] else { panic!("{sums:?}") };
    assert_eq!(line, "flushes for reason 9, which is not known: 2 events left out");
}

#[test]
fn a_flush_belongs_to_its_call_and_a_page_to_its_fault() {
    let events = [MUNMAP, flush(4, 0), flush(3, 0), COPY, flush(4, 1), flush(3, 1), FAULT];
    assert_eq!(
        causes(&events),
        [(Cause::Fault, [1, 0, 0], [1, 0, 0]), (Cause::Munmap, [0, 0, 1], [0, 0, 1])]
    );
    let sums = survey(&events);
    assert_eq!((sums.calls.carried_out.by_size(), sums.calls.requested.by_size()), ([0, 0, 1], [0, 0, 1]));
}

#[test]
fn a_fault_flushes_no_more_than_its_page() {
    // The event of madvise stands at its end, behind its flushes.
    let range = [COPY, flush(3, 1), flush(3, 1), flush(3, 9), DONTNEED];
    assert_eq!(causes(&range), [(Cause::Fault, [1, 0, 0], [0; 3]), (Cause::Madvise, [1, 1, 0], [0; 3])]);
    let absent = [FAULT, flush(3, 1), DONTNEED];
    assert_eq!(causes(&absent), [(Cause::Madvise, [1, 0, 0], [0; 3])]);
}

#[test]
fn a_fork_flushes_once_before_its_event_or_behind_it() {
    let before = [COPY, flush(3, 1), flush(4, 0), flush(3, 0), FORK, COPY, flush(3, 0), FORK];
    assert_eq!(causes(&before), [(Cause::Fault, [1, 0, 0], [0; 3]), (Cause::Fork, [0, 0, 2], [0, 0, 1])]);
    let behind = [COPY, FORK, flush(4, 0), flush(3, 0), MUNMAP, flush(3, 0), FORK, flush(3, 0), FAULT];
    assert_eq!(causes(&behind), [(Cause::Fork, [0, 0, 2], [0, 0, 1]), (Cause::Munmap, [0, 0, 1], [0; 3])]);
    let after_a_call = [MUNMAP, flush(3, 9), flush(3, 0), FORK];
    assert_eq!(causes(&after_a_call), [(Cause::Fork, [0, 0, 1], [0; 3]), (Cause::Munmap, [0, 1, 0], [0; 3])]);
}

#[test]
fn an_execve_ends_with_its_heap_and_its_name() {
    let area = Kind::Area { start: 1, pages: 1, prot: Prot(1), kind: AreaKind::File };
    let name = Kind::Name(Name::new("cc1"));
    let events = [EXEC, area, Kind::Brk { end: 9 }, name, flush(3, 9), flush(3, 0), FAULT];
    assert_eq!(causes(&events), [(Cause::Exec, [0, 1, 1], [0; 3])]);
    let grown = [EXEC, Kind::Brk { end: 9 }, FAULT, Kind::Brk { end: 8 }, flush(3, 1)];
    assert_eq!(causes(&grown), [(Cause::Brk, [1, 0, 0], [0; 3])]);
}

#[test]
fn requests_are_those_of_the_program_that_sent_them() {
    let named = |name| Kind::Name(Name::new(name));
    let events = [
        EXEC,
        named("a"),
        COPY,
        flush(4, 1),
        EXEC,
        named("b"),
        MUNMAP,
        flush(4, 0),
        DONTNEED,
        COPY,
        flush(4, 1),
        COPY,
        flush(4, 1),
    ];
    let rows = survey(&events).requests;
    let rows: Vec<_> = rows.iter().map(|row| (&*row.program, row.cause, row.requested.by_size())).collect();
    assert_eq!(
        rows,
        [("b", Cause::Fault, [2, 0, 0]), ("a", Cause::Fault, [1, 0, 0]), ("b", Cause::Munmap, [0, 0, 1])]
    );
}
