//! Moves a recording to the address space of another format, whose addresses have fewer bits.
//!
//! A *region* is the range that one table of the lowest level maps in that format. A program, from
//! its `execve` to the end of the last task that inherited its space, has one layout, because
//! forked tasks keep their parent's addresses.
//!
//! 1. One recorded page is one page, at the same place in its region. So every recorded area has
//!    as many pages as before, and every region of it has the same entries in use.
//! 2. Regions with something in them keep their order. Regions that follow each other stay
//!    together.
//! 3. A gap of one or more regions becomes a gap of one. So areas with separate tables keep
//!    separate tables, and the tables of the upper level are the only ones that become fuller.
//!
//! Linux's counts of tables are of another format: they are left out. Where pages are larger, too,
//! the result is rounded to them afterwards (`round`).
use super::trace::{PackedEvent, PackedKind, Trace};
use ptarmigan_term::{Bytes, Failure};
use ptarmigan_trace::Kind;
use serde::Serialize;

/// The user's half of a format.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The name of the format.
    pub format: &'static str,
    /// Binary logarithm of the recorded pages in a region.
    pub shift: u32,
    /// The number of regions.
    pub regions: u64,
}

/// Counts of the move.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Relayout {
    /// The name of the format.
    pub format: &'static str,
    /// Programs with a layout of their own.
    pub programs: u64,
    /// MiB that one table of the lowest level maps.
    pub region_mib: u64,
    /// The most such regions in use by a program.
    pub most_in_use: u64,
    /// The most regions up to the end of a program's last area.
    pub most_regions: u64,
    /// All regions of the user's half.
    pub regions: u64,
}

const NONE: u32 = u32::MAX;

/// Consecutive regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
}

/// Consecutive regions and the first of those that they become.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: Span,
    to: u64,
}

/// One program.
#[derive(Default)]
struct Program {
    /// The event and the task that began it.
    origin: (u32, u32),
    spans: Vec<Span>,
    /// Where the heap begins.
    heap: Option<u64>,
    /// The largest area: pages and first page.
    largest: (u64, u64),
    moves: Vec<Move>,
}

impl Program {
    /// Notes that the program uses pages.
    fn uses(&mut self, room: Room, start: u64, pages: u64) {
        if pages > 0 {
            let last = start.saturating_add(pages - 1);
            let span = Span { first: start >> room.shift, last: last >> room.shift };
            self.largest = self.largest.max((pages, start));
            // Faults follow each other.
            if self.spans.last() != Some(&span) {
                self.spans.push(span);
            }
        }
    }

    /// Notes the first and the last page of a range, but not the pages between.
    fn names(&mut self, room: Room, start: u64, pages: u64) {
        if pages > 0 {
            self.uses(room, start, 1);
            self.uses(room, start.saturating_add(pages - 1), 1);
        }
    }

    /// Lays the regions out. Returns how many are in use, and where the last one ends.
    fn pack(&mut self) -> (u64, u64) {
        self.spans.sort_unstable_by_key(|span| span.first);
        let (mut used, mut end) = (0, 0);
        let mut merged: Vec<Span> = Vec::new();
        for span in std::mem::take(&mut self.spans) {
            match merged.last_mut().filter(|last| span.first <= last.last.saturating_add(1)) {
                Some(last) => last.last = last.last.max(span.last),
                None => merged.push(span),
            }
        }
        for from in merged {
            let gap = self.moves.last().map_or(from.first > 0, |_| true);
            let (to, regions) = (end + u64::from(gap), from.last - from.first + 1);
            self.moves.push(Move { from, to });
            (used, end) = (used + regions, to + regions);
        }
        (used, end)
    }

    /// Returns where a page is now. Pages that nobody noted stay where they were.
    fn page(&self, room: Room, page: u64) -> u64 {
        let region = page >> room.shift;
        let at = self.moves.partition_point(|m| m.from.last < region);
        match self.moves.get(at).filter(|m| m.from.first <= region) {
            Some(m) => (region - m.from.first + m.to) << room.shift | page & ((1 << room.shift) - 1),
            None => page,
        }
    }

    /// Returns where a range of pages is now: its first page and the first one after it.
    fn range(&self, room: Room, start: u64, pages: u64) -> (u64, u64) {
        let first = self.page(room, start);
        let last = pages.checked_sub(1).map(|more| self.page(room, start.saturating_add(more)));
        (first, last.map_or(first, |last| last + 1))
    }
}

/// The program that each task runs. Programs are numbered in the order in which they begin.
pub struct Tasks {
    of: Vec<u32>,
    programs: u32,
}

impl Tasks {
    /// Returns the tasks at the start of a trace: task 0 runs program 0.
    pub fn new(trace: &Trace) -> Self {
        let mut of = vec![NONE; trace.tasks as usize];
        of[0] = 0;
        Tasks { of, programs: 1 }
    }

