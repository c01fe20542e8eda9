//! Hosts on which stores cannot be watched: everything compiles, but no watch can be created.
use super::ended::Ended;
use super::error::Error;
use super::found::FoundAt;
use super::store::Store;
use crate::{Memory, Sanitizer};
use std::convert::Infallible;
use std::marker::PhantomData;

/// Memory that is watched; this host cannot watch any.
#[derive(Debug)]
pub struct Ram(Infallible);

#[allow(missing_docs, reason = "as on Linux")]
impl Ram {
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        match self.0 {}
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        match self.0 {}
    }

    #[must_use]
    pub fn start(&self) -> u64 {
        match self.0 {}
    }

    #[must_use]
    pub fn pointer(&self, _phys: u64) -> Option<*mut u8> {
        match self.0 {}
    }

    #[must_use]
    pub fn phys(&self, _pointer: *const u8) -> Option<u64> {
        match self.0 {}
    }

    #[must_use]
    pub fn load(&self, _phys: u64) -> Option<u64> {
        match self.0 {}
    }

    #[must_use]
    pub fn store(&self, _phys: u64, _value: u64) -> bool {
        match self.0 {}
    }
}

impl Memory for Ram {
    fn read(&self, _phys: u64, _bytes: u8) -> Option<u64> {
        match self.0 {}
    }
}

/// A watch; this host has no watches.
#[derive(Debug)]
pub struct Watch(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc, reason = "as on Linux")]
impl Watch {
    /// # Errors
    /// Always [`Error::Unsupported`].
    pub fn new(_bytes: usize, _san: Sanitizer) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    /// # Errors
    /// Always [`Error::Unsupported`].
    pub fn with_start(_start: u64, _bytes: usize, _san: Sanitizer) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    /// # Errors
    /// Always [`Error::Unsupported`].
    pub fn identity(_bytes: usize, _san: Sanitizer) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    /// # Errors
    /// Always [`Error::Unsupported`].
    pub fn identity_at(_start: u64, _bytes: usize, _san: Sanitizer) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    #[must_use]
    pub fn memory(&self) -> &Ram {
        match self.0 {}
    }

    pub fn run<R>(&self, _code: impl FnOnce() -> R) -> Result<R, Error> {
        match self.0 {}
    }

    /// # Safety
    /// No requirement: there is no watch on this host.
    pub unsafe fn run_on<R>(&self, _cpu: usize, _code: impl FnOnce() -> R) -> Result<Ended<R>, Error> {
        match self.0 {}
    }

    pub fn pause(&self) -> Result<Paused<'_>, Error> {
        match self.0 {}
    }

    pub fn with<R>(&self, _hook: impl FnOnce(&mut Sanitizer, &Ram) -> R) -> R {
        match self.0 {}
    }

    pub fn on_store(&self, _look: impl FnMut(&mut Sanitizer, &Ram, &Store<'_>) + Send + 'static) {
        match self.0 {}
    }

    pub fn each_repetition(&self, _yes: bool) {
        match self.0 {}
    }

    #[must_use]
    pub fn stores(&self) -> u64 {
        match self.0 {}
    }

    #[must_use]
    pub fn found(&self) -> Vec<FoundAt> {
        match self.0 {}
    }

    pub fn assert_clean(&self) {
        match self.0 {}
    }

    #[must_use]
    pub fn into_sanitizer(self) -> Sanitizer {
        match self.0 {}
    }
}

impl std::fmt::Display for Watch {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {}
    }
}

/// A pause; this host has no pauses.
#[derive(Debug)]
pub struct Paused<'a>(Infallible, PhantomData<&'a ()>);
