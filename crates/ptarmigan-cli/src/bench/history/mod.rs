//! What the reports of 2004 and 2008 said of quicklists, measured again.
mod family;
pub(super) mod holt;
mod host;
pub(super) mod imbalance;
pub(super) mod migration;
