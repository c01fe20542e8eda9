//! Recording on Linux on x86-64.
mod builder;
mod format;
mod merge;
mod output;
mod perf;
mod proc;
mod queue;
mod raw;
mod ring;
pub(super) mod session;
mod signals;
mod spill;
mod sys;
mod syscall;
mod tracefs;
mod tracer;
