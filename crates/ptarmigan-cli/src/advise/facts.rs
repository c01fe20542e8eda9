//! Collects facts about each program of a recording that no replay knows: its name, its faults, the
//! time of its calls, its runtimes and mappings, and the functions that caused its work.
//!
//! A program is known by its name: all processes of one name are one program. Numbers of programs
//! are those of [`Tasks`], one for each `execve`.
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use ptarmigan_replay::flushes::FlushSurvey;
use ptarmigan_replay::{PackedKind, Tasks, Trace};
use ptarmigan_trace::{Call, Cause, CloneKind, Kind, Note, Object, Opening, PlaceId, Runtime, Symbols};
use std::collections::{BTreeMap, BTreeSet};

/// Programs that only start others. Their forks and memory are not the user's to change.
const WRAPPERS: [&str; 30] = [
    "ash", "bash", "busybox", "dash", "doas", "env", "find", "fish", "gmake", "ksh", "make", "mksh", "nice",
    "ninja", "nodenv", "nohup", "parallel", "pyenv", "rbenv", "runuser", "setsid", "sh", "stdbuf", "su",
    "sudo", "tcsh", "time", "timeout", "xargs", "zsh",
];

/// Shells, which run scripts.
const SHELLS: [&str; 7] = ["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// Calls that were timed.
    pub times: u64,
    /// Nanoseconds in which the task ran, or waited for its child's `execve` after `vfork`. The
    /// recorder's stops are taken off.
    pub ns: u64,
}

/// A mapping of which the object is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First page.
    pub start: u64,
    /// Length in pages.
    pub pages: u64,
    /// The kind of object.
    pub object: Object,
    /// Its name, if names were recorded.
    pub name: Option<String>,
}

/// One program.
#[derive(Clone, Debug, Default)]
pub struct ProgramFacts {
    /// Its name.
    pub name: String,
    /// How often it was started by `execve`, or ran before the recording.
    pub starts: u64,
    /// Of these, starts by a child of a process of the same name, such as starts of a helper
    /// process.
    pub starts_itself: u64,
    /// Faults.
    pub faults: u64,
    /// Forks that copy the address space.
    pub forks: u64,
    /// Threads that were started.
    pub threads: u64,
    /// Linux's counts of tables, added up over the ends of address spaces. `None` without such a
    /// count.
    pub tables_at_end: Option<u64>,
    /// Times of calls.
    pub calls: BTreeMap<Call, CallTime>,
    /// Runtimes and allocators.
    pub runtimes: BTreeSet<Runtime>,
    /// Mappings with a known object.
    pub mappings: Vec<Mapping>,
    /// Microseconds of CPU time, in user mode and in the kernel.
    pub cpu: (u64, u64),
    /// Requests to other CPUs to flush their TLBs. `None` if these were not recorded.
    pub requests: Option<u64>,
    /// Switches to another task because of a wait.
    pub waits: u64,
    /// Switches to another task that took the CPU.
    pub preempted: u64,
    callers: HashMap<Cause, HashMap<Option<PlaceId>, u64>>,
}

/// Returns whether a name is that of a shell.
pub fn is_shell_name(name: &str) -> bool {
    SHELLS.contains(&name)
}

impl ProgramFacts {
    /// Returns whether it is a program that starts others, such as a shell.
    pub fn is_wrapper(&self) -> bool {
        WRAPPERS.binary_search(&self.name.as_str()).is_ok() || self.is_shell()
    }

    /// Returns whether it waited about once for each fault, as with `userfaultfd`: another thread
    /// brings the page, and waits for the next fault itself. A thread that is woken may take the
    /// CPU from the other before that waits. The recording does not have that call.
    pub fn waits_for_pages(&self) -> bool {
        let [waits, preempted, faults] = [self.waits, self.preempted, self.faults].map(|n| n as f64);
        let about_once = (faults * 0.75..=faults * 3.0).contains(&(waits + preempted));
        about_once && waits >= faults / 2.0 && self.faults > 0
    }

