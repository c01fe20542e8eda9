//! The suite `cpus`: requests of CPUs to others to forget translations, by interrupt, by broadcast
//! and deferred, counted on one and more CPUs (docs/suites.md).
//!
//! | module | task |
//! |---|---|
//! | [`row`] | rows, from the output of boots or from JSON |
//! | [`show`] | tables |
//! | [`documented`] | compares rows with the tables of a file of figures |
//! | [`run`] | all of it |

pub mod documented;
pub mod row;
pub mod run;
pub mod show;

/// The name of the suite.
pub const SUITE: &str = "cpus";
