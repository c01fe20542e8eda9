//! A machine in a static.
use super::error::{KernelError, SetupError};
use super::objects::{NoObjects, Objects};
use super::parts::MachineParts;
use super::place::Place;
use super::plan::Setup;
use crate::bootmem::BootMemory;
use crate::cpu::{CpuId, MachineId, NodeId, Pinned};
use crate::format::Format;
use crate::machine::{Machine, On};
use crate::sync::once::Once;
use crate::tlb::Shootdown;
use crate::window::OpenWindow;

/// A machine for a static of a kernel's: empty until it is [set up](Self::set_up), there for good
/// after. An example is at [`Setup`].
pub struct Kernel<F: Format, W: 'static, S: 'static, O: 'static = NoObjects> {
    place: Place<F, W>,
    parts: Once<MachineParts<'static, F, W, S, O>>,
}

impl<F: Format, W, S, O> Kernel<F, W, S, O> {
    /// Makes an empty one.
    pub const fn new() -> Self {
        Kernel { place: Place::new(), parts: Once::new() }
    }
}

impl<F: Format, W, S, O> Default for Kernel<F, W, S, O> {
    fn default() -> Self {
        Kernel::new()
    }
}

impl<F: Format, W: OpenWindow + Copy, S: Shootdown, O: Objects> Kernel<F, W, S, O> {
    /// Sets the machine up; returns the boot memory that is left, as
    /// [`Setup::build_in`] does.
    ///
    /// # Errors
    ///
    /// [`SetupError`] names the part, and what would do; [`SetupError::Twice`] if it is set up
    /// already. Nothing has changed then.
    ///
    /// # Safety
    ///
    /// 1. From now on nothing else uses the memory of the runs, programs to which the machine's
    ///    spaces show it apart.
    /// 2. The window reaches that memory, in every space, for good. It reaches the root that
    ///    [`kernel_root`](Setup::kernel_root) names, and the tables that map the window.
    /// 3. Through the kernel's half of that root the user has no access, and tables that it links
    ///    stay for good. Nothing writes to the root while this runs.
    pub unsafe fn set_up<'a>(&'static self, setup: Setup<'a, W, S, O>) -> Result<BootMemory, SetupError> {
        let mut left = None;
        let filled = self.parts.fill(|| {
            // SAFETY: 1. to 3. passed on: the place stays for good.
            let (parts, boot) = unsafe { setup.build_in(&self.place)? };
            left = Some(boot);
            Ok::<_, SetupError>(parts)
        });
        filled.ok_or(SetupError::Twice)??;
        left.ok_or(SetupError::Twice)
    }

    /// Claims that the caller runs on `cpu`, which belongs to node 0. A pin for a kernel that is
    /// not set up is of no machine: [`on`](Self::on) refuses it.
    ///
    /// # Safety
    ///
    /// 1. While the result exists, the code that holds it is the only thread of execution on this
    ///    CPU, except for interrupts that return before it goes on.
    /// 2. `cpu` is below the number of CPUs that the machine was set up with.
    #[inline]
    pub unsafe fn assume(&self, cpu: CpuId) -> Pinned<'_> {
        // SAFETY: 1. and 2. passed on. 3. each machine has a node 0.
        unsafe { self.assume_on(cpu, NodeId(0)) }
    }

    /// As [`assume`](Self::assume), on a node.
    ///
    /// # Safety
    ///
    /// 1. and 2. as for [`assume`](Self::assume).
    /// 3. `node` is below the number of nodes of the memory that the machine was set up with.
    #[inline]
    pub unsafe fn assume_on(&self, cpu: CpuId, node: NodeId) -> Pinned<'_> {
        let id = self.parts.get().map_or(MachineId::NONE, Machine::id);
        // SAFETY: 1. passed on. 2. the same (2. and 3.).
        unsafe { Pinned::assume(id, cpu, node) }
    }

    /// Returns the parts, if they are set up.
    #[inline]
    pub fn parts(&self) -> Option<&MachineParts<'static, F, W, S, O>> {
        self.parts.get()
    }

    /// Returns the machine, seen from the CPU that the caller is pinned to. From here on no part is
    /// looked up or checked.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if it is not set up, or the pin is another machine's.
    #[inline]
    pub fn on<'a>(
        &'a self,
        pin: &'a Pinned<'a>,
    ) -> Result<On<'a, MachineParts<'static, F, W, S, O>>, KernelError> {
        let parts = self.parts.get().ok_or(KernelError::NotSetUp)?;
        Ok(parts.on(pin)?)
    }
}