    /// Returns whether it is a shell: by its name, or by its file if names were recorded. A script
    /// that is started by its own name has that, and may start a program of the same name.
    pub fn is_shell(&self) -> bool {
        is_shell_name(&self.name) || self.has_file() && self.files().all(is_shell_name)
    }

    /// Returns whether the name of its file was recorded.
    pub fn has_file(&self) -> bool {
        self.files().next().is_some()
    }

    /// Returns the names of its files, if they were recorded: of a script that of its interpreter.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let programs = self.mappings.iter().filter(|mapping| mapping.object == Object::Program);
        programs.filter_map(|mapping| mapping.name.as_deref())
    }

    /// Returns the time of its forks, `vfork` included.
    pub fn fork_time(&self) -> CallTime {
        let sum = |call| self.calls.get(&call).copied().unwrap_or_default();
        let (fork, vfork) = (sum(Call::Fork), sum(Call::Vfork));
        CallTime { times: fork.times + vfork.times, ns: fork.ns + vfork.ns }
    }
}

/// One fork.
#[derive(Clone, Copy, Debug)]
pub struct ForkFacts {
    /// The program that forks, as an index of [`Facts::programs`].
    pub program: usize,
    /// The child.
    pub child: u32,
    /// Nanoseconds, if it was timed.
    pub ns: Option<u64>,
}

/// Facts about all programs.
#[derive(Default)]
pub struct Facts {
    /// The programs, in the order of their first start.
    pub programs: Vec<ProgramFacts>,
    /// Forks that copy the address space, by the number of their event.
    pub forks: BTreeMap<u32, ForkFacts>,
    /// Whether calls were timed.
    pub timed: bool,
    /// Nanoseconds of each task's first `execve`.
    exec_ns: HashMap<u32, u64>,
    of_number: Vec<usize>,
    /// The programs by the names that the recording gives them.
    recorded: HashMap<String, usize>,
    /// CPU time of each number in microseconds, and the number whose child it is; 0 if of none.
    usage: Vec<(u64, u32)>,
    heaps: Vec<Option<(u64, u64)>>,
}

/// The facts of one number of a program.
#[derive(Default)]
struct Numbered {
    name: Option<String>,
    started: bool,
    /// The number of the process that has made a child to start it; 0 if no program did.
    starter: u32,
    heap: Option<(u64, u64)>,
    facts: ProgramFacts,
}

/// The walk through a recording.
struct Walk<'t> {
    trace: &'t Trace,
    numbers: Vec<Numbered>,
    forks: BTreeMap<u32, (u32, ForkFacts)>,
    /// The last fork of each task, until its time comes.
    pending: HashMap<u32, u32>,
    exec_ns: HashMap<u32, u64>,
    /// Children that use their parent's space until their `execve` or exit.
    borrowing: HashSet<u32>,
    /// Numbers of programs that were read later than they began, under the number that they had
    /// until then.
    read_later: HashMap<u32, u32>,
    stop_cost: u64,
    timed: bool,
}

