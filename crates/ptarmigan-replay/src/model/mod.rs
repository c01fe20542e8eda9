//! Cost models: files with the cost of flushes on a machine. docs/cost-models.md has the schema.
//!
//! * `error`: the errors of a file.
//! * `parameter`: one cost, with its bounds.
//! * `file`: the schema.
//! * `host`: the machine that this process runs on.
//! * `load`: models by name or by path.
mod error;
mod file;
mod host;
mod load;
mod parameter;

pub use error::{ModelError, Problem};
pub use file::Model;
pub use host::HostName;
pub use load::load;
