//! Who has to wait for whom, in one pass over the recording.
//!
//! Each worker's own order is kept as it is. Between workers there are two reasons to wait: a space or a task was last
//! used by another worker. A wait that follows from earlier ones is left out: what each worker knows to have happened
//! is followed as a vector of positions, one for each other worker (a vector clock).
//!
//! A space that one task uses at a time has one worker at a time, whatever is done with it. In a shared one faults wait
//! for the last call that changed its structure, and such a call waits for all faults since; CPUs come and go as they
//! like until it ends.
//!
//! Every wait is for something that stands earlier in the recording. So the earliest of all things that are not done
//! yet never waits for anything, and there is no deadlock.
use super::op::Op;
use super::program::Program;

/// A place in a worker's program while it is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    worker: u16,
    at: u32,
}

/// What is done with a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceUse {
    /// A call that changes its structure, or looks at it.
    Call,
    /// A fault.
    Fault,
    /// A CPU comes or goes.
    Cpu,
    /// It ends.
    End,
}

/// Who may use a space.
enum Sharing {
    /// One worker at a time; the last that was done with it.
    Own(Option<Position>),
    Shared {
        /// The last call, or what made it shared.
        call: Position,
        /// Each worker's last fault since.
        faults: Vec<Position>,
        /// Since when it is shared.
        since: Position,
        /// The last of each worker that has joined.
        members: Vec<Position>,
    },
}

/// Puts `place` in as its worker's last.
fn replace(places: &mut Vec<Position>, place: Position) {
    match places.iter_mut().find(|old| old.worker == place.worker) {
        Some(old) => *old = place,
        None => places.push(place),
    }
}

impl Sharing {
    /// `place` has used the space.
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

/// Programs in the making.
pub struct Order {
    workers: Vec<ProgramBuilder>,
    spaces: Vec<Sharing>,
    /// By task: its last event.
    tasks: Vec<Option<Position>>,
}

#[derive(Default)]
struct ProgramBuilder {
    ops: Vec<Op>,
    origins: Vec<u32>,
    /// What others wait for.
    posts: Vec<u32>,
    /// What is to come right after which position.
    after: Vec<(u32, Op)>,
    /// By worker: so many of its things are done before this one's next.
    known: Vec<u32>,
    /// By worker: how `known` grew, as (position here, count there).
    grew: Vec<Vec<(u32, u32)>>,
}

impl ProgramBuilder {
    fn push(&mut self, op: Op, origin: u32) {
        self.ops.push(op);
        self.origins.push(origin);
    }

    /// How many of `other`'s things were known to be done before the thing at `at`.
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
    /// For `workers` workers and `tasks` tasks.
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

    /// A new space with the next number.
    pub fn born(&mut self) {
        self.spaces.push(Sharing::Own(None));
    }

    /// Appends something to a worker's program that is done with `spaces` and in the name of `tasks`, and before it
    /// what it has to wait for; `origin` is the event of the trace that it belongs to.
    pub fn push(&mut self, worker: usize, op: Op, origin: u32, spaces: &[(u32, SpaceUse)], tasks: &[u32]) {
        for &task in tasks {
            if let Some(last) = self.tasks[task as usize] {
                self.wait(worker, last, origin);
            }
        }
        for &(space, how) in spaces {
            // Out of its place, as waiting needs all of `self`.
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

    /// What has to come before a space is used.
    fn before(&mut self, worker: usize, space: u32, access: &mut Sharing, how: SpaceUse, origin: u32) {
        match access {
            Sharing::Own(Some(last)) if usize::from(last.worker) == worker => {}
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

    /// Whether a space is shared.
    pub fn is_shared(&self, space: u32) -> bool {
        matches!(self.spaces[space as usize], Sharing::Shared { .. })
    }

    /// `worker` shares a space that is not shared yet.
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
        // Positions for now; they become numbers of posts when all are known.
        self.workers[worker].push(Op::Wait { worker: last.worker, milestone: last.at }, origin);
        self.workers[worker].learn(other, last.at + 1);
        for third in 0..self.workers.len() {
            if third != worker {
                let count = self.workers[other].known_at(third, last.at);
                self.workers[worker].learn(third, count);
            }
        }
    }

    /// The programs, with posts where others wait.
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