impl Facts {
    /// Collects the facts of a recording.
    pub fn of(trace: &Trace) -> Self {
        let mut walk = Walk {
            trace,
            numbers: vec![Numbered::default()],
            forks: BTreeMap::new(),
            pending: HashMap::new(),
            exec_ns: HashMap::new(),
            borrowing: HashSet::new(),
            read_later: HashMap::new(),
            stop_cost: trace.account.stop_cost().unwrap_or(0),
            timed: false,
        };
        let (mut tasks, openings) = (Tasks::new(trace), trace.opening_steps());
        let mut last = vec![0_u32; trace.tasks as usize];
        let mut timings = trace.timings.iter().peekable();
        // Tasks that were made and have started no program.
        let mut children = HashSet::new();
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            while let Some(timing) = timings.next_if(|timing| timing.step <= event) {
                walk.note(timing.task, last[timing.task as usize], timing.note);
            }
            // Notes may follow the exit of their task.
            let before = last[step.task as usize];
            let number = tasks.step(trace, step).unwrap_or(before);
            last[step.task as usize] = number;
            if let Some(Opening::Program) = openings.get(&event) {
                walk.read_later.insert(before, number);
            }
            walk.numbers.resize_with(walk.numbers.len().max(number as usize + 1), Numbered::default);
            if number != before && children.remove(&step.task) {
                walk.numbers[number as usize].starter = before;
            }
            match step.what {
                PackedKind::Fault { .. } => walk.numbers[number as usize].facts.faults += 1,
                PackedKind::Rare(rare) => {
                    let kind = trace.rare[rare as usize];
                    if let Kind::Clone { child, .. } = kind {
                        last[child as usize] = number;
                        children.insert(child);
                    }
                    walk.call(event, step.task, number, &kind);
                }
                PackedKind::Idle => {}
            }
        }
        for timing in timings {
            walk.note(timing.task, last[timing.task as usize], timing.note);
        }
        walk.finish()
    }

    /// Returns the program of a number, as an index of [`programs`](Self::programs).
    pub fn program(&self, number: u32) -> usize {
        self.of_number.get(number as usize).copied().unwrap_or(0)
    }

    /// Returns the numbers of programs that are wanted.
    pub fn numbers(&self, wanted: impl Fn(&ProgramFacts) -> bool) -> HashSet<u32> {
        let numbers = self.of_number.iter().zip(0_u32..);
        numbers.filter(|(program, _)| wanted(&self.programs[**program])).map(|(_, number)| number).collect()
    }

    /// Returns the name of the program of a number.
    pub fn name(&self, number: u32) -> &str {
        &self.programs[self.program(number)].name
    }

    /// Returns the program with a name.
    pub fn named(&self, name: &str) -> Option<&ProgramFacts> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// Returns the program to which the recording gives a name, as an index of
    /// [`programs`](Self::programs): the first one if none has it.
    pub fn recorded_as(&self, name: Option<&str>) -> usize {
        name.and_then(|name| self.recorded.get(name).copied()).unwrap_or(0)
    }

    /// Returns the microseconds of CPU time of a program, with that of the programs that its
    /// processes start, and so on. A CPU that it is pinned to has them all.
    pub fn cpu_with_started(&self, program: usize) -> u64 {
        let mut inside = vec![false; self.usage.len()];
        let mut sum = 0;
        for (number, &(micros, starter)) in self.usage.iter().enumerate() {
            // A starter has a lower number than the program that it starts.
            inside[number] = self.of_number[number] == program
                || starter > 0 && inside.get(starter as usize).copied().unwrap_or(false);
            sum += if inside[number] { micros } else { 0 };
        }
        sum
    }

    /// Lists the names of the first programs that were started.
    pub fn some_names(&self) -> String {
        let started = self.programs.iter().filter(|program| program.starts > 0);
        let some = if started.clone().next().is_some() {
            started.collect()
        } else {
            self.programs.iter().collect::<Vec<_>>()
        };
        let names: Vec<&str> = some.into_iter().map(|program| program.name.as_str()).take(4).collect();
        names.join(", ")
    }

    /// Returns the nanoseconds of a task's first `execve`, if it was timed.
    pub fn exec_ns(&self, task: u32) -> Option<u64> {
        self.exec_ns.get(&task).copied()
    }

    /// Returns the nanoseconds of the shortest first `execve` of a task.
    pub fn shortest_exec(&self) -> Option<u64> {
        self.exec_ns.values().copied().min()
    }

    /// Returns the nanoseconds of the shortest fork.
    pub fn shortest_fork(&self) -> Option<u64> {
        self.forks.values().filter_map(|fork| fork.ns).min()
    }

    /// Returns the mean nanoseconds of a fork.
    pub fn mean_fork(&self) -> Option<f64> {
        let timed: Vec<u64> = self.forks.values().filter_map(|fork| fork.ns).collect();
        let sum: f64 = timed.iter().map(|ns| *ns as f64).sum();
        (!timed.is_empty()).then(|| sum / timed.len() as f64)
    }

    /// Names the mapping of a page: the heap, or an object that the recording knows.
    pub fn mapping(&self, number: u32, page: u64) -> Option<String> {
        let heap = self.heaps.get(number as usize).copied().flatten();
        if heap.is_some_and(|(start, end)| (start..end).contains(&page)) {
            return Some("heap".to_owned());
        }
        let found = self.object(number, page)?;
        Some(match &found.name {
            Some(name) => format!("{} {name}", found.object.name()),
            None => found.object.name().to_owned(),
        })
    }

    /// Returns the mapping with a known object at a page, the latest one.
    pub fn object(&self, number: u32, page: u64) -> Option<&Mapping> {
        let mappings = &self.programs[self.program(number)].mappings;
        mappings.iter().rev().find(|m| (m.start..m.start + m.pages).contains(&page))
    }

    /// Returns whether one of some functions of a program caused some of its work.
    pub fn has_caller(&self, program: usize, functions: &[&str], symbols: &Symbols) -> bool {
        let places = self.programs[program].callers.values().flat_map(|places| places.keys().flatten());
        places
            .filter_map(|place| symbols.place(*place).function)
            .any(|found| functions.contains(&symbols.text(found)))
    }

    /// Returns the function that caused most of a program's work, and its part of that: "load
    /// (store.c:12)". `None` if callers are not in the recording, or most of them are unknown.
    pub fn caller(&self, program: usize, cause: Cause, symbols: &Symbols) -> Option<(String, f64)> {
        let callers = self.programs[program].callers.get(&cause)?;
        let all: u64 = callers.values().sum();
        let known = callers.iter().filter_map(|(place, n)| Some(((*place)?, *n)));
        let (place, most) = known.max_by_key(|(place, n)| (*n, std::cmp::Reverse(*place)))?;
        Some((place_text(place, symbols)?, most as f64 / all.max(1) as f64))
    }
}

