//! Makes a policy of the library from a policy of one's own.
//!
//! ```text
//!  tree ── alloc ──> OwnPolicy ── alloc ──> TablePolicy
//!       <─ Clean ──      │      <─ Page ───  (or None: `Source::make`)
//!                    KeptPages: Page ──> Clean
//!  flush ─ Clean ─>      │      ── free, Page ──> TablePolicy
//!                 `Source::unmake` <─ Page ───  (or None: it keeps the page)
//! ```
//!
//! # Why
//!
//! The policy inside decides, and holds tokens. The pages stay here, so that its mistakes cost an
//! error and no page. Three mistakes end the replay: a panic, a page of another replay, and a leaf
//! table where a root is asked for. From then on the policy is not called again, requests are
//! refused, and its pages go back to the allocator.
use super::page::{KeptPages, Page};
use super::table_policy::TablePolicy;
use crate::workers::panics::caught;
use ptarmigan::cpu::{MachineId, NodeId};
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::page::{Clean, Construct, Flushed, FlushedLeaves, Level, MAX_LEVELS};
use ptarmigan::quicklist::{Here, Policy, PolicyCounts, Returned, Source, TakesUnhooked};
use ptarmigan::window::OpenWindow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A policy of one's own on a machine.
pub(super) struct OwnPolicy<'h, W, C> {
    source: Source<'h, W, C>,
    cpus: usize,
    inside: Mutex<Inside>,
}

/// The policy and its pages, for one call at a time.
struct Inside {
    /// `None` when all has ended, or the policy has failed.
    policy: Option<Box<dyn TablePolicy>>,
    pages: KeptPages,
    counts: PolicyCounts,
    /// The counts before the pages that the policy kept to the end went back.
    at_end: Option<PolicyCounts>,
    failure: Option<String>,
}

/// The counts of a policy that has ended.
pub(super) struct OwnCounts {
    /// Counts before the pages that it kept to the end went back to the allocator.
    pub counts: PolicyCounts,
    /// The most pages kept at once, by the level that they had.
    pub peaks: [u64; MAX_LEVELS],
    /// The most pages kept at once.
    pub peak: u64,
}

impl<'h, W: OpenWindow, C: Construct> OwnPolicy<'h, W, C> {
    /// Puts `policy` on a machine of `cpus` CPUs, with table pages of `source`.
    pub fn new(source: Source<'h, W, C>, cpus: usize, policy: Box<dyn TablePolicy>) -> Self {
        let inside = Inside {
            policy: Some(policy),
            pages: KeptPages::new(source.layout().root()),
            counts: PolicyCounts::default(),
            at_end: None,
            failure: None,
        };
        OwnPolicy { source, cpus, inside: Mutex::new(inside) }
    }

    /// Returns the counts, or a line that says how the policy failed.
    pub fn finish(&self) -> Result<OwnCounts, String> {
        let mut inside = self.lock();
        if let Some(failure) = inside.failure.take() {
            return Err(failure);
        }
        let counts = inside.at_end.unwrap_or(inside.counts);
        Ok(OwnCounts { counts, peaks: inside.pages.peaks(), peak: inside.pages.peak() })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for lack of a page of `level`.
    fn none(&self, here: Here<'_>, level: Level) -> NoFrame {
        let free = self.source.frames().node_free(here.node());
        NoFrame::new(self.source.layout().order(level), here.node(), free)
    }

    /// Returns the page that the policy has answered a request for `level` with, as a page of that
    /// level; a line if it cannot be one.
    fn as_level(&self, inside: &mut Inside, token: Page, level: Level) -> Result<Clean, String> {
        let (had, serves) = (token.level(), token.serves(level.0));
        let page = inside.pages.take(token).ok_or_else(|| ANOTHER.to_owned())?;
        let layout = self.source.layout();
        if !serves || layout.table_bytes(page.level()) != layout.table_bytes(level) {
            // SAFETY: 1. the store's pages are of this policy, whose pages the source makes.
            unsafe { self.source.unmake(page) };
            let level = level.0;
            return Err(format!(
                "alloc of level {level} returned a page of level {had}; Page::serves tells which can be one"
            ));
        }
        // SAFETY: 1. it was owned as `page` until now. 2. it had this level, or both levels are not
        // the root's, so that its state, all zero, is that of `level`; tables of both have the same
        // size, and the machine has low memory only. 3. it was clean.
        Ok(unsafe { Clean::from_raw(page.into_raw(), level) })
    }

    /// Takes a clean page back and asks the policy whether it keeps it.
    fn give(&self, here: Here<'_>, page: Clean) {
        let (inside, level) = (&mut *self.lock(), page.level());
        inside.counts.levels[level.at()].frees += 1;
        if inside.policy.is_none() {
            return self.release(inside, page);
        }
        let token = inside.pages.put(page);
        let cpu = usize::from(here.cpu().0);
        let answer = inside.ask("free", level, cpu, |policy| policy.free(token, level.0, cpu));
        if let Some(token) = answer.flatten() {
            match inside.pages.take(token) {
                Some(page) => self.release(inside, page),
                None => inside.fail(ANOTHER.to_owned()),
            }
        }
        self.release_dropped(inside);
        inside.pages.note();
    }

    fn release_dropped(&self, inside: &mut Inside) {
        for page in inside.pages.dropped() {
            self.release(inside, page);
        }
    }

    /// Gives a page to the allocator.
    fn release(&self, inside: &mut Inside, page: Clean) {
        inside.counts.levels[page.level().at()].returns += 1;
        // SAFETY: 1. it came back to this policy, whose pages the source makes.
        unsafe { self.source.unmake(page) };
    }
}

/// A mistake of a policy.
const ANOTHER: &str = "it returned a page of another replay";

impl Inside {
    /// Calls the policy. Returns `None` if there is none any more, or it panics.
    fn ask<T>(
        &mut self,
        call: &str,
        level: Level,
        cpu: usize,
        ask: impl FnOnce(&mut dyn TablePolicy) -> T,
    ) -> Option<T> {
        let policy = self.policy.as_deref_mut()?;
        let answer = caught(|| ask(policy));
        answer
            .map_err(|why| self.fail(format!("{call} of level {} on CPU {cpu} panicked: {why}", level.0)))
            .ok()
    }

