//! Finds where workers have to wait for each other, in one pass over the recording.
//!
//! # Order
//!
//! 1. Each worker's operations keep their recorded order.
//! 2. A worker waits for another one if that worker was the last to use the same task or the same
//!    space.
//! 3. A space that one task uses at a time belongs to one worker at a time.
//! 4. In a shared space, faults wait for the last structural call, and a structural call waits for
//!    all faults since. CPUs enter and leave a shared space in any order until it ends.
//!
//! A wait that follows from earlier waits is left out. For this, a vector clock says for each
//! worker how far it knows every other worker to be.
//!
//! # No deadlock
//!
//! An operation waits only for operations that are earlier in the recording. So the earliest
//! operation that is not done yet never waits.
use super::op::Op;
use super::program::Program;

/// An operation's worker and index, while programs are being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    worker: u16,
    at: u32,
}

/// How an operation uses a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceUse {
    /// It changes the structure of the space, or reads it.
    Call,
    /// It is a fault.
    Fault,
    /// A CPU enters or leaves the space.
    Cpu,
    /// It ends the space.
    End,
}

/// How workers share a space.
enum Sharing {
    /// One worker at a time; the last operation on it.
    Own(Option<Position>),
    Shared {
        /// The last structural call, or the operation that made the space shared.
        call: Position,
        /// Each worker's last fault since `call`.
        faults: Vec<Position>,
        /// The operation that made the space shared.
        since: Position,
        /// The last operation of each attached worker.
        members: Vec<Position>,
    },
}

/// Replaces the last operation of the worker of `place`.
fn replace(places: &mut Vec<Position>, place: Position) {
    match places.iter_mut().find(|old| old.worker == place.worker) {
        Some(old) => *old = place,
        None => places.push(place),
    }
}

impl Sharing {
    /// Notes that the operation at `place` uses the space.
    fn done(&mut self, place: Position, how: SpaceUse) {
        match self {
            Sharing::Own(last) => *last = Some(place),
            Sharing::Shared { call, faults, members, .. } => {
                replace(members, place);
                match how {
                    SpaceUse::Cpu | SpaceUse::End => {}
                    SpaceUse::Fault => replace(faults, place),
                    SpaceUse::Call => {
                        *call = place;
                        faults.clear();
                    }
                }
            }
        }
    }
}

/// Builds the programs of all workers.
pub struct Order {
    workers: Vec<ProgramBuilder>,
    spaces: Vec<Sharing>,
    /// The last operation of each task.
    tasks: Vec<Option<Position>>,
}

#[derive(Default)]
struct ProgramBuilder {
    ops: Vec<Op>,
    origins: Vec<u32>,
    /// The indexes of operations that other workers wait for.
    posts: Vec<u32>,
    /// Operations to insert, with the index that they follow.
    after: Vec<(u32, Op)>,
    /// For each other worker: how many of its operations are done before the next one here.
    known: Vec<u32>,
    /// For each other worker: how `known` grew, as pairs of the index here and the count there.
    grew: Vec<Vec<(u32, u32)>>,
}

impl ProgramBuilder {
    fn push(&mut self, op: Op, origin: u32) {
        self.ops.push(op);
        self.origins.push(origin);
    }

    /// Returns how many operations of `other` are done before the operation at index `at`.
    fn known_at(&self, other: usize, at: u32) -> u32 {
        let grew = &self.grew[other];
        let n = grew.partition_point(|&(position, _)| position <= at);
        n.checked_sub(1).map_or(0, |last| grew[last].1)
    }

    fn learn(&mut self, other: usize, count: u32) {
        if count > self.known[other] {
            self.known[other] = count;
            self.grew[other].push((self.ops.len() as u32, count));
        }
    }
}

impl Order {
    /// Creates empty programs for `workers` workers and `tasks` tasks.
    pub fn new(workers: usize, tasks: usize) -> Self {
        let building = || ProgramBuilder {
            known: vec![0; workers],
            grew: vec![Vec::new(); workers],
            ..ProgramBuilder::default()
        };
        Order {
            workers: (0..workers).map(|_| building()).collect(),
            spaces: Vec::new(),
            tasks: vec![None; tasks],
        }
    }

    /// Adds a space with the next number.
    pub fn born(&mut self) {
        self.spaces.push(Sharing::Own(None));
    }

    /// Appends an operation to a worker's program, after the waits that it needs. The operation
    /// uses `spaces` on behalf of `tasks`; `origin` is its event in the trace.
    pub fn push(&mut self, worker: usize, op: Op, origin: u32, spaces: &[(u32, SpaceUse)], tasks: &[u32]) {
        for &task in tasks {
            if let Some(last) = self.tasks[task as usize] {
                self.wait(worker, last, origin);
            }
        }
        for &(space, how) in spaces {
            // Nearly always, and always with one worker.
            if matches!(&self.spaces[space as usize], Sharing::Own(Some(last)) if usize::from(last.worker) == worker)
            {
                continue;
            }
            // Taken out, because `before` needs all of `self`.
            let mut access = std::mem::replace(&mut self.spaces[space as usize], Sharing::Own(None));
            self.before(worker, space, &mut access, how, origin);
            self.spaces[space as usize] = access;
        }
        let building = &mut self.workers[worker];
        let place = Position { worker: worker as u16, at: building.ops.len() as u32 };
        building.push(op, origin);
        for &task in tasks {
            self.tasks[task as usize] = Some(place);
        }
        for &(space, how) in spaces {
            self.spaces[space as usize].done(place, how);
        }
    }

