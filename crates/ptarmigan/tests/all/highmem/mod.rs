//! High memory: the pool of slots, local maps, and the pool as Linux has it.
#![allow(missing_docs, reason = "tests")]
mod hosted;
mod kernel;
mod linux;
mod local;
mod machine;
mod pool;
mod random;
mod real;
mod waiting;
