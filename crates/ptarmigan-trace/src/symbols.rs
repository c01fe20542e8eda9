//! Names of files and functions, and the places in programs that they make up.
use std::collections::HashMap;

/// The most names of a trace, and the most places.
pub const MAX_SYMBOLS: usize = 1 << 20;
/// The most bytes of one name.
pub const MAX_TEXT: usize = 512;
/// The most bytes of all names.
const MAX_BYTES: usize = 64 << 20;

/// The number of a name in [`Symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(pub(crate) u32);

/// The number of a place in [`Symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceId(pub(crate) u32);

/// A place in a program: a function, and where it was called from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The function.
    pub function: Option<Text>,
    /// The program or library that it is in, without a path.
    pub module: Option<Text>,
    /// The source file, without a path.
    pub file: Option<Text>,
    /// The line of the source file; 0 if unknown.
    pub line: u32,
    /// The place that called the function, if known.
    pub caller: Option<PlaceId>,
}

/// The names and places of a trace so far.
///
/// Equal names have one number, and so have equal places.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    texts: Vec<Box<str>>,
    bytes: usize,
    numbers: HashMap<Box<str>, Text>,
    places: Vec<Place>,
    place_numbers: HashMap<Place, PlaceId>,
}

impl Symbols {
    /// Returns a name.
    #[must_use]
    pub fn text(&self, text: Text) -> &str {
        self.texts.get(text.0 as usize).map_or("", |t| t)
    }

    /// Returns a place.
    #[must_use]
    pub fn place(&self, place: PlaceId) -> Place {
        self.places.get(place.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the places from `place` outwards: the function, its caller, and so on.
    pub fn callers(&self, place: PlaceId) -> impl Iterator<Item = Place> + '_ {
        std::iter::successors(Some(self.place(place)), |p| p.caller.map(|caller| self.place(caller)))
    }

    /// Returns all names, in the order of their numbers.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|t| &**t)
    }

    /// Returns all places, in the order of their numbers. A place's caller stands before it.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns whether there are names at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub(crate) fn number_of(&self, text: &str) -> Option<Text> {
        self.numbers.get(text).copied()
    }

    pub(crate) fn place_number_of(&self, place: &Place) -> Option<PlaceId> {
        self.place_numbers.get(place).copied()
    }

    pub(crate) fn has_text(&self, text: Option<Text>) -> bool {
        text.is_none_or(|t| (t.0 as usize) < self.texts.len())
    }

    pub(crate) fn has_place(&self, place: Option<PlaceId>) -> bool {
        place.is_none_or(|p| (p.0 as usize) < self.places.len())
    }

    /// Adds a name that is not there yet.
    pub(crate) fn add_text(&mut self, text: &str) -> Result<Text, &'static str> {
        if text.is_empty() || text.len() > MAX_TEXT {
            return Err("a symbol's name of no or too many bytes");
        }
        if text.chars().any(char::is_control) {
            return Err("a symbol's name with control characters");
        }
        if self.texts.len() == MAX_SYMBOLS || self.bytes + text.len() > MAX_BYTES {
            return Err("too many names of symbols");
        }
        let number = Text(self.texts.len() as u32);
        if self.numbers.insert(text.into(), number).is_some() {
            return Err("a symbol's name that is there already");
        }
        self.bytes += text.len();
        self.texts.push(text.into());
        Ok(number)
    }

    /// Adds a place that is not there yet.
    pub(crate) fn add_place(&mut self, place: Place) -> Result<PlaceId, &'static str> {
        let known = [place.function, place.module, place.file].into_iter().all(|t| self.has_text(t));
        if !known || !self.has_place(place.caller) {
            return Err("a place with a symbol or caller that does not exist");
        }
        if self.places.len() == MAX_SYMBOLS {
            return Err("too many places");
        }
        let number = PlaceId(self.places.len() as u32);
        if self.place_numbers.insert(place, number).is_some() {
            return Err("a place that is there already");
        }
        self.places.push(place);
        Ok(number)
    }
}