    /// Appends the steps that must precede the use of a space by an operation.
    fn before(&mut self, worker: usize, space: u32, access: &mut Sharing, how: SpaceUse, origin: u32) {
        match access {
            Sharing::Own(last) => {
                if let Some(last) = *last {
                    self.workers[usize::from(last.worker)].after.push((last.at, Op::Release { space }));
                    self.wait(worker, last, origin);
                }
                self.workers[worker].push(Op::Claim { space }, origin);
            }
            Sharing::Shared { call, faults, since, members } => {
                if !members.iter().any(|member| usize::from(member.worker) == worker) {
                    self.wait(worker, *since, origin);
                    self.workers[worker].push(Op::Attach { space }, origin);
                }
                match how {
                    SpaceUse::Cpu => {}
                    SpaceUse::Fault => self.wait(worker, *call, origin),
                    SpaceUse::Call => {
                        self.wait(worker, *call, origin);
                        faults.iter().for_each(|fault| self.wait(worker, *fault, origin));
                    }
                    SpaceUse::End => {
                        for last in members.iter().filter(|last| usize::from(last.worker) != worker) {
                            self.workers[usize::from(last.worker)]
                                .after
                                .push((last.at, Op::Detach { space }));
                            self.wait(worker, *last, origin);
                        }
                    }
                }
            }
        }
    }

    /// Returns whether a space is shared.
    pub fn is_shared(&self, space: u32) -> bool {
        matches!(self.spaces[space as usize], Sharing::Shared { .. })
    }

    /// Makes a space shared; `worker` has used it exclusively so far.
    pub fn share(&mut self, worker: usize, space: u32, origin: u32) {
        self.push(worker, Op::Share { space }, origin, &[(space, SpaceUse::Call)], &[]);
        let at = Position { worker: worker as u16, at: self.workers[worker].ops.len() as u32 - 1 };
        self.spaces[space as usize] =
            Sharing::Shared { call: at, faults: Vec::new(), since: at, members: vec![at] };
    }

    fn wait(&mut self, worker: usize, last: Position, origin: u32) {
        let other = usize::from(last.worker);
        if other == worker || self.workers[worker].known[other] > last.at {
            return;
        }
        self.workers[other].posts.push(last.at);
        // An index for now; `finish` turns it into the number of a milestone.
        self.workers[worker].push(Op::Wait { worker: last.worker, milestone: last.at }, origin);
        self.workers[worker].learn(other, last.at + 1);
        for third in 0..self.workers.len() {
            if third != worker {
                let count = self.workers[other].known_at(third, last.at);
                self.workers[worker].learn(third, count);
            }
        }
    }

    /// Returns the programs, with milestones where other workers wait.
    pub fn finish(mut self) -> Vec<Program> {
        for building in &mut self.workers {
            building.posts.sort_unstable();
            building.posts.dedup();
            building.after.sort_by_key(|after| after.0);
        }
        let posts: Vec<Vec<u32>> =
            self.workers.iter_mut().map(|building| std::mem::take(&mut building.posts)).collect();
        self.workers
            .into_iter()
            .enumerate()
            .map(|(worker, building)| building.finish(worker, &posts))
            .collect()
    }
}

impl ProgramBuilder {
    fn finish(self, worker: usize, posts: &[Vec<u32>]) -> Program {
        let mut own = posts[worker].iter().copied().peekable();
        let mut after = self.after.into_iter().peekable();
        if posts.len() == 1 {
            return Program { ops: self.ops, origins: self.origins };
        }
        let mut program = Program::default();
        program.ops.reserve_exact(self.ops.len() + posts[worker].len() + after.len());
        program.origins.reserve_exact(program.ops.capacity());
        let mut push = |op, origin| {
            program.ops.push(op);
            program.origins.push(origin);
        };
        for ((op, origin), at) in self.ops.into_iter().zip(self.origins).zip(0_u32..) {
            match op {
                Op::Wait { worker, milestone: position } => {
                    let there = &posts[usize::from(worker)];
                    let number = there.partition_point(|&post| post <= position) as u32;
                    push(Op::Wait { worker, milestone: number }, origin);
                }
                op => push(op, origin),
            }
            while let Some((_, op)) = after.next_if(|after| after.0 == at) {
                push(op, origin);
            }
            if own.next_if_eq(&at).is_some() {
                push(Op::Milestone, origin);
            }
        }
        program
    }
}