    /// Returns the program that an event is about: the new one, for an `execve`. Events come in
    /// order, all of them.
    pub fn step(&mut self, trace: &Trace, step: &PackedEvent) -> Option<u32> {
        let task = step.task as usize;
        let program = self.of[task];
        if program == NONE {
            return None;
        }
        let PackedKind::Rare(rare) = step.what else { return Some(program) };
        match trace.rare[rare as usize] {
            Kind::Clone { child, .. } => self.of[child as usize] = program,
            Kind::Exit { .. } => self.of[task] = NONE,
            Kind::Exec { .. } => {
                self.of[task] = self.programs;
                self.programs += 1;
                return Some(self.of[task]);
            }
            _ => {}
        }
        Some(program)
    }
}

impl Trace {
    /// Moves the trace to the address space of a format.
    ///
    /// # Errors
    /// If the areas of a program do not fit, with the largest of them.
    pub fn relayout(&mut self, room: Room) -> Result<Relayout, Failure> {
        let mut programs = self.survey(room);
        let bytes = |regions: u64| Bytes(regions << (room.shift + 12));
        let mut report = Relayout {
            format: room.format,
            programs: programs.len() as u64,
            region_mib: bytes(1).mib(),
            most_in_use: 0,
            most_regions: 0,
            regions: room.regions,
        };
        for program in &mut programs {
            let (used, end) = program.pack();
            if end > room.regions {
                let ((event, task), (pages, start)) = (program.origin, program.largest);
                return Err(Failure::new(format!(
                    "{}: the program that task {task} began at event {event} needs {} MiB for its areas and \
                     the gaps between them, and {} has {} MiB for the user; its largest area has {} MiB, at \
                     {:#x}",
                    self.name,
                    bytes(end).mib(),
                    room.format,
                    bytes(room.regions).mib(),
                    Bytes(pages << 12).mib(),
                    u128::from(start) << 12,
                )));
            }
            report.most_in_use = report.most_in_use.max(used);
            report.most_regions = report.most_regions.max(end);
        }
        self.move_to(room, &programs);
        Ok(report)
    }

    /// Collects the regions that each program uses.
    fn survey(&self, room: Room) -> Vec<Program> {
        let mut tasks = Tasks::new(self);
        let mut programs = vec![Program::default()];
        for (step, event) in self.steps.iter().zip(0_u32..) {
            let Some(number) = tasks.step(self, step) else { continue };
            if number as usize == programs.len() {
                programs.push(Program { origin: (event, step.task), ..Program::default() });
            }
            let program = &mut programs[number as usize];
            let rare = match step.what {
                PackedKind::Fault { page, .. } => {
                    program.uses(room, page, 1);
                    continue;
                }
                PackedKind::Rare(rare) => self.rare[rare as usize],
                PackedKind::Idle => continue,
            };
            match rare {
                Kind::Exec { stack_end, arg_pages } => {
                    let pages = u64::from(arg_pages.max(1));
                    program.uses(room, stack_end.saturating_sub(pages), pages);
                }
                Kind::Area { start, pages, .. } | Kind::Mmap { start, pages, .. } => {
                    program.uses(room, start, pages);
                }
                Kind::Brk { end } => {
                    let start = *program.heap.get_or_insert(end);
                    // A heap without pages has a place, too.
                    program.uses(room, start.min(end), start.abs_diff(end).max(1));
                    program.uses(room, end.saturating_sub(1), 1);
                }
                Kind::Mremap { from, old_pages, to, new_pages, .. } => {
                    program.uses(room, from, old_pages);
                    program.uses(room, to, new_pages);
                }
                kind => {
                    if let Some((start, pages)) = kind.range() {
                        program.names(room, start, pages);
                    }
                }
            }
        }
        programs
    }

    fn move_to(&mut self, room: Room, programs: &[Program]) {
        let mut tasks = Tasks::new(self);
        let mut steps = std::mem::take(&mut self.steps);
        steps.retain_mut(|step| {
            let Some(number) = tasks.step(self, step) else { return true };
            let program = &programs[number as usize];
            match &mut step.what {
                PackedKind::Fault { page, .. } => *page = program.page(room, *page),
                PackedKind::Idle => {}
                PackedKind::Rare(rare) => {
                    let kind = &mut self.rare[*rare as usize];
                    if let Kind::Truth { .. } = kind {
                        return false;
                    }
                    move_call(room, program, kind);
                }
            }
            true
        });
        self.steps = steps;
    }
}

