//! TLBs that forget exactly the requested translations.
#![allow(dead_code, reason = "every test binary uses its own part")]
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::Formats;
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A function that CPU 1 calls before it carries an invalidation out, as an interrupt that arrives
/// late lets it.
type Before = Box<dyn FnOnce() + Send>;

/// The TLBs of a machine. CPU 1 may do something else before it carries an invalidation out, or
/// fail.
#[derive(Default)]
pub struct ExactTlbs {
    pub cached: Mutex<HashMap<(u16, u64), Pfn>>,
    pub invalidations: AtomicUsize,
    before: Mutex<Option<Before>>,
}

impl ExactTlbs {
    pub fn knows(&self, cpu: u16, va: u64) -> bool {
        self.cached.lock().unwrap().contains_key(&(cpu, va))
    }
    pub fn walk(&self, cpu: u16, va: u64, pfn: Pfn) {
        self.cached.lock().unwrap().insert((cpu, va), pfn);
    }
    /// Has CPU 1 do this before it carries its next invalidation out.
    pub fn before_next(&self, f: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap() = Some(Box::new(f));
    }
    /// Has CPU 1's next invalidation fail.
    pub fn fail_next(&self) {
        self.before_next(|| panic!("the MMU's code fails"));
    }
    fn drop_all(&self, cpu: CpuId) {
        self.cached.lock().unwrap().retain(|key, _| key.0 != cpu.0);
    }
}

// SAFETY: 1. when `invalidate` returns, the CPU's translations that the request covers are gone. 2.
// it has no translation of the kernel's half. 3. and 4. all of them are gone. 5. it reaches one
// CPU. 6. it keeps no root. 7. `load` finds no translations.
unsafe impl Mmu for &ExactTlbs {
    const FORMATS: Formats = Formats::ANY;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, pin: &Pinned<'_>, request: &Invalidation) {
        if pin.cpu() == CpuId(1) {
            // The lock is given up before the call, which may fail.
            let before = self.before.lock().unwrap().take();
            before.into_iter().for_each(|before| before());
        }
        self.invalidations.fetch_add(1, SeqCst);
        let mut cached = self.cached.lock().unwrap();
        cached.retain(|key, _| key.0 != pin.cpu().0 || !request.scope.covers(key.1));
    }
    // The user's half is all there is.
    fn invalidate_kernel(&self, pin: &Pinned<'_>, _: &Scope) {
        self.drop_all(pin.cpu());
    }
    fn load(&self, pin: &Pinned<'_>, _: &Root) {
        self.drop_all(pin.cpu());
    }
    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.drop_all(pin.cpu());
    }
}
