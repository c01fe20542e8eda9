//! The macros of the format's tables. One table makes a type, its coding, its names and its row of
//! `ptsan-log.md`.

/// Makes an enum that one number stands for.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $number:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $number,)*
        }

        impl TryFrom<u64> for $name {
            type Error = ();

            fn try_from(number: u64) -> Result<Self, ()> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(()),
                }
            }
        }

        impl From<$name> for u64 {
            fn from(code: $name) -> Self {
                code as Self
            }
        }
    };
}

/// Makes the enum of records. A variant is written as
///
/// ```text
/// Access = 0x11 "access" {
///     cpu: u16 = Number "CPU";
///     va: u64 = Number "virtual address";
///     kind: AccessKind,
///     user: bool = Mode "access" ": 0 load, 1 store, 2 fetch, and 4 more in user mode";
/// }
/// ```
///
/// The number and the name are those of the kind. The fields have the order of the wire. Behind one
/// or several that are coded as a whole stand the coding, which is a type or constant of
/// [`coding`](crate::coding), the name in errors, and further words of the document.
macro_rules! records {
    ($(#[$meta:meta])* pub enum $enum:ident<$life:lifetime> {$(
        $(#[$doc:meta])*
        $variant:ident = $kind:literal $name:literal
        $({$(
            $($(#[$fdoc:meta])* $field:ident: $type:ty),* = $coding:ident $words:literal $($more:literal)?;
        )*})?
    )*}) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum<$life> {$(
            $(#[$doc])*
            $variant $({$($($(#[$fdoc])* $field: $type,)*)*})?,
        )*}

        impl<$life> $enum<$life> {
            /// The rows of the document's table: number, name, fields.
            #[cfg(test)]
            pub(crate) const ROWS: &'static [(u8, &'static str, &'static [&'static str])] =
                &[$(($kind, $name, &[$($(concat!($words, $($more)?)),*)?])),*];

            const fn row(&self) -> (u8, &'static str) {
                match self {
                    $(Self::$variant { .. } => ($kind, $name),)*
                }
            }

            /// Returns the name of the kind, as `ptsan log dump` prints it.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                self.row().1
            }

            /// Returns the number of the kind on the wire.
            pub(crate) const fn kind(&self) -> u8 {
                self.row().0
            }

            /// Reads the fields of a record; `None` if its kind is not known. Bytes behind the
            /// fields that are known are ignored.
            #[allow(unreachable_patterns)] // Of two records with one number the first one is read.
            #[allow(unused_parens)] // Around a field that is coded alone.
            pub(crate) fn get(kind: u8, fields: &mut Fields<$life>) -> Result<Option<Self>, Bad> {
                Ok(Some(match kind {
                    $($kind => {
                        $($(let ($($field),*) = $coding.get(fields, $words)?;)*)?
                        Self::$variant $({$($($field,)*)*})?
                    })*
                    _ => return Ok(None),
                }))
            }

            /// Writes the fields of the record.
            pub(crate) fn put(&self, to: &mut Payload) {
                match *self {$(
                    Self::$variant $({$($($field,)*)*})? => {
                        $($($coding.put(to, ($($field),*));)*)?
                    }
                )*}
            }
        }
    };
}
