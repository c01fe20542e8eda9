//! `bench quicklist`: the cost of allocating and freeing table pages.
//!
//! Every contender hands out zeroed pages and gets them back zeroed. Those that know this need not
//! clear anything; the others clear each page on allocation.
//!
//! | contender | description |
//! |---|---|
//! | `yardstick` | an array of page numbers: the reference |
//! | `ptarmigan` | the library's lists |
//! | `ptarmigan-zeroing` | the same lists, as if they did not know that pages are zero |
//! | `ptarmigan-checked` | the same lists with their checks for production |
//! | `ptarmigan-pool` | the pool for programs, whose CPUs are the threads |
mod apart;
mod arena;
mod cases;
mod contender;
mod harness;
mod ours;
mod pool;
mod threads;
mod yardstick;
mod zeroing;

pub use arena::Arena;
pub use contender::{PAGE, PageCase, PageContender, Pages, Workload};
pub use harness::{CHECKED, Entrant, OURS, side_by_side};
pub use ours::{LibraryLists, checked, host};
pub use pool::{POOL, PoolContender};
pub use yardstick::{ArrayYardstick, ExchangeYardstick, YARDSTICK};
pub use zeroing::Zeroing;
