//! The parts of a range that areas lie in.
use ptarmigan::addr::VirtRange;
use ptarmigan::format::Format;
use ptarmigan::space::{Area, SpaceMachine, SpaceMut};

/// Binary logarithm of the recorded page size.
pub const PAGE: u32 = 12;

/// Returns the parts of `range` that areas lie in, each with its area, in order.
pub fn pieces<F: Format, M: SpaceMachine>(
    space: &SpaceMut<'_, F, M>,
    range: VirtRange,
) -> impl Iterator<Item = (VirtRange, Area)> + use<F, M> {
    let mut all = Vec::new();
    space.each_area(range, |area| all.push((area.range().and(range), *area)));
    all.into_iter()
}
