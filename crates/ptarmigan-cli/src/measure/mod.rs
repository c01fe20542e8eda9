//! Measures the host: switches of processes, prices of pages; compares means.
pub(crate) mod page_prices;
pub(crate) mod usage;
pub(crate) mod welch;
