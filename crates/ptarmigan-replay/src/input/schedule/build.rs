//! Builds a schedule: follows tasks, spaces and CPUs through a trace.
use super::cpus::CpuMap;
use super::op::Op;
use super::order::{Order, SpaceUse};
use super::program::Schedule;
use crate::input::trace::{PackedEvent, PackedKind, Trace};
use ptarmigan_trace::{CloneKind, Kind};

const NONE: u32 = u32::MAX;

/// The space that a CPU has loaded.
#[derive(Clone, Copy)]
struct CpuState {
    space: u32,
    /// Whether the CPU runs no task of the space at the moment.
    lazy: bool,
}

struct ScheduleBuilder<'a> {
    trace: &'a Trace,
    cpus: CpuMap,
    alone: bool,
    order: Order,
    /// The space of each task.
    tasks: Vec<u32>,
    /// The number of tasks in each space; 0 after its end.
    users: Vec<u32>,
    current: Vec<CpuState>,
}

impl Schedule {
    /// Schedules `trace` on the CPUs of `cpus`, with one worker for each CPU, or for all CPUs if
    /// `alone`.
    pub fn new(trace: &Trace, cpus: CpuMap, alone: bool) -> Self {
        let workers = if alone { 1 } else { cpus.logical() };
        let mut builder = ScheduleBuilder {
            trace,
            cpus,
            alone,
            order: Order::new(workers, trace.tasks as usize),
            tasks: vec![NONE; trace.tasks as usize],
            users: Vec::new(),
            current: vec![CpuState { space: NONE, lazy: false }; cpus.logical()],
        };
        builder.tasks[0] = builder.born();
        for (step, at) in trace.steps.iter().zip(0_u32..) {
            builder.step(step, at);
        }
        let spaces = builder.users.len();
        Schedule { programs: builder.order.finish(), cpus: cpus.logical(), spaces }
    }
}

impl ScheduleBuilder<'_> {
    fn worker(&self, cpu: u16) -> usize {
        if self.alone { 0 } else { usize::from(cpu) }
    }

    fn slot(&self, cpu: u16) -> u16 {
        if self.alone { cpu } else { 0 }
    }

    fn step(&mut self, step: &PackedEvent, at: u32) {
        let cpu = self.cpus.of(step.cpu, step.task);
        if let PackedKind::Idle = step.what {
            return self.idle(cpu, at);
        }
        let task = step.task;
        let space = self.tasks[task as usize];
        if space == NONE {
            return;
        }
        self.switch(cpu, space, task, at);
        let (worker, slot) = (self.worker(cpu), self.slot(cpu));
        let rare = match step.what {
            PackedKind::Fault { page, flags } => {
                let op = Op::Fault { page, space, slot, flags };
                return self.order.push(worker, op, at, &[(space, SpaceUse::Fault)], &[task]);
            }
            PackedKind::Rare(rare) => rare,
            PackedKind::Idle => return,
        };
        match self.trace.rare[rare as usize] {
            Kind::Clone { child, kind: CloneKind::Fork } => {
                let born = self.born();
                self.tasks[child as usize] = born;
                let op = Op::Fork { space, child: born, slot };
                self.order.push(
                    worker,
                    op,
                    at,
                    &[(space, SpaceUse::Call), (born, SpaceUse::Call)],
                    &[task, child],
                );
            }
            Kind::Clone { child, kind } => {
                // One worker needs no sharing, and the two tasks of a `vfork` take turns.
                if kind == CloneKind::Share && !self.alone && !self.order.is_shared(space) {
                    self.order.share(worker, space, at);
                }
                self.users[space as usize] += 1;
                self.tasks[child as usize] = space;
                self.order.push(
                    worker,
                    Op::Call { rare, space, slot },
                    at,
                    &[(space, SpaceUse::Call)],
                    &[task, child],
                );
            }
            Kind::Exec { .. } => {
                let next = self.born();
                self.tasks[task as usize] = next;
                let last = self.unused(space);
                let op = Op::Exec { rare, space, next, slot, last };
                let how = if last { SpaceUse::End } else { SpaceUse::Call };
                self.order.push(worker, op, at, &[(space, how), (next, SpaceUse::Call)], &[task]);
                self.switch(cpu, next, task, at);
            }
            Kind::Exit { .. } => {
                self.tasks[task as usize] = NONE;
                let last = self.unused(space);
                let how = if last { SpaceUse::End } else { SpaceUse::Call };
                self.order.push(worker, Op::Exit { space, slot, last }, at, &[(space, how)], &[task]);
            }
            Kind::Truth { .. } => {
                self.order.push(
                    worker,
                    Op::Truth { event: at, space, slot },
                    at,
                    &[(space, SpaceUse::Call)],
                    &[task],
                );
            }
            _ => self.order.push(
                worker,
                Op::Call { rare, space, slot },
                at,
                &[(space, SpaceUse::Call)],
                &[task],
            ),
        }
    }

    /// Adds a space with one user.
    fn born(&mut self) -> u32 {
        self.users.push(1);
        self.order.born();
        (self.users.len() - 1) as u32
    }

    /// Removes one user of a space. Returns whether it was the last.
    fn unused(&mut self, space: u32) -> bool {
        self.users[space as usize] -= 1;
        self.users[space as usize] == 0
    }

    /// Returns the space that a CPU has loaded. When a space ends, every CPU that had it loaded has
    /// left it.
    fn loaded(&self, cpu: u16) -> Option<CpuState> {
        let current = self.current[usize::from(cpu)];
        (current.space != NONE && self.users[current.space as usize] > 0).then_some(current)
    }

    fn switch(&mut self, cpu: u16, to: u32, task: u32, at: u32) {
        let (worker, slot) = (self.worker(cpu), self.slot(cpu));
        match self.loaded(cpu) {
            Some(CpuState { space, lazy: false }) if space == to => return,
            Some(CpuState { space, .. }) if space != to => {
                self.order.push(worker, Op::Leave { space, slot }, at, &[(space, SpaceUse::Cpu)], &[]);
            }
            _ => {}
        }
        self.order.push(worker, Op::Enter { space: to, slot }, at, &[(to, SpaceUse::Cpu)], &[task]);
        self.current[usize::from(cpu)] = CpuState { space: to, lazy: false };
    }

    fn idle(&mut self, cpu: u16, at: u32) {
        let (worker, slot) = (self.worker(cpu), self.slot(cpu));
        if let Some(CpuState { space, lazy: false }) = self.loaded(cpu) {
            self.order.push(worker, Op::Rest { space, slot }, at, &[(space, SpaceUse::Cpu)], &[]);
            self.current[usize::from(cpu)].lazy = true;
        }
        self.order.push(worker, Op::Idle { slot }, at, &[], &[]);
    }
}