fn move_call(room: Room, program: &Program, kind: &mut Kind) {
    let range = |start: u64, pages: u64| {
        let (first, end) = program.range(room, start, pages);
        (first, end - first)
    };
    if let Some((start, pages)) = kind.range() {
        let (start, pages) = range(start, pages);
        *kind = kind.with_range(start, pages);
    }
    match kind {
        Kind::Exec { stack_end, .. } => *stack_end = program.page(room, stack_end.saturating_sub(1)) + 1,
        Kind::Brk { end } => *end = program.page(room, end.saturating_sub(1)) + 1,
        Kind::Mremap { to, new_pages, .. } => (*to, *new_pages) = range(*to, *new_pages),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{AreaKind, CloneKind, Event, FaultFlags, Header, MapFlags, Method, Prot, Writer};

    const ROOM: Room = Room { format: "small", shift: 10, regions: 12 };
    const HIGH: u64 = 0x7_ffff_ffff;

    fn trace(kinds: &[(u32, Kind)]) -> Trace {
        let header = Header::new("test", 1, Method::Synthetic);
        let mut writer = Writer::new(Vec::new(), &header, 3).unwrap();
        for (task, kind) in kinds {
            writer.event(&Event { task: *task, cpu: 0, kind: *kind }).unwrap();
        }
        Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap()
    }

    fn map(start: u64, pages: u64) -> Kind {
        Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) }
    }

    fn fault(page: u64) -> Kind {
        Kind::Fault { page, flags: FaultFlags(FaultFlags::WRITE) }
    }

    /// The faults and the areas of a trace, in order.
    fn places(trace: &Trace) -> Vec<(u64, u64)> {
        let place = |step: &PackedEvent| match step.what {
            PackedKind::Fault { page, .. } => Some((page, 1)),
            PackedKind::Rare(rare) => match trace.rare[rare as usize] {
                Kind::Mmap { start, pages, .. }
                | Kind::Area { start, pages, .. }
                | Kind::Munmap { start, pages } => Some((start, pages)),
                Kind::Brk { end } | Kind::Exec { stack_end: end, .. } => Some((end, 0)),
                _ => None,
            },
            PackedKind::Idle => None,
        };
        trace.steps.iter().filter_map(place).collect()
    }

    #[test]
    fn regions_keep_order_and_neighbours_and_gaps_become_one() {
        // Regions 5 and 6 together, a gap, region 1,000,000.
        let high = 1_000_000 << 10;
        let mut trace = trace(&[
            (0, map((5 << 10) + 7, 1024)),
            (0, map(high + 1000, 5)),
            (0, fault((6 << 10) + 3)),
            (0, fault(high + 1001)),
            (0, Kind::Munmap { start: (5 << 10) + 9, pages: 2 }),
        ]);
        let report = trace.relayout(ROOM).unwrap();
        assert_eq!((report.most_in_use, report.most_regions), (3, 5));
        let to = 1 << 10;
        let packed = (3 + 1) << 10;
        let wanted =
            [(to + 7, 1024), (packed + 1000, 5), (to + 1024 + 3, 1), (packed + 1001, 1), (to + 9, 2)];
        assert_eq!(places(&trace), wanted);
    }

    #[test]
    fn a_child_keeps_its_parent_s_layout_and_an_exec_makes_one() {
        let fork = Kind::Clone { child: 1, kind: CloneKind::Fork };
        let mut trace = trace(&[
            (0, map(HIGH - 10, 4)),
            (0, fork),
            // The child uses a place below, which its parent never does.
            (1, map(50 << 10, 1)),
            (0, fault(HIGH - 9)),
            (1, Kind::Exec { stack_end: HIGH, arg_pages: 3 }),
            (1, Kind::Area { start: HIGH - 3, pages: 3, prot: Prot(3), kind: AreaKind::Stack }),
            (1, Kind::Brk { end: 77 << 10 }),
        ]);
        assert_eq!(trace.relayout(ROOM).unwrap().programs, 2);
        let offset = (HIGH - 10) & 1023;
        let places = places(&trace);
        assert_eq!(places[..3], [((3 << 10) + offset, 4), (1 << 10, 1), ((3 << 10) + offset + 1, 1)]);
        // The end of the stack is where its last page ends.
        let end = places[3].0;
        assert_eq!((places[4], end & 1023), ((end - 3, 3), HIGH & 1023));
        assert!(places[5].0 <= places[4].0, "the heap is below the stack");
    }

    #[test]
    fn an_area_that_does_not_fit_is_named() {
        let mut trace = trace(&[(0, map(1 << 20, 1)), (0, map(1 << 30, 11 << 10))]);
        let failure = trace.relayout(ROOM).unwrap_err();
        let message = failure.message();
        assert!(message.contains("needs 56 MiB") && message.contains("small has 48 MiB"), "{message}");
        assert!(message.contains("largest area has 44 MiB, at 0x40000000000"), "{message}");
    }

    #[test]
    fn counts_of_tables_are_left_out() {
        let truth = Kind::Truth { tables: 7, at: ptarmigan_trace::Sampled::Exit };
        let mut trace = trace(&[(0, map(1 << 20, 1)), (0, truth), (0, fault(1 << 20))]);
        trace.relayout(ROOM).unwrap();
        assert_eq!(trace.steps.len(), 2);
    }
}
