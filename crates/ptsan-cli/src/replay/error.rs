//! The error of a record that cannot be.

/// The error of a record that cannot be, and a legal record in its place.
pub(super) type RecordError = (String, &'static str);
