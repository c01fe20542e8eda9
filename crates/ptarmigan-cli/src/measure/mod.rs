//! Measures the host: free memory, switches of processes, prices of pages; compares means.
pub(crate) mod memory;
pub(crate) mod page_prices;
pub(crate) mod usage;
pub(crate) mod welch;
