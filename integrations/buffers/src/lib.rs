//! Echo servers with pages of a pool as buffers: [`tokio_echo`] waits for a page where all are out,
//! [`uring_echo`] lends pages to the kernel. [`clients`] checks the bytes that come back.
//!
//! They are examples to copy from, each short enough to be read at once.
pub mod clients;
pub mod tokio_echo;
pub mod uring_echo;
