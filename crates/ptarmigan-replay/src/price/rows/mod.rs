//! The proposals that come with the command, one a file.
mod base_pages;
pub mod blocks;
mod deferred_flush;
mod empty_tables;
mod fault_around;
mod five_levels;
mod fork_batching;
mod kpti;
mod on_demand_fork;
mod replicas;
pub mod requests;
mod shared_tables;
mod svvptc;

use super::row::Row;

/// Returns all rows.
pub fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(blocks::BlockSizes::default()),
        Box::new(requests::Requests::default()),
        Box::new(deferred_flush::DeferredFlush),
        Box::new(on_demand_fork::OnDemandFork::default()),
        Box::new(empty_tables::EmptyTables::default()),
        Box::new(shared_tables::SharedTables::default()),
        Box::new(fault_around::FaultAround::default()),
        Box::new(base_pages::BasePages::default()),
        Box::new(five_levels::FiveLevels),
        Box::new(replicas::Replicas::default()),
        Box::new(svvptc::Svvptc::default()),
        Box::new(kpti::Kpti),
        Box::new(fork_batching::ForkBatching),
    ]
}
