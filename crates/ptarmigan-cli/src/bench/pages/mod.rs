//! Pages for tables, taken and given back: what it costs to have them in a known state.
//!
//! Every contender hands out pages that are all zero and gets them back all zero. Those that know it do nothing about it;
//! the others clear each page when they hand it out. Reference is an array of page numbers (`yardstick`), and
//! `ptarmigan-zeroing` is what the library's lists would give if they did not know. `ptarmigan-checked` are the same lists as
//! `ptarmigan`, which look after their pages as they may in production; `ptarmigan-pool` is the pool for programs, whose
//! CPUs are the threads themselves.
mod apart;
mod arena;
mod cases;
mod contender;
mod harness;
mod ours;
mod pool;
mod threads;
mod yardstick;
pub(super) mod zero;
mod zeroing;

pub use arena::Arena;
pub use contender::{PAGE, PageCase, PageContender, Pages, Workload};
pub use harness::{CHECKED, Entrant, OURS, side_by_side};
pub use ours::{LibraryLists, checked, host};
pub use pool::{POOL, PoolContender};
pub use yardstick::{ArrayYardstick, ExchangeYardstick, YARDSTICK};
pub use zeroing::Zeroing;