    /// Notes the first failure, and ends the policy.
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.end();
    }

    /// Drops the policy.
    fn end(&mut self) {
        let policy = self.policy.take();
        if let Err(why) = caught(|| drop(policy)) {
            self.failure.get_or_insert(format!("its drop panicked: {why}"));
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.end();
    }
}

// SAFETY: 1. all are fields or constants, and the source makes pages of its frames. 2. the source
// makes them for the level, and `as_level` turns a kept page into one. 3. pages are kept in the
// store alone, which returns each once; pages come to it flushed or never linked. 4. proofs go to
// no other policy.
unsafe impl<W: OpenWindow, C: Construct> Policy for OwnPolicy<'_, W, C> {
    fn machine(&self) -> MachineId {
        self.source.frames().machine()
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        None
    }

    fn root(&self) -> Option<Level> {
        Some(self.source.layout().root())
    }

    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        if level > self.source.layout().root() {
            return Err(self.none(here, level));
        }
        let inside = &mut *self.lock();
        let cpu = usize::from(here.cpu().0);
        let answer = inside.ask("alloc", level, cpu, |policy| policy.alloc(level.0, cpu));
        let kept = answer.flatten().map(|token| self.as_level(inside, token, level)).transpose();
        let kept = kept.unwrap_or_else(|why| {
            inside.fail(why);
            None
        });
        self.release_dropped(inside);
        if inside.failure.is_some() {
            // Ends the replay.
            return Err(self.none(here, level));
        }
        let page = match kept {
            Some(page) => page,
            None => {
                let page = self.source.make(here.node(), level, flags)?;
                inside.counts.levels[level.at()].misses += 1;
                page
            }
        };
        inside.counts.levels[level.at()].allocs += 1;
        Ok(page)
    }

    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
    }

    fn adopt(&self, _: Here<'_>, page: &Clean) {
        let counts = &mut self.lock().counts.levels[page.level().at()];
        counts.allocs += 1;
        counts.misses += 1;
    }

    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        self.give(here, page.into_inner());
    }

    fn flushed(&self, here: Here<'_>, mut pages: Returned<Flushed>) {
        // SAFETY: 1. the source makes this policy's pages of its frames.
        while let Some(page) = unsafe { pages.pop(self.source.frames()) } {
            self.give(here, page.into_inner());
        }
    }

    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
    }

    fn gather_end(&self, _: Here<'_>) {}

    fn idle(&self, _: Here<'_>) {}

    fn end_interval(&self, _: Here<'_>) -> u32 {
        0
    }

    fn reclaim(&self, _: Here<'_>, _: NodeId, _: u32) -> u32 {
        0
    }

    /// The first CPU that drains ends the policy: all its pages go back, for all CPUs.
    fn drain(&self, _: Here<'_>) {
        let inside = &mut *self.lock();
        inside.at_end.get_or_insert(inside.counts);
        inside.end();
        for page in inside.pages.all() {
            self.release(inside, page);
        }
    }

    fn counts(&self) -> PolicyCounts {
        self.lock().counts
    }
}
