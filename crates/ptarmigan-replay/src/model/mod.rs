//! Cost models: files with the cost of flushes and pages on a machine. docs/cost-models.md has the
//! schema.
//!
//! * `error`: the errors of a file.
//! * `parameter`: one cost, with its bounds.
//! * `page_prices`: prices of work on pages, which a model may have.
//! * `file`: the schema.
//! * `host`: the machine that this process runs on.
//! * `load`: models by name or by path.
mod error;
mod file;
mod host;
mod load;
pub mod page_prices;
mod parameter;

pub use error::{ModelError, Problem};
pub use file::Model;
pub use host::HostName;
pub use load::load;
