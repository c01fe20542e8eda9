//! Arguments that a hook cannot take.
use crate::report::{Kind, Place, Rule};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Reports arguments that make no sense, with the name of the hook and its requirement.
    pub(super) fn bad_argument(&mut self, place: Place, needs: &str) {
        self.report(Kind::Misuse, Rule::BadArgument, place, || needs.to_owned());
    }
}
