//! Random calls on a machine under the sanitizer.
pub mod rng;

use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, Advice, AreaFlags, Space};
use ptarmigan::tlb::{CostModel, Costs, Mmu, SpaceId, TlbConfig};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use ptsan::{Adversary, Config};
use rng::Rng;

/// A page of the kernel's.
const KERNEL: Attr = Attr(1 | 2 | 32 | 64);
/// Everything is cheaper than 64 pages, wherever these lie.
pub const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

/// Makes a host of 64 MiB.
pub fn host<F: Format>(cpus: usize) -> Host<F> {
    Host::new(HostConfig { cpus, bytes: 64 << 20, ..HostConfig::default() }).unwrap()
}

/// Findings and counts of a run.
pub struct Found {
    pub findings: u64,
    /// The sanitizer's report of them.
    pub report: String,
    /// Faults that were served.
    pub served: u64,
    /// Accesses that were let through at once.
    pub passed: u64,
}

/// Makes `steps` random maps, unmaps, changes, moves, forks, switches and accesses by several
/// spaces of `F`, on MMUs like `T`. TLBs have `asids` numbers; 0 turns them off. Stores are told if
/// the slots of `F` tell.
pub fn random<F: Format, T: MmuTraits>(seed: u64, steps: u32, asids: u16, config: Config) -> Found {
    let cpus = config.cpus;
    let host = host::<F>(cpus);
    let walkers_set_bits = config.arch.used.is_some() && seed % 2 == 1;
    let config =
        Config { asids: asids != 0, adversary: Some(Adversary::new(seed)), walkers_set_bits, ..config };
    let soft = SoftMmu::<_, T>::like(&host, config);
    let (served, passed) =
        soft.told(|| calls(&host, &soft, &soft, &Calls { seed, steps, asids, cpus, due: false }));
    host.audit().unwrap();
    soft.with(|san, _| {
        san.finish();
        Found { findings: san.total(), report: san.to_string(), served, passed }
    })
}

/// Which calls to make.
pub struct Calls {
    pub seed: u64,
    pub steps: u32,
    pub asids: u16,
    pub cpus: usize,
    /// Flushes are due when each call returns; pages of the kernel's half are mapped, used,
    /// protected and unmapped as well, if the format has any.
    pub due: bool,
}

