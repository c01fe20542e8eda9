//! Implements the traits of error types.

/// Implements [`Error`](core::error::Error), and makes the error of each part that a variant holds.
macro_rules! error {
    ($error:ty: $($part:ty => $variant:ident),+ $(,)?) => {
        impl core::error::Error for $error {}
        $crate::error::from!($error: $($part => $variant),+);
    };
}

/// Makes the error of each part that a variant holds.
macro_rules! from {
    ($error:ty: $($part:ty => $variant:ident),+) => {
        $(impl From<$part> for $error {
            fn from(e: $part) -> Self {
                Self::$variant(e)
            }
        })+
    };
}

pub(crate) use {error, from};
