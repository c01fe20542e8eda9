//! Interfaces of the kernel: system calls without a wrapper, `/proc`, signals, notifications.
pub(crate) mod counters;
pub(crate) mod held;
pub(crate) mod notify;
pub(crate) mod pagemap;
pub(crate) mod proc;
pub(crate) mod signals;
pub(crate) mod stop_cost;
pub(crate) mod sys;
