//! High memory: frames that the kernel sees only while they are mapped.
//!
//! * [`pool`]: slots that all CPUs share. A frame that is mapped several times has one address, and
//!   stays mapped until there is no user and its slot is needed. Callers may sleep for a slot.
//! * [`local`]: slots of one CPU, a stack of them, for short uses in order.
//! * [`tables`]: slots of one CPU for tables in high memory.
//! * [`window`]: low frames through the direct map, high ones through one of these.
//!
//! A [`Slots`] is what they are made of: a range of the kernel's half
//! ([`KernelSlots`](crate::table::KernelSlots)), or hosted memory.
pub mod local;
pub mod pool;
mod slots;
pub mod tables;
pub mod window;

pub use slots::{Install, MAX_SLOTS, Remove, SlotError, Slots};
