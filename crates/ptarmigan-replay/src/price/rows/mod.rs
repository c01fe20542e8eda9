//! The proposals that come with the command, one a file.
pub mod blocks;

use super::row::Row;

/// Returns all rows.
pub fn all() -> Vec<Box<dyn Row>> {
    vec![Box::new(blocks::BlockSizes::default())]
}