/// Names a place: "load (store.c:12)". `None` if neither its function nor its file is known.
pub fn place_text(place: PlaceId, symbols: &Symbols) -> Option<String> {
    let found = symbols.place(place);
    let Some(function) = found.function else {
        return Some(format!("a function of {} without a symbol", symbols.text(found.module?)));
    };
    let mut text = symbols.text(function).to_owned();
    if let Some(file) = found.file {
        let line = if found.line > 0 { format!(":{}", found.line) } else { String::new() };
        text += &format!(" ({}{line})", symbols.text(file));
    } else if let Some(module) = found.module {
        text += &format!(" in {}", symbols.text(module));
    }
    Some(text)
}

impl Walk<'_> {
    fn call(&mut self, event: u32, task: u32, number: u32, kind: &Kind) {
        let of = &mut self.numbers[number as usize];
        match *kind {
            Kind::Exec { .. } => {
                of.started = true;
                self.borrowing.remove(&task);
            }
            Kind::Clone { child, kind: CloneKind::Vfork } => {
                self.borrowing.insert(child);
            }
            // It is the parent's, and goes on.
            Kind::Truth { .. } if self.borrowing.contains(&task) => {}
            Kind::Name(name) => of.name = Some(name.as_str().to_owned()),
            Kind::Brk { end } => {
                let heap = of.heap.get_or_insert((end, end));
                heap.1 = heap.1.max(end);
            }
            Kind::Truth { tables, .. } => {
                *of.facts.tables_at_end.get_or_insert(0) += u64::from(tables);
            }
            Kind::Clone { child, kind: CloneKind::Fork } => {
                of.facts.forks += 1;
                self.forks.insert(event, (number, ForkFacts { program: 0, child, ns: None }));
                self.pending.insert(task, event);
            }
            Kind::Clone { kind: CloneKind::Share, .. } => of.facts.threads += 1,
            Kind::Note(note) => self.note(task, number, note),
            _ => {}
        }
    }

    fn note(&mut self, task: u32, number: u32, note: Note) {
        let symbols = &self.trace.symbols;
        let of = &mut self.numbers[number as usize].facts;
        match note {
            Note::Took { call, nanos, .. } => {
                self.timed = true;
                let ns = nanos.saturating_sub(self.stop_cost);
                let time = of.calls.entry(call).or_default();
                (time.times, time.ns) = (time.times + 1, time.ns + ns);
                if call == Call::Exec {
                    self.exec_ns.entry(task).or_insert(ns);
                }
                if call == Call::Fork
                    && let Some(fork) =
                        self.pending.remove(&task).and_then(|event| self.forks.get_mut(&event))
                {
                    fork.1.ns = Some(ns);
                }
            }
            Note::Used { user, system, waits, preempted, .. } => {
                of.cpu = (of.cpu.0 + user, of.cpu.1 + system);
                of.waits += u64::from(waits);
                of.preempted += u64::from(preempted);
            }
            Note::Mapped { start, pages, object, name } => {
                let name = name.map(|name| symbols.text(name).to_owned());
                of.mappings.push(Mapping { start, pages, object, name });
            }
            Note::Runtime(runtime) => {
                of.runtimes.insert(runtime);
            }
            Note::Caller { cause, events, place, .. } => {
                *of.callers.entry(cause).or_default().entry(place).or_default() += events;
            }
            Note::StopCost { .. } | Note::Setting { .. } | Note::Unread { .. } => {}
        }
    }

    /// Adds the numbers of one name up.
    fn finish(mut self) -> Facts {
        for (&before, &number) in &self.read_later {
            // It has started once.
            let name = self.numbers[number as usize].name.clone();
            self.numbers[number as usize].started = false;
            self.numbers[before as usize].name = name;
        }
        let mut facts = Facts {
            programs: Vec::new(),
            forks: BTreeMap::new(),
            timed: self.timed,
            exec_ns: self.exec_ns,
            of_number: Vec::new(),
            recorded: HashMap::new(),
            usage: Vec::new(),
            heaps: Vec::new(),
        };
        for (number, one) in self.numbers.into_iter().enumerate() {
            // The trace has the name of the command, which is the first program.
            let unnamed =
                || if number < 2 { self.trace.name.clone() } else { "a program without a name".to_owned() };
            let name = one.name.unwrap_or_else(unnamed);
            let at = *facts.recorded.entry(name.clone()).or_insert_with(|| {
                facts.programs.push(ProgramFacts { name, ..ProgramFacts::default() });
                facts.programs.len() - 1
            });
            let sum = &mut facts.programs[at];
            let ProgramFacts {
                name: _,
                starts: _,
                starts_itself: _,
                faults,
                forks,
                threads,
                tables_at_end,
                calls,
                runtimes,
                mappings,
                cpu,
                requests: _,
                waits,
                preempted,
                callers,
            } = one.facts;
            sum.waits += waits;
            sum.preempted += preempted;
            sum.starts += u64::from(one.started);
            let by_itself = one.starter > 0 && facts.of_number.get(one.starter as usize) == Some(&at);
            sum.starts_itself += u64::from(one.started && by_itself);
            (sum.faults, sum.forks, sum.threads) =
                (sum.faults + faults, sum.forks + forks, sum.threads + threads);
            sum.cpu = (sum.cpu.0 + cpu.0, sum.cpu.1 + cpu.1);
            if let Some(tables) = tables_at_end {
                *sum.tables_at_end.get_or_insert(0) += tables;
            }
            for (call, time) in calls {
                let all = sum.calls.entry(call).or_default();
                (all.times, all.ns) = (all.times + time.times, all.ns + time.ns);
            }
            sum.runtimes.extend(runtimes);
            sum.mappings.extend(mappings);
            for (cause, places) in callers {
                let all = sum.callers.entry(cause).or_default();
                for (place, n) in places {
                    *all.entry(place).or_default() += n;
                }
            }
            facts.of_number.push(at);
            facts.usage.push((cpu.0 + cpu.1, one.starter));
            facts.heaps.push(one.heap);
        }
        if let Some(linux) = FlushSurvey::of(self.trace) {
            facts.programs.iter_mut().for_each(|program| program.requests = Some(0));
            for row in &linux.requests {
                let program = facts.recorded_as(Some(&row.program));
                *facts.programs[program].requests.get_or_insert(0) += row.requested.total();
            }
        }
        let forks = self.forks.into_iter();
        facts.forks = forks
            .map(|(event, (number, fork))| {
                (event, ForkFacts { program: facts.of_number[number as usize], ..fork })
            })
            .collect();
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{Event, FaultFlags, Header, Method, Name, Sampled, Writer};

    fn trace(events: &[(u32, Kind)]) -> Trace {
        let header = Header::new("command", 1, Method::Synthetic);
        let mut writer = Writer::new(Vec::new(), &header, 3).unwrap();
        for (task, kind) in events {
            writer.event(&Event { task: *task, cpu: 0, kind: *kind }).unwrap();
        }
        Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap()
    }

    fn exec(task: u32, name: &str) -> [(u32, Kind); 2] {
        let name = Name::new(name);
        [(task, Kind::Exec { stack_end: (1 << 35) - 1, arg_pages: 1 }), (task, Kind::Name(name))]
    }

    fn took(task: u32, call: Call, nanos: u64) -> (u32, Kind) {
        (task, Kind::Note(Note::Took { call, nanos, away: 0 }))
    }

    fn fault(task: u32) -> (u32, Kind) {
        (task, Kind::Fault { page: 1 << 20, flags: FaultFlags(FaultFlags::WRITE) })
    }

    #[test]
    fn processes_of_one_name_are_one_program_with_fork_times() {
        let fork = |child| Kind::Clone { child, kind: CloneKind::Fork };
        let mut events = Vec::from(exec(0, "server"));
        events.push((0, Kind::Note(Note::StopCost { nanos: 100 })));
        events.extend([fault(0), (0, fork(1)), took(0, Call::Fork, 5_100)]);
        events.extend([fault(1), (0, fork(2)), took(0, Call::Fork, 7_100)]);
        events.extend(exec(2, "ls"));
        events.extend([took(2, Call::Exec, 900), fault(2), fault(2)]);
        for task in [2, 1, 0] {
            events.push((task, Kind::Truth { tables: 4, at: Sampled::Exit }));
            events.push((task, Kind::Exit { last: true }));
            events.push(took(task, Call::Exit, 400));
        }
        let trace = trace(&events);
        let facts = Facts::of(&trace);
        let names: Vec<&str> = facts.programs.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["command", "server", "ls"]);
        let server = facts.named("server").unwrap();
        assert_eq!((server.faults, server.forks, server.starts, server.tables_at_end), (2, 2, 1, Some(8)));
        assert_eq!(server.fork_time(), CallTime { times: 2, ns: 12_000 });
        // Notes after an exit belong to the task's last program.
        assert_eq!(server.calls[&Call::Exit], CallTime { times: 2, ns: 600 });
        assert_eq!(facts.named("ls").unwrap().faults, 2);
        let ns: Vec<_> = facts.forks.values().map(|f| (f.program, f.child, f.ns)).collect();
        assert_eq!(ns, [(1, 1, Some(5_000)), (1, 2, Some(7_000))]);
        assert_eq!(
            (facts.exec_ns(2), facts.exec_ns(1), facts.shortest_fork()),
            (Some(800), None, Some(5_000))
        );
    }

    #[test]
    fn tables_that_a_vfork_borrows_are_not_counted_twice() {
        let truth = |task, tables, at| (task, Kind::Truth { tables, at });
        let mut events = Vec::from(exec(0, "server"));
        for child in [1, 2] {
            events.push((0, Kind::Clone { child, kind: CloneKind::Vfork }));
            events.push(truth(child, 500, Sampled::Exec));
            events.extend(exec(child, "ls"));
            events.extend([truth(child, 4, Sampled::Exit), (child, Kind::Exit { last: true })]);
        }
        events.extend([truth(0, 500, Sampled::Exit), (0, Kind::Exit { last: true })]);
        let facts = Facts::of(&trace(&events));
        let counted = |name: &str| facts.named(name).unwrap().tables_at_end;
        assert_eq!((counted("server"), counted("ls")), (Some(500), Some(8)));
    }

    #[test]
    fn starts_of_helpers_by_their_own_program_are_known() {
        let mut events = Vec::from(exec(0, "node"));
        for (child, name) in [(1, "node"), (2, "ls")] {
            events.push((0, Kind::Clone { child, kind: CloneKind::Fork }));
            events.extend(exec(child, name));
        }
        let facts = Facts::of(&trace(&events));
        let starts = |name| facts.named(name).map(|program| (program.starts, program.starts_itself));
        assert_eq!((starts("node"), starts("ls")), (Some((2, 1)), Some((1, 0))));
    }

    #[test]
    fn the_cpu_time_of_a_program_has_its_descendants() {
        let fork = |child| Kind::Clone { child, kind: CloneKind::Fork };
        let used = |task, user, system| {
            let used = Note::Used { user, system, minor: 0, major: 0, waits: 0, preempted: 0 };
            [(task, Kind::Note(used)), (task, Kind::Exit { last: true })]
        };
        let mut events = Vec::from(exec(0, "sh"));
        events.push((0, fork(1)));
        events.extend(exec(1, "server"));
        events.extend([(1, fork(2)), (1, fork(3))]);
        events.extend(exec(3, "helper"));
        events.extend([(3, fork(4))]);
        events.extend(exec(4, "ls"));
        for (task, user) in [(4, 1000), (3, 200), (2, 30), (1, 4)] {
            events.extend(used(task, user, 0));
        }
        events.push((0, fork(5)));
        events.extend(exec(5, "ls"));
        events.extend(used(5, 50_000, 0).into_iter().chain(used(0, 0, 600_000)));
        let facts = Facts::of(&trace(&events));
        let of = |name: &str| facts.cpu_with_started(facts.recorded_as(Some(name)));
        assert_eq!([of("ls"), of("helper"), of("server"), of("sh")], [51_000, 1200, 1234, 651_234]);
        assert_eq!(facts.recorded_as(Some("unknown")), facts.recorded_as(None));
    }

    #[test]
    fn wrappers_are_found_by_name() {
        assert!(WRAPPERS.is_sorted());
        let of = |name: &str| ProgramFacts { name: name.to_owned(), ..ProgramFacts::default() };
        assert!(of("bash").is_wrapper() && of("zsh").is_wrapper() && of("ash").is_wrapper());
        assert!(!of("python3").is_wrapper() && !of("bashful").is_wrapper());
        let file = |name: &str| {
            let name = Some(name.to_owned());
            Mapping { start: 0, pages: 1, object: Object::Program, name }
        };
        let mut script = of("build");
        assert!(!script.is_shell());
        script.mappings.push(file("bash"));
        assert!(script.is_shell() && script.is_wrapper());
        script.mappings.push(file("build"));
        assert!(!script.is_shell(), "it starts the program of its name");
    }

    #[test]
    fn pages_have_the_name_of_their_mapping() {
        let header = Header::new("command", 1, Method::Synthetic);
        let mut writer = Writer::new(Vec::new(), &header, 3).unwrap();
        let name = Some(writer.text("buffers").unwrap());
        let mapped = |start, name| Note::Mapped { start, pages: 10, object: Object::SharedMemory, name };
        let kinds = [
            Kind::Brk { end: 100 },
            Kind::Brk { end: 120 },
            Kind::Note(mapped(500, None)),
            Kind::Note(mapped(505, name)),
        ];
        for kind in kinds {
            writer.event(&Event { task: 0, cpu: 0, kind }).unwrap();
        }
        let trace = Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap();
        let facts = Facts::of(&trace);
        assert_eq!(facts.mapping(0, 119).as_deref(), Some("heap"));
        assert_eq!(facts.mapping(0, 120), None);
        assert_eq!(facts.mapping(0, 504).as_deref(), Some("shared memory"));
        assert_eq!(facts.mapping(0, 505).as_deref(), Some("shared memory buffers"));
    }
}
