//! Text and pictures of the command `ptarmigan`: quantities, tables, lines, errors.
//!
//! # Quantities
//!
//! A quantity has one text, wherever it is printed:
//!
//! * [`Count`]: commas between groups of three digits: `3,911,524`. [`Mean`] is a mean of counts,
//!   with decimals.
//! * [`Bytes`]: the first of B, KiB, MiB, GiB and TiB in which the number is below 1,024; at least
//!   two digits: one decimal below 10, no decimals from there on. A whole number of units has no
//!   decimals: `4 KiB` is exact, and `4.0 KiB` is rounded.
//! * [`Time`]: the first of ns, µs, ms and s in which the number is below 1,000; digits as for
//!   bytes: `7.7 µs`, `543 ns`.
//!
//! A precision asks for more digits, for example to compare two medians; [`figure`] has four, in
//! the unit that a benchmark names. A width pads to the left,
//! as for numbers. JSON has plain numbers, and names with units.
//!
//! ```
//! use ptarmigan_term::{Bytes, Count, Mean, Time};
//!
//! assert_eq!(Count(3_911_524).to_string(), "3,911,524");
//! assert_eq!(Mean(1650.34).to_string(), "1,650.3");
//! assert_eq!([4096, 4100, 12 << 20, 1 << 32].map(|n| Bytes(n).to_string()), [
//!     "4 KiB", "4.0 KiB", "12 MiB", "4 GiB"
//! ]);
//! assert_eq!([0.5, 543.0, 7698.0, 91.62e6].map(|ns| Time::from_nanos(ns).to_string()), [
//!     "0.5 ns", "543 ns", "7.7 µs", "92 ms"
//! ]);
//! assert_eq!(format!("{:.4}", Time::from_nanos(91.62e6)), "91.62 ms");
//! assert_eq!(format!("{:9}|{:<9}|", Count(1000), Bytes(1 << 20)), "    1,000|1 MiB    |");
//! ```
//!
//! # Modules
//!
//! * [`text`]: reports of lines and tables, fitted to a terminal; [`wrap`] breaks their lines.
//! * [`words`]: counts with their nouns; [`nearest`] suggests a name for one that is not known.
//! * [`print`](mod@print), [`screen`], [`bar`]: standard output and standard error.
//! * [`output`]: output files, complete or absent.
//! * [`draw`]: pictures as SVG.
pub mod bar;
pub mod draw;
mod error;
pub mod nearest;
pub mod output;
pub mod print;
pub mod screen;
pub mod text;
mod units;
pub mod words;
pub mod wrap;

pub use error::{Context, Failure};
pub use units::{Bytes, Count, Mean, Time, figure};
