//! Who has to wait for whom, in one pass over the recording.
//!
//! Each worker's own order is kept as it is. Between workers there are two reasons to wait: a space or a task was last
//! used by another worker. A wait that follows from earlier ones is left out: what each worker knows to have happened
//! is followed as a vector of positions, one for each other worker (a vector clock).
//!
//! Every wait is for something that stands earlier in the recording. So the earliest of all things that are not done
//! yet never waits for anything, and there is no deadlock.
use super::Program;
use super::op::Op;

/// A place in a worker's program while it is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    worker: u16,
    at: u32,
}

/// Programs in the making.
pub struct Order {
    workers: Vec<Building>,
    /// By space: who has it, and what was the last that was done with it.
    spaces: Vec<Option<Place>>,
    /// By task: its last event.
    tasks: Vec<Option<Place>>,
}

#[derive(Default)]
struct Building {
    ops: Vec<Op>,
    origins: Vec<u32>,
    /// What others wait for.
    posts: Vec<u32>,
    /// Spaces given away, and after what.
    gives: Vec<(u32, u32)>,
    /// By worker: so many of its things are done before this one's next.
    known: Vec<u32>,
    /// By worker: how `known` grew, as (position here, count there).
    grew: Vec<Vec<(u32, u32)>>,
}

impl Building {
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
        let building =
            || Building { known: vec![0; workers], grew: vec![Vec::new(); workers], ..Building::default() };
        Order {
            workers: (0..workers).map(|_| building()).collect(),
            spaces: Vec::new(),
            tasks: vec![None; tasks],
        }
    }

    /// Appends something to a worker's program that is done with `spaces` and in the name of `tasks`, and before it
    /// what it has to wait for; `origin` is the event of the trace that it belongs to.
    pub fn push(&mut self, worker: usize, op: Op, origin: u32, spaces: &[u32], tasks: &[u32]) {
        for &task in tasks {
            if let Some(last) = self.tasks[task as usize] {
                self.wait(worker, last, origin);
            }
        }
        for &space in spaces {
            self.take(worker, space, origin);
        }
        let building = &mut self.workers[worker];
        let place = Some(Place { worker: worker as u16, at: building.ops.len() as u32 });
        building.push(op, origin);
        for &task in tasks {
            self.tasks[task as usize] = place;
        }
        for &space in spaces {
            self.spaces[space as usize] = place;
        }
    }

    /// Makes a space the worker's own, if it is not.
    fn take(&mut self, worker: usize, space: u32, origin: u32) {
        if self.spaces.len() <= space as usize {
            self.spaces.resize(space as usize + 1, None);
        }
        match self.spaces[space as usize] {
            Some(last) if usize::from(last.worker) == worker => return,
            Some(last) => {
                self.workers[usize::from(last.worker)].gives.push((last.at, space));
                self.wait(worker, last, origin);
            }
            None => {}
        }
        self.workers[worker].push(Op::Take { space }, origin);
    }

    fn wait(&mut self, worker: usize, last: Place, origin: u32) {
        let other = usize::from(last.worker);
        if other == worker || self.workers[worker].known[other] > last.at {
            return;
        }
        self.workers[other].posts.push(last.at);
        // Positions for now; they become numbers of posts when all are known.
        self.workers[worker].push(Op::Wait { worker: last.worker, posts: last.at }, origin);
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
            building.gives.sort_by_key(|give| give.0);
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

impl Building {
    fn finish(self, worker: usize, posts: &[Vec<u32>]) -> Program {
        let mut own = posts[worker].iter().copied().peekable();
        let mut gives = self.gives.into_iter().peekable();
        if posts.len() == 1 {
            return Program { ops: self.ops, origins: self.origins };
        }
        let mut program = Program::default();
        program.ops.reserve_exact(self.ops.len() + posts[worker].len() + gives.len());
        program.origins.reserve_exact(program.ops.capacity());
        let mut push = |op, origin| {
            program.ops.push(op);
            program.origins.push(origin);
        };
        for ((op, origin), at) in self.ops.into_iter().zip(self.origins).zip(0_u32..) {
            match op {
                Op::Wait { worker, posts: position } => {
                    let there = &posts[usize::from(worker)];
                    let number = there.partition_point(|&post| post <= position) as u32;
                    push(Op::Wait { worker, posts: number }, origin);
                }
                op => push(op, origin),
            }
            while let Some((_, space)) = gives.next_if(|give| give.0 == at) {
                push(Op::Give { space }, origin);
            }
            if own.next_if_eq(&at).is_some() {
                push(Op::Post, origin);
            }
        }
        program
    }
}
