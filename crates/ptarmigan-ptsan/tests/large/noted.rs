//! Uses pages of the kernel's half as soon as they are mapped, in formats of every kind: no code
//! serves a fault there. The software MMU decodes entries as the architecture's manual says.
use crate::pages_of;
use ptarmigan::addr::{Pfn, VirtAddr};
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::AllocFlags;
use ptarmigan::highmem::{Install, Remove, Slots};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::table::{KernelRange, KernelSlots};
use ptarmigan::tlb::TlbConfig;
use ptarmigan::vmalloc::Vmalloc;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use ptsan::{Arch, Config};

const NORMAL: AllocFlags = AllocFlags::NORMAL;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);
/// Beyond the host's memory, and aligned for every large page.
const FAR: Pfn = Pfn(0x8_0000);

/// Reads and writes the page at `at`, which the library says is mapped with `attr`.
fn used<F: Format, T: MmuTraits>(soft: &SoftMmu<'_, F, T>, at: u64, attr: Attr) {
    let use_it = |kind: ptsan::Access| {
        soft.with(|sanitizer, memory| sanitizer.translate(memory, 0, at, kind.kernel())).is_ok()
    };
    let done = [use_it(ptsan::Access::READ), use_it(ptsan::Access::WRITE)];
    assert_eq!(done, [attr.has(Attr::READ), attr.has(Attr::WRITE)], "{} {at:#x} {attr}", F::NAME);
}

fn range<F: Format, T: MmuTraits, M: Machine>(
    soft: &SoftMmu<'_, F, T>,
    on: On<'_, M>,
    range: &mut KernelRange<'_, F, DirectMap>,
) {
    let (start, page) = (range.start(), 1u64 << F::PAGE_SHIFT);
    let large = if F::LAYOUT.levels > 2 && F::LEAF_LEVELS & 2 != 0 { Level(1) } else { Level::PTE };
    let pages = pages_of::<F>(Level(1)) + 3;
    let ends = [0, 1, pages - 4, pages - 1].map(|n| start.0 + n * page);
    for attr in [Attr::READ, RW, Attr::READ | Attr::EXEC] {
        // SAFETY: 1. no code uses the frames.
        unsafe { range.map(on, start, FAR, 1, attr, NORMAL).unwrap() };
        used(soft, start.0, attr);
        for change in [Attr::default(), Attr::READ, RW] {
            range.protect(on, start, 1, |_| change).unwrap();
            used(soft, start.0, change);
        }
        range.unmap(on, start, 1, |_, _| {}).unwrap();
        // As the documentation maps a framebuffer.
        // SAFETY: 1. as above.
        unsafe { range.map_range_large(on, start, FAR, pages, attr, large, NORMAL).unwrap() };
        ends.iter().for_each(|at| used(soft, *at, attr));
        range.protect(on, start, pages, |old| old | Attr::WRITE).unwrap();
        ends.iter().for_each(|at| used(soft, *at, attr | Attr::WRITE));
        if large > Level::PTE {
            range.split(on, start, Level::PTE).unwrap();
            ends.iter().for_each(|at| used(soft, *at, attr | Attr::WRITE));
            range.collapse(on, start, large).unwrap();
            ends.iter().for_each(|at| used(soft, *at, attr | Attr::WRITE));
        }
        range.unmap(on, start, pages, |_, _| {}).unwrap();
    }
}

fn areas<F: Format, T: MmuTraits, M: Machine>(
    soft: &SoftMmu<'_, F, T>,
    on: On<'_, M>,
    areas: &mut Vmalloc<'_, F, DirectMap>,
) {
    let pages = pages_of::<F>(Level(1)).min(1024) + 3;
    for attr in [Attr::READ, RW] {
        for kind in 0..3 {
            let area = match kind {
                0 => areas.alloc(on, 3, attr, NORMAL),
                1 => areas.alloc_large(on, pages, attr, NORMAL),
                // SAFETY: 1. no code uses the frames.
                _ => unsafe { areas.map(on, FAR, pages, attr, NORMAL) },
            };
            let area = area.unwrap();
            let ends = [area.start().0, area.start().0 + ((area.pages() - 1) << F::PAGE_SHIFT)];
            ends.iter().for_each(|at| used(soft, *at, attr));
            areas.protect(on, &area, |old| old | Attr::WRITE).unwrap();
            ends.iter().for_each(|at| used(soft, *at, RW));
            areas.free(on, area).map_err(|refused| refused.error).unwrap();
        }
    }
}

fn operations<F: Format, T: MmuTraits>(soft: &SoftMmu<'_, F, T>, host: &Host<F>) {
    let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
    let machine = HostMachine::with_tlb(host, policy, soft, TlbConfig::new(1), Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let bytes = 4u64 << F::shift(Level(1));
    // The host has the first part of the half for itself.
    let steps = [1u64 << F::shift(F::LAYOUT.root()), bytes];
    let places =
        steps.into_iter().flat_map(|step| (0..64).map(move |n| F::KERNEL_START.wrapping_add(n * step)));
    let mut claims = places.filter_map(|at| host.kernel().claim(on, VirtAddr(at), bytes).ok());
    let mut claimed = claims.next().unwrap();
    drop(claims);
    soft.load_kernel_root(0, host.kernel().root());
    range(soft, on, &mut claimed);
    let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(bytes)).unwrap();
    let mut vmalloc = Vmalloc::new(&mut boot, claimed).unwrap_or_else(|e| panic!("{}", e.error));
    areas(soft, on, &mut vmalloc);
    let claimed = vmalloc.into_range().unwrap_or_else(|refused| panic!("{}", refused.error));
    let mut boot = host.boot(64 << 10).unwrap();
    let window = KernelSlots::new(&mut boot, on, claimed, Attr::default());
    let window = window.unwrap_or_else(|refused| panic!("{}", refused.error));
    // SAFETY: 1. a slot that no other code uses. 2. it shows nothing. 3. no code uses the frame.
    window.install(unsafe { Install::new(1, FAR) }).unwrap();
    used(soft, window.page(1), RW);
    // SAFETY: 1. as above. 2. no pointer was taken.
    window.remove(unsafe { Remove::new(1) }).unwrap();
    // SAFETY: 1. nor of any other slot.
    let claimed = unsafe { window.into_range(on) }.unwrap_or_else(|refused| panic!("{}", refused.error));
    claimed.release(on, |_, _| panic!("a page is left")).map_err(|(e, _)| e).unwrap();
    machine.drain(&slots);
}

fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    let host = Host::<F>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let soft = SoftMmu::<_, T>::like(&host, Config { barriers: T::BROADCASTS, ..Config::new(arch()) });
    soft.told(|| operations(&soft, &host));
    host.audit().unwrap();
    soft.with(|sanitizer, _| assert_eq!(sanitizer.total(), 0, "{}: {sanitizer}", F::NAME));
}

each_format! {
    noted_on_i386 I386, Interrupting;
    noted_on_x86_64 X86_64, Interrupting;
    noted_on_sv32 Sv32, Fencing;
    noted_on_sv39 Sv39, Fencing;
    noted_on_sv48_napot Sv48Napot, Fencing;
    noted_on_aarch64_4k Aarch64Upper, Broadcasting;
    noted_on_aarch64_16k Aarch64K16Upper, Broadcasting;
}
