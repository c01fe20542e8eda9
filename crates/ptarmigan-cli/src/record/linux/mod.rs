//! Recording on Linux on x86-64.
mod builder;
mod format;
mod merge;
mod output;
mod pagemap;
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
mod tables;
mod tracefs;
mod tracer;
