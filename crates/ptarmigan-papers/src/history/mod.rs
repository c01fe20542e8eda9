//! Repeats the reports of 2004 and 2008 on quicklists.
mod family;
pub(super) mod holt;
mod host;
pub(super) mod imbalance;
pub(super) mod migration;
