//! What was reported of quicklists in 2004 and 2008, measured again.
mod family;
pub(super) mod holt;
mod host;
pub(super) mod imbalance;
pub(super) mod migration;
