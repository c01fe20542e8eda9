//! The proposals that come with the command, one a file.
pub mod blocks;
pub mod empty_tables;
pub mod on_demand_fork;
pub mod shared_tables;

use super::row::Row;

/// Returns all rows.
pub fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(blocks::BlockSizes::default()),
        Box::new(on_demand_fork::OnDemandFork::default()),
        Box::new(shared_tables::SharedTables::default()),
        Box::new(empty_tables::EmptyTables::default()),
    ]
}
