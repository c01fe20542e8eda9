//! The macros of the format's tables. One table makes a type, its coding, its names and its row of
//! `trace-format.md`.

/// Makes an enum that one number stands for, with names.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $number:literal $word:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $number,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// Returns the name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl crate::wire::Plain for $name {
            #[inline]
            fn of(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            #[inline]
            fn number(self) -> u64 {
                self as u64
            }
        }

        impl From<$name> for crate::Value {
            fn from(code: $name) -> Self {
                Self::Word(code.name())
            }
        }
    };
}

/// Makes a set of bits, most of which have names.
macro_rules! flags {
    ($(#[$meta:meta])* pub struct $name:ident($bits:ty) {
        $($(#[$doc:meta])* $flag:ident = $number:literal $word:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $name(pub $bits);

        impl $name {
            $($(#[$doc])* pub const $flag: $bits = $number;)*
        }

        impl crate::wire::Plain for $name {
            #[inline]
            fn of(number: u64) -> Option<Self> {
                number.try_into().ok().map(Self)
            }

            #[inline]
            fn number(self) -> u64 {
                self.0.into()
            }
        }

        impl From<$name> for crate::Value {
            fn from(set: $name) -> Self {
                Self::Set(set.0.into(), &[$(($number, $word)),*])
            }
        }
    };
}

/// Makes an enum of events. A variant is written as
///
/// ```text
/// Mprotect = 9 "mprotect" {
///     prot: Prot = BYTE.flags(7), "byte protection";
///     start: u64,
///     pages: u64 = RANGE, "page; pages";
/// } -> [start: Page, pages, prot]
/// ```
///
/// * The number is that of the row's tag. Kinds that formats 2 to 4 have added have two bytes,
///   `0x0e06`. A variant that holds another enum of events has the range of its numbers.
/// * The fields have the order of the row. Behind one or several that are coded as a whole stand
///   the coding, which is a value of [`wire`](crate::wire), and the words of the document.
/// * The last brackets have the fields in the order of `ptarmigan inspect --events`: `Page` marks a
///   page number, `Event` a field that is another enum of events, and `Fields` one whose fields
///   alone are shown. A field with another name there has it behind.
macro_rules! events {
    ($(#[$meta:meta])* pub enum $enum:ident {$(
        $(#[$doc:meta])*
        $variant:ident = $code:literal $(..= $last:literal)? $word:literal
        $({$(
            $($(#[$fdoc:meta])* $field:ident: $type:ty),+ = $coding:expr, $text:literal;
        )*})?
        $(($(#[$tdoc:meta])* $inner:ident: $itype:ty = $icoding:expr, $itext:literal;))?
        $(-> [$($shown:ident $(: $how:ident)? $($label:literal)?),*])?
    )*}) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {$(
            $(#[$doc])*
            $variant $({$($($(#[$fdoc])* $field: $type,)+)*})? $(($(#[$tdoc])* $itype))?,
        )*}

        impl $enum {
            /// The rows of the document's table: number, name, fields.
            #[cfg_attr(not(test), allow(dead_code))] // `names` needs it of some enums.
            pub(crate) const ROWS: &'static [(u16, &'static str, &'static [&'static str])] =
                &[$(($code, $word, &[$($($text),*)? $($itext)?])),*];

            /// Returns the number and the name of the variant.
            #[inline]
            const fn row(&self) -> (u16, &'static str) {
                match self {
                    $(Self::$variant { .. } => ($code, $word),)*
                }
            }

            /// Calls `visit` with the name and the value of each field, in an order that does not
            /// change.
            ///
            /// # Errors
            /// The first one of `visit`.
            pub fn fields<E>(
                &self,
                visit: &mut dyn FnMut(&'static str, crate::Value) -> Result<(), E>,
            ) -> Result<(), E> {
                match *self {$(
                    Self::$variant $({$($($field,)+)*})? $(($inner))? => {
                        $($(
                            events!(@show visit, $shown $($how)?, events!(@label $shown $($label)?));
                        )*)?
                    }
                )*}
                Ok(())
            }
        }

        impl crate::wire::Row for $enum {
            #[inline(always)]
            #[allow(unused_parens)] // Around a field that is coded alone.
            fn get<S: crate::wire::Source>(
                code: u16,
                source: &mut S,
            ) -> Result<Self, crate::wire::Bad> {
                Ok(match code {
                    $($code $(..= $last)? => {
                        $($(let ($($field),+) = $coding.get(source)?;)*)?
                        $(let $inner = $icoding.get(source)?;)?
                        Self::$variant $({$($($field,)+)*})? $(($inner))?
                    })*
                    _ => return Err("an unknown kind of event".into()),
                })
            }

            #[inline]
            fn put(&self, sink: &mut crate::wire::Sink) {
                match *self {$(
                    Self::$variant $({$($($field,)+)*})? $(($inner))? => {
                        $($($coding.put(sink, ($($field),+));)*)?
                        $($icoding.put(sink, $inner);)?
                    }
                )*}
            }

            #[inline(always)]
            fn check(&self, known: &crate::wire::Known<'_>) -> Result<(), &'static str> {
                match *self {$(
                    Self::$variant $({$($($field,)+)*})? $(($inner))? => {
                        $($($coding.check(($($field),+), known)?;)*)?
                        $($icoding.check($inner, known)?;)?
                    }
                )*}
                Ok(())
            }
        }
    };
    (@label $field:ident) => { stringify!($field) };
    (@label $field:ident $label:literal) => { $label };
    (@show $visit:ident, $field:ident, $label:expr) => { $visit($label, $field.into())? };
    (@show $visit:ident, $field:ident Page, $label:expr) => {
        $visit($label, crate::Value::Page($field))?
    };
    (@show $visit:ident, $field:ident Event, $label:expr) => {
        $visit($label, crate::Value::Word($field.name()))?;
        $field.fields($visit)?
    };
    (@show $visit:ident, $field:ident Fields, $label:expr) => { $field.fields($visit)? };
}
