//! Recording on Linux on x86-64.
//!
//! Tracepoints or a perf event tell of faults ([`sources`]). At some system calls, and when a
//! program starts or a task ends, the task waits, and `/proc` is looked at ([`stops`]). The events
//! of both are merged by time ([`raw`]) and become the trace ([`builder`]).
mod allowed;
mod builder;
mod keeper;
mod largest;
mod made;
mod raw;
pub(super) mod session;
mod sources;
mod stops;
mod system;
mod target;
mod write;