/// Makes the calls, on MMUs that have `soft` forget; returns the faults that were served, and the
/// accesses that were let through.
pub fn calls<F: Format, T: MmuTraits>(
    host: &Host<F>,
    soft: &SoftMmu<'_, F, T>,
    mmu: impl Mmu,
    &Calls { seed, steps, asids, cpus, due }: &Calls,
) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let page = 1 << F::PAGE_SHIFT;
    let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids, costs: COSTS, ..TlbConfig::new(cpus) };
    let machine = HostMachine::with_tlb(host, policy, mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let mut spaces: Vec<Space<F>> = Vec::new();
    let mut on_cpu: Vec<Option<SpaceId>> = vec![None; cpus];
    let (mut served, mut passed) = (0, 0);
    // The last tables of the address space.
    let window = (1u64 << 22).wrapping_neg();
    let has_kernel = F::USER_ROOT_ENTRIES < F::entries(F::LAYOUT.root());
    let mut range = (due && has_kernel).then(|| {
        let pin = slots[0].pin();
        host.kernel().claim(machine.on(&pin).unwrap(), VirtAddr(window), 1 << 22).unwrap()
    });
    for _ in 0..steps {
        let cpu = rng.below(cpus as u64) as usize;
        let pin = slots[cpu].pin();
        let on = machine.on(&pin).unwrap();
        if due {
            soft.with(|san, memory| san.flushes_done(memory));
        }
        if let Some(range) = &mut range {
            // A page in each of two tables, and one beside it.
            let at = VirtAddr(window + (rng.below(2) << 21) + rng.below(2) * page);
            let attr = [KERNEL, KERNEL | Attr::GLOBAL][rng.below(2) as usize];
            let mapped = range.query(on, at).is_some();
            match rng.below(8) {
                // SAFETY: 1. nobody uses the memory behind the frame, which the host does not have.
                0 | 1 if !mapped => unsafe {
                    range.map(on, at, Pfn(0x10_0000 + rng.below(64) as u32), 1, attr, AllocFlags::NORMAL)
                }
                .unwrap(),
                0 if mapped => range.unmap(on, at, 1, |_, _| {}).unwrap(),
                1 if mapped => range.protect(on, at, 1, |was| Attr(was.0 ^ Attr::WRITE.0)).unwrap(),
                2..=4 => {
                    for (other, slot) in slots.iter().enumerate().take(cpus) {
                        let kernel = ptsan::Access::READ.kernel();
                        let mut found = soft.access(other, at.0, kernel);
                        // A fault of the kernel, on the CPU itself.
                        let pin = (other != cpu).then(|| slot.pin());
                        let there = pin.as_ref().map_or(on, |pin| machine.on(pin).unwrap());
                        if !found && host.kernel().serve_fault(there, at, Access::Read) {
                            found = soft.access(other, at.0, kernel);
                        }
                        assert_eq!(found, mapped, "the kernel's page at {at:?} on CPU {other}");
                    }
                }
                _ => {}
            }
        }
        if F::USER_ROOT_ENTRIES == 0 {
            continue;
        }
        if spaces.len() < 4 {
            spaces.push(Space::new(on).unwrap());
        }
        let at = rng.below(spaces.len() as u64) as usize;
        // Three leaf tables, two of which share the table above.
        let far = if F::USER_END > 1 << 40 { 0x80_0000_0000 } else { 0x20_0000_0000 };
        let place = |n: u64| [0x4000_0000, 0x4020_0000, far][n as usize % 3];
        let start = place(rng.below(3)) + rng.below(12) * page;
        let range = VirtRange::new(start, start + (1 + rng.below(12)) * page).unwrap();
        let wide = VirtRange::fixed::<0x4000_0000, 0x4040_0000>();
        let flags = [3, 3, 1, 3, 5, 0].map(AreaFlags)[rng.below(6) as usize];
        match rng.below(40) {
            0 => {
                let space = spaces.swap_remove(at);
                on_cpu.iter_mut().filter(|on| **on == Some(space.tlb().id())).for_each(|on| *on = None);
                space.end(on).unwrap();
            }
            1 if spaces.len() < 7 => {
                let child = spaces[at].edit(on).unwrap().fork().unwrap();
                spaces.push(child);
            }
            2 | 3 => spaces[at].edit(on).unwrap().munmap(range).unwrap(),
            4 => spaces[at].edit(on).unwrap().munmap(wide).unwrap(),
            5 => _ = spaces[at].edit(on).unwrap().madvise(range, Advice::DontNeed),
            6 => _ = spaces[at].edit(on).unwrap().mprotect(range, flags),
            13 => {
                let to = place(rng.below(3)) + rng.below(12) * page;
                let to = VirtRange::new(to, to + range.len()).unwrap();
                let _ = spaces[at].edit(on).unwrap().mremap(range, to, false);
            }
            14 => {
                let to = VirtRange::fixed::<0xc000_0000, 0xc040_0000>();
                let (from, to) = if rng.below(2) == 0 { (wide, to) } else { (to, wide) };
                let _ = spaces[at].edit(on).unwrap().mremap(from, to, false);
            }
            15 => spaces[at].edit(on).unwrap().mmap(wide, flags, 0).unwrap(),
            7..=9 => spaces[at].edit(on).unwrap().mmap(range, flags, 0).unwrap(),
            10..=12 => {
                if let Some(old) = on_cpu[cpu].and_then(|id| spaces.iter().find(|s| s.tlb().id() == id))
                    && old.tlb().id() != spaces[at].tlb().id()
                {
                    old.deactivate(on).unwrap();
                }
                spaces[at].activate(on).unwrap();
                on_cpu[cpu] = Some(spaces[at].tlb().id());
            }
            _ => {
                let Some(at) = on_cpu[cpu].and_then(|id| spaces.iter().position(|s| s.tlb().id() == id))
                else {
                    continue;
                };
                let (access, kind) =
                    [(Access::Read, ptsan::Access::READ), (Access::Write, ptsan::Access::WRITE)]
                        [rng.below(2) as usize];
                // The access; the fault; the access again.
                if soft.access(cpu, start, kind) {
                    passed += 1;
                } else if spaces[at].fault(on, VirtAddr(start), access).is_ok() {
                    served += 1;
                    // A CPU may keep an empty entry above the one of the page: it faults once more.
                    let works = soft.access(cpu, start, kind)
                        || spaces[at].fault(on, VirtAddr(start), access).is_ok()
                            && soft.access(cpu, start, kind);
                    assert!(works, "served, and faults again: {access:?} at {start:#x}");
                }
            }
        }
    }
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    for space in spaces {
        space.end(on).unwrap();
    }
    if let Some(range) = range {
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    }
    if due {
        soft.with(|san, memory| san.flushes_done(memory));
    }
    machine.drain(&slots);
    (served, passed)
}
