//! Rows see each event once, in order, and one that fails costs its own answer only.
use super::*;
use crate::input::trace::Trace;
use crate::linux::Blocks;
use crate::model::page_prices::PriceSet;
use crate::setup::SoloTrace;
use ptarmigan_trace::{CloneKind, Event, FaultFlags, Header, Kind, MapFlags, Method, Prot, Writer};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const START: u64 = 1 << 27;
const WRITE: FaultFlags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER);
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a recording of these events of tasks.
pub fn recording(events: &[(u32, Kind)]) -> SoloTrace {
    SoloTrace::new(trace(events))
}

fn trace(events: &[(u32, Kind)]) -> Trace {
    let mut writer = Writer::new(Vec::new(), &Header::new("app", 1, Method::Synthetic), 3).unwrap();
    for &(task, kind) in events {
        writer.event(&Event { task, cpu: 0, kind }).unwrap();
    }
    Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap()
}

/// A mapping of private memory.
pub fn map(start: u64, pages: u64) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) }
}

/// A write that faults.
pub fn write(page: u64) -> Kind {
    Kind::Fault { page, flags: WRITE }
}

/// The end of a task.
pub const END: Kind = Kind::Exit { last: true };

/// Prices a recording with one row.
pub fn answer<'r>(events: &[(u32, Kind)], row: impl Row + 'r) -> Result<Answer, String> {
    let prices = PriceSet { reused: 1.0, ..PriceSet::default() };
    let solo = recording(events);
    price(&solo, 1 << 28, vec![Box::new(row)], &prices, LIMIT).unwrap().rows.remove(0).answer
}

const ABOUT: About = About { name: "test", title: "test", reference: "none", claim: "none" };

/// Writes down all that it sees.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Row for Log {
    fn about(&self) -> About {
        ABOUT
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let pages = |effect: &Effect| match *effect {
            Effect::Mapped { start, pages } => Some(format!("+{}x{pages}", start - START)),
            Effect::Unmapped { start, pages } => Some(format!("-{}x{pages}", start - START)),
            Effect::Moved { from, to, pages } => Some(format!("{}>{}x{pages}", from - START, to - START)),
            Effect::TableCopied { entries, .. } => Some(format!("copy {entries}")),
            Effect::Ended => Some("end".to_owned()),
            _ => None,
        };
        let effects: Vec<_> = moment.effects.iter().filter_map(pages).collect();
        let line = format!("{:?} {} {}", moment.space, moment.event.kind.name(), effects.join(" "));
        self.0.lock().unwrap().push(line.trim_end().to_owned());
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        Err(format!("{} faults, {} forks, {:?} spaces", whole.faults, whole.forks, whole.spaces))
    }
}

#[test]
fn a_row_sees_each_event_with_its_effects() {
    let fork = Kind::Clone { child: 1, kind: CloneKind::Fork };
    let shrink = Kind::Mremap { from: START, old_pages: 8, to: START + 1024, new_pages: 2, keep: false };
    let events = [
        (0, map(START, 8)),
        (0, write(START)),
        (0, write(START + 1)),
        (0, Kind::TlbFlush { pages: 1, reason: 3 }),
        (0, write(START + 5)),
        (0, fork),
        (1, write(START)),
        (1, Kind::Madvise { start: START + 1, pages: 7, advice: libc::MADV_DONTNEED as u16 }),
        (0, shrink),
        (1, END),
        (0, END),
    ];
    let log = Log::default();
    let whole = answer(&events, log.clone()).unwrap_err();
    assert_eq!(whole, "4 faults, 1 forks, (2, 2) spaces");
    assert_eq!(
        *log.0.lock().unwrap(),
        [
            "Some(0) mmap",
            "Some(0) fault +0x1",
            "Some(0) fault +1x1",
            "None tlb-flush",
            "Some(0) fault +5x1",
            "Some(0) clone copy 3",
            "Some(1) fault",
            "Some(1) madvise -1x1 -5x1",
            "Some(0) mremap -5x1 0>1024x2",
            "Some(1) exit end",
            "Some(0) exit end",
        ]
    );
}

#[test]
fn blocks_of_the_recorded_kernel_are_mapped() {
    let blocks = Blocks::new(&[16, 64], &[]);
    // 16 pages at once, 4 where a page is there already, one at a read and at the area's end.
    let read = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) };
    let events = [
        (0, map(START, 34)),
        (0, write(START + 3)),
        (0, read(START + 31)),
        (0, write(START + 17)),
        (0, write(START + 33)),
        (0, END),
    ];
    let log = Log::default();
    let solo = SoloTrace::new(Trace { blocks, ..trace(&events) });
    let rows: Vec<Box<dyn Row>> = vec![Box::new(log.clone())];
    price(&solo, 1 << 28, rows, &PriceSet::default(), LIMIT).unwrap();
    assert_eq!(
        log.0.lock().unwrap()[1..5],
        ["Some(0) fault +0x16", "Some(0) fault +31x1", "Some(0) fault +16x4", "Some(0) fault +33x1"]
    );
}

/// Panics, sleeps, or answers with a figure that is none.
enum Bad {
    Panics,
    Sleeps,
    Divides,
}

impl Row for Bad {
    fn about(&self) -> About {
        ABOUT
    }

    fn event(&mut self, _: &Moment<'_>) {
        match self {
            Bad::Panics => panic!("no"),
            Bad::Sleeps => std::thread::sleep(Duration::from_millis(30)),
            Bad::Divides => {}
        }
    }

    fn answer(&mut self, _: &Whole<'_>) -> Result<Answer, String> {
        let mut answer = Answer::default();
        answer.figure("a share", f64::NAN, "%");
        Ok(answer)
    }
}

#[test]
fn a_bad_row_costs_its_own_answer_only() {
    let solo = recording(&[(0, map(START, 8)), (0, write(START)), (0, write(START + 1)), (0, END)]);
    let rows: Vec<Box<dyn Row>> =
        vec![Box::new(Bad::Panics), Box::new(Bad::Sleeps), Box::new(Bad::Divides), Box::new(Log::default())];
    let limit = Duration::from_millis(20);
    let priced = price(&solo, 1 << 28, rows, &PriceSet::default(), limit).unwrap();
    let answers: Vec<_> = priced.rows.into_iter().map(|one| one.answer.unwrap_err()).collect();
    assert!(answers[0].starts_with("it panicked at step 0: no ("), "{}", answers[0]);
    assert!(answers[1].starts_with("it took more than"), "{}", answers[1]);
    assert_eq!(answers[2], "its figure \"a share\" is NaN");
    assert_eq!(answers[3], "2 faults, 0 forks, (1, 1) spaces");
}
