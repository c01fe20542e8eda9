//! Calls a function of a test at each hook of a layer.
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Flushed, Level};
use ptarmigan::quicklist::{Layer, Policy};

/// A hook of [`Layer`], with the arguments that a test may compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCall {
    /// A page is about to be allocated.
    Alloc(Level),
    /// It has been, or memory has run out.
    Allocated(Level, Option<PhysAddr>),
    /// [`Layer::adopted`].
    Adopted(PhysAddr),
    /// [`Layer::freeing`]; never if the layer has no frames.
    Freeing(Level, PhysAddr),
    /// [`Layer::free_unlinked`].
    FreeUnlinked(PhysAddr),
    /// [`Layer::flushed`], with the number of pages.
    Flushed(usize),
    /// [`Layer::after_flushed`].
    AfterFlushed,
    /// [`Layer::gather_end`].
    GatherEnd,
    /// [`Layer::idle`].
    Idle,
    /// [`Layer::end_interval`].
    EndInterval,
    /// [`Layer::reclaim`].
    Reclaim(NodeId, u32),
    /// [`Layer::drain`].
    Drain,
}

/// A layer around a policy that calls a function of the test at each hook. The function may write
/// the calls down, look at the tables, make other calls, or unwind.
///
/// ```
/// use ptarmigan::format::X86_64;
/// use ptarmigan::machine::Machine;
/// use ptarmigan::quicklist::Layered;
/// use ptarmigan::space::Space;
/// use ptarmigan_hosted::test::{LayerCall, TestLayer};
/// use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::<X86_64>::new(HostConfig::default())?;
/// let tables = AtomicUsize::new(0);
/// let layer = TestLayer::new(Some(host.frames()), |_, call| match call {
///     LayerCall::Allocated(_, Some(_)) => _ = tables.fetch_add(1, Ordering::Relaxed),
///     LayerCall::Freeing(..) => _ = tables.fetch_sub(1, Ordering::Relaxed),
///     _ => {}
/// });
/// let policy = Layered::new(layer, host.quicklists()?).map_err(|refused| refused.error)?;
/// let machine = HostMachine::new(&host, policy, NoTlb)?;
/// let slots = host.slots();
/// let pin = slots[0].pin();
/// let on = machine.on(&pin)?;
///
/// let space = Space::<X86_64>::new(on)?;
/// assert_eq!(tables.load(Ordering::Relaxed), 1, "the root");
/// space.end(on)?;
/// assert_eq!(tables.load(Ordering::Relaxed), 0);
/// # Ok(())
/// # }
/// ```
pub struct TestLayer<'f, H> {
    frames: Option<&'f Frames>,
    hook: H,
}

impl<'f, H: Fn(&Pinned<'_>, LayerCall)> TestLayer<'f, H> {
    /// Makes a layer that calls `hook`. With the frames of its machine, it is told of each table
    /// that comes back.
    pub fn new(frames: Option<&'f Frames>, hook: H) -> Self {
        TestLayer { frames, hook }
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy + ?Sized, H: Fn(&Pinned<'_>, LayerCall) + Sync> Layer<P> for TestLayer<'_, H> {
    fn frames(&self) -> Option<&Frames> {
        self.frames
    }

    fn alloc(
        &self,
        _: &P,
        pin: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        (self.hook)(pin, LayerCall::Alloc(level));
        let page = inner();
        (self.hook)(pin, LayerCall::Allocated(level, page.as_ref().ok().map(Clean::addr)));
        page
    }

    fn adopted(&self, _: &P, pin: &Pinned<'_>, page: &Clean) {
        (self.hook)(pin, LayerCall::Adopted(page.addr()));
    }

    fn freeing(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        (self.hook)(pin, LayerCall::Freeing(level, at));
    }

    fn free_unlinked(&self, _: &P, pin: &Pinned<'_>, page: &Clean) {
        (self.hook)(pin, LayerCall::FreeUnlinked(page.addr()));
    }

    fn flushed(&self, _: &P, pin: &Pinned<'_>, pages: &Flushed) {
        (self.hook)(pin, LayerCall::Flushed(pages.len() as usize));
    }

    fn after_flushed(&self, _: &P, pin: &Pinned<'_>) {
        (self.hook)(pin, LayerCall::AfterFlushed);
    }

    fn gather_end(&self, _: &P, pin: &Pinned<'_>) {
        (self.hook)(pin, LayerCall::GatherEnd);
    }

    fn idle(&self, _: &P, pin: &Pinned<'_>) {
        (self.hook)(pin, LayerCall::Idle);
    }

    fn end_interval(&self, _: &P, pin: &Pinned<'_>) {
        (self.hook)(pin, LayerCall::EndInterval);
    }

    fn reclaim(&self, _: &P, pin: &Pinned<'_>, node: NodeId, want: u32) {
        (self.hook)(pin, LayerCall::Reclaim(node, want));
    }

    fn drain(&self, _: &P, pin: &Pinned<'_>) {
        (self.hook)(pin, LayerCall::Drain);
    }
}
