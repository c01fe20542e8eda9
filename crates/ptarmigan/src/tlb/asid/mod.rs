//! Numbers spaces, so that TLBs keep several apart: ASIDs, x86's PCIDs.
//!
//! Machines that interrupt each other give a space a number of its own on [each CPU](per_cpu): no
//! CPU needs to know another's. A machine whose invalidations are broadcast names the space by its
//! number to all CPUs at once, so a space has the same number [on the whole machine](machine_wide).
pub mod machine_wide;
pub mod per_cpu;
