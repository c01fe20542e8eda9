//! Values by level of the page table.
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// One value for each level, by name and in order.
#[derive(Clone)]
pub struct Levels<T>(pub Vec<(&'static str, T)>);

impl<T: Serialize> Serialize for Levels<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, level) in &self.0 {
            map.serialize_entry(name, level)?;
        }
        map.end()
    }
}
