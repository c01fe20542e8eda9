//! Facts about mappings and programs that the builder keeps to describe them.
use crate::linux::callers::{Callers, Code, Unknown};
use ptarmigan_trace::Runtime;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

/// Facts about the program of an address space.
#[derive(Clone, Default)]
pub(super) struct DescribedProgram {
    /// Its path.
    pub(super) path: Rc<str>,
    /// The runtimes that were noted.
    pub(super) runtimes: Vec<Runtime>,
    /// Its executable mappings, if callers are looked for.
    pub(super) code: Code,
}

/// How mappings are described.
#[derive(Default)]
pub(super) struct Describing<'a> {
    /// Whether the names of files are wanted.
    pub(super) names: bool,
    /// The runtimes linked into each program so far.
    pub(super) linked: HashMap<PathBuf, Vec<Runtime>>,
    /// Finds callers, if they are wanted.
    pub(super) callers: Option<Callers<'a>>,
    /// Counts the states of the executable mappings of all spaces.
    pub(super) versions: u64,
}

/// What is known of callers at the end of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallersFound {
    /// Samples, and those of them whose caller is not known.
    pub(crate) samples: (u64, u64),
    /// Names of files whose functions are not known, by the reason.
    pub(crate) unknown: Vec<(Unknown, Vec<String>)>,
}
