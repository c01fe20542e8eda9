//! Tasks of the user's, each in a space of its own, and the loop that runs them.
//!
//! A task runs in user mode until it stops; the kernel handles that on its one stack, and then goes
//! on with the task or picks another.

use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::user::failure;

use crate::memory::{Refused, SpaceRef};
use crate::single::Single;
use crate::trap::{self, Cause, Registers};
use crate::{abi, kernel_half};

/// Tasks at a time.
const TASKS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Ready,
    /// In `wait` for the end of a task.
    Waiting(usize),
    /// Ended, its code not asked for yet.
    Ended(u32),
}

struct Task {
    state: State,
    parent: Option<usize>,
    registers: Registers,
    /// Taken while the task runs.
    space: Option<SpaceRef>,
}

const NO_TASK: Task = Task { state: State::Free, parent: None, registers: Registers::ZERO, space: None };

static TABLE: Single<[Task; TASKS]> = Single::new([NO_TASK; TASKS]);

/// The next step of a task that stopped.
enum After {
    /// It goes on.
    Resume,
    /// Others first.
    GiveWay,
    /// It waits for the end of a task.
    Wait(u32),
    /// It ends, with a code.
    End(u32),
}

/// A new task.
pub fn start(space: SpaceRef, registers: Registers, parent: Option<usize>) -> Result<usize, Refused> {
    let mut table = TABLE.get();
    let Some(number) = table.iter().position(|task| task.state == State::Free) else {
        drop(table);
        space.close();
        return Err(Refused);
    };
    table[number] = Task { state: State::Ready, parent, registers, space: Some(space) };
    Ok(number)
}

/// Runs tasks in turn until all have ended.
pub fn run() {
    let mut last = 0;
    loop {
        let mut table = TABLE.get();
        let next = (1..=TASKS).map(|n| (last + n) % TASKS).find(|n| table[*n].state == State::Ready);
        let Some(number) = next else {
            if table.iter().any(|task| task.state != State::Free) {
                fail(format_args!("tasks wait for each other"));
            }
            return;
        };
        last = number;
        let mut registers = table[number].registers;
        let Some(space) = table[number].space.take() else {
            fail(format_args!("a task without a space"));
        };
        drop(table);
        space.enter();
        kernel_half::use_page();
        let after = loop {
            trap::enter(&mut registers);
            match handle(number, &mut registers, &space) {
                After::Resume => {}
                after => break after,
            }
        };
        // It ends where it is loaded.
        if let After::End(code) = after {
            space.close();
            end(number, code);
            continue;
        }
        space.leave();
        let mut table = TABLE.get();
        table[number].registers = registers;
        table[number].space = Some(space);
        if let After::Wait(child) = after {
            wait(&mut table, number, child);
        }
    }
}

fn handle(number: usize, registers: &mut Registers, space: &SpaceRef) -> After {
    match registers.cause() {
        Cause::Call => call(number, registers, space),
        Cause::Page { at, access, protected } => match space.miss(at, access, protected) {
            Ok(()) => After::Resume,
            Err(Refused) => After::End(abi::KILLED),
        },
        Cause::Other => After::End(abi::KILLED),
    }
}

/// Carries out a call of the user's.
fn call(number: usize, registers: &mut Registers, space: &SpaceRef) -> After {
    let [a, b, c] = registers.arguments();
    let result = match registers.call() {
        abi::EXIT => return After::End(a),
        abi::FORK => {
            // The child's copy of the registers says 0.
            registers.set_result(0);
            space.fork().and_then(|child| start(child, *registers, Some(number))).map(name)
        }
        abi::WAIT => return After::Wait(a),
        abi::MMAP => space.mmap(a, b, c).map(|()| 0),
        abi::MUNMAP => space.munmap(a, b).map(|()| 0),
        abi::MPROTECT => space.mprotect(a, b, c).map(|()| 0),
        abi::GIVE_WAY => return After::GiveWay,
        abi::FAILED => fail(format_args!("{}: {b:#x}, not {c:#x}", failure(a.into()))),
        _ => Err(Refused),
    };
    registers.set_result(result.unwrap_or(abi::ERROR));
    After::Resume
}

/// Returns the name of a task for users; it is not 0, because `fork` returns 0 in the child.
fn name(number: usize) -> u32 {
    number as u32 + 1
}

/// `wait(child)`, for a task that is ready.
fn wait(table: &mut [Task; TASKS], number: usize, child: u32) {
    let child = (child as usize).wrapping_sub(1);
    let found = table.get(child).filter(|found| found.parent == Some(number)).map(|found| found.state);
    let result = match found {
        None | Some(State::Free) => abi::ERROR,
        Some(State::Ended(code)) => {
            table[child] = NO_TASK;
            code
        }
        Some(_) => {
            table[number].state = State::Waiting(child);
            return;
        }
    };
    table[number].registers.set_result(result);
}

/// The task has ended, and its space.
fn end(number: usize, code: u32) {
    let mut table = TABLE.get();
    // Nobody will ask for the codes of its children any more.
    for child in table.iter_mut().filter(|child| child.parent == Some(number)) {
        child.parent = None;
        if matches!(child.state, State::Ended(_)) {
            *child = NO_TASK;
        }
    }
    let parent = table[number].parent;
    table[number] = NO_TASK;
    match parent {
        None if code != 0 => fail(format_args!("a program ended with {code:#x}")),
        None => {}
        Some(parent) if table[parent].state == State::Waiting(number) => {
            table[parent].registers.set_result(code);
            table[parent].state = State::Ready;
        }
        Some(_) => {
            table[number].parent = parent;
            table[number].state = State::Ended(code);
        }
    }
}
