//! Recording on Linux on x86-64.
//!
//! Tracepoints or a perf event tell of faults ([`sources`]). At some system calls, and when a
//! program starts or a task ends, the task waits, and `/proc` is looked at ([`stops`]). The events
//! of both are merged by time ([`raw`]) and become the trace ([`builder`]). A recording may also
//! begin with processes that run already ([`attach`]).
mod allowed;
mod attach;
mod builder;
mod callers;
mod exec_result;
mod finish;
mod largest;
mod object;
mod raw;
mod recording;
mod runtimes;
pub(super) mod session;
mod settings;
mod sources;
mod state;
mod stops;
mod system;
mod target;
mod watchdog;
mod write;
