//! The forms in which compilers write the operands.
use super::{Machine, store};
use crate::PAGE;
use ptsan::Kind;
use std::arch::asm;

/// An address that fits in every form, in an even page.
const VA: u64 = 0x4020_4000;
const FAR: u64 = 0xffff_8000_0040_2000;

/// Checks that the code, which invalidates the address, drops that page and no other.
#[track_caller]
fn drops_one(va: u64, code: impl FnOnce(u64)) {
    let page = va & !0x1fff;
    let machine = Machine::plain(page);
    machine.use_both(0);
    machine.unmap_both();
    machine.run(|| code(va));
    let other = u64::from(va & PAGE == 0);
    assert!(!machine.reaches(0, 1 - other), "it is flushed");
    assert_eq!(machine.total(), 0, "{}", machine.watch);
    assert!(machine.reaches(0, other), "its neighbour is not");
    assert_eq!(machine.stale(), 1);
}

/// Two pages, of which the program's code knows the address.
#[repr(align(8192))]
struct Pages([u8; 8192]);
static PAGES: Pages = Pages([1; 8192]);

#[test]
fn every_form_of_invlpg_drops_exactly_its_operands_page() {
    macro_rules! invlpg {
        ($form:literal, $($operand:tt)*) => { execute!(concat!("invlpg ", $form), $($operand)*) };
    }
    for va in [VA, VA + 0x1fff, FAR, FAR + PAGE] {
        drops_one(va, |va| invlpg!("[rax]", in("rax") va));
        drops_one(va, |va| invlpg!("[r8]", in("r8") va));
        drops_one(va, |va| invlpg!("[r12]", in("r12") va));
        drops_one(va, |va| invlpg!("[r13]", in("r13") va));
        drops_one(va, |va| invlpg!("[rdi + 64]", in("rdi") va - 64));
        drops_one(va, |va| invlpg!("[rdi - 128]", in("rdi") va + 128));
        drops_one(va, |va| invlpg!("[r14 + 0x12345]", in("r14") va.wrapping_sub(0x12345)));
        drops_one(va, |va| invlpg!("[rcx + rdx]", in("rcx") va - 0x3000, in("rdx") 0x3000));
        drops_one(va, |va| invlpg!("[rcx + r15 * 8 - 8]", in("rcx") va + 8 - 0x3000, in("r15") 0x600));
        drops_one(va, |va| invlpg!("[r13 + rdx * 4]", in("r13") va - 0x1000, in("rdx") 0x400));
        drops_one(va, |va| invlpg!("[r12 + r12]", in("r12") (va as i64 >> 1) as u64));
        drops_one(va, |va| invlpg!("[rdx * 2 + 0x100]", in("rdx") (va - 0x100) >> 1));
        drops_one(va, |va| {
            // SAFETY: reads registers only; the difference to the stack pointer is taken by the
            // code itself.
            unsafe { asm!("sub {va}, rsp", "invlpg [rsp + {va}]", va = inout(reg) va => _) }
        });
        drops_one(va, |va| {
            // SAFETY: reads registers only; the frame pointer is put back.
            unsafe { asm!("xchg rbp, {va}", "invlpg [rbp]", "xchg rbp, {va}", va = inout(reg) va => _) }
        });
        drops_one(va, |va| {
            // SAFETY: reads registers only; the word at the start of the thread's block is its
            // address.
            unsafe { asm!("sub {va}, fs:[0]", "invlpg fs:[{va}]", va = inout(reg) va => _) }
        });
        drops_one(va, |va| invlpg!("gs:[rsi]", in("rsi") va)); // it begins at 0 here
    }
    drops_one(VA, |va| invlpg!("[eax]", in("rax") va | 0xdead << 32));
    drops_one(VA, |va| invlpg!("[eax + 4 * ecx]", in("rax") va - 0x2000, in("rcx") 0x800));
    drops_one(VA, |_| invlpg!("[{va}]", va = const VA));
    drops_one((&raw const PAGES.0).addr() as u64, |_| {
        invlpg!("[rip + {pages}]", pages = sym PAGES);
    });
    drops_one((&raw const PAGES.0).addr() as u64 + PAGE, |_| {
        invlpg!("[rip + {pages} + 4096]", pages = sym PAGES);
    });
}

#[test]
fn invlpg_of_any_canonical_address_drops_held_tables() {
    for (other, drops) in [(VA | 1 << 46, true), (VA | 1 << 47, false), (VA | 1 << 63, false)] {
        let machine = Machine::plain(VA);
        machine.use_both(0);
        let (upper, table) = (machine.root + PAGE + (VA >> 30 & 511) * 8, machine.root + 2 * PAGE);
        machine.run(|| {
            store(upper, 0);
            execute!("invlpg [{}]", in(reg) other);
        });
        machine.watch.with(|san, ram| san.table_freed(ram, table, PAGE));
        let found = machine.watch.with(|san, _| san.count(Kind::FreeBeforeFlush));
        assert_eq!(found == 0, drops, "{other:#x}: {}", machine.watch);
    }
}

#[test]
fn invpcid_reads_its_descriptor_wherever_it_stands() {
    #[repr(C, align(16))]
    struct Descriptor(u64, u64);
    static ALL: Descriptor = Descriptor(0, 0);
    let drops_both = |code: &dyn Fn(&Descriptor)| {
        let machine = Machine::plain(VA);
        machine.use_both(0);
        machine.unmap_both();
        machine.run(|| code(&Descriptor(0, VA)));
        assert_eq!((machine.held(0), machine.total()), ([false, false], 0), "{}", machine.watch);
    };
    drops_both(&|d| execute!("invpcid rax, [rcx]", in("rax") 1u64, in("rcx") d));
    drops_both(&|d| execute!("invpcid r9, [r10]", in("r9") 1u64, in("r10") d));
    drops_both(&|_| execute!("invpcid {}, [rip + {}]", in(reg) 2u64, sym ALL));
    drops_both(&|_| execute!("push 0", "push 0", "invpcid {}, [rsp]", "add rsp, 16", in(reg) 3u64));
    drops_both(&|d| {
        let end = std::ptr::from_ref(d).wrapping_add(1);
        execute!("invpcid {}, [{} + 2 * {} - 16]", in(reg) 2u64, in(reg) end, in(reg) 0u64);
    });
    // One in the watched memory itself.
    let machine = Machine::plain(VA);
    machine.use_both(0);
    machine.unmap_both();
    let descriptor = machine.root + 12 * PAGE + 8;
    machine.run(|| {
        store(descriptor + 8, VA);
        execute!("invpcid {}, [{}]", in(reg) 0u64, in(reg) descriptor);
    });
    assert_eq!((machine.held(0), machine.stale()), ([false, true], 1), "type 0 drops one page");
}

#[test]
fn every_general_register_moves_to_and_from_control_registers() {
    let machine = Machine::plain(VA);
    /// Writes CR2 from a register and reads it into the same one.
    macro_rules! each {
        ($($register:tt),*) => {
            [$({
                let value = 0x1234_5678_9abc_0000 + $register.len() as u64;
                let read: u64;
                // SAFETY: CR2 is emulated, and no code depends on it.
                unsafe {
                    asm!(
                        concat!("mov cr2, ", $register),
                        concat!("xor ", $register, ", ", $register),
                        concat!("mov ", $register, ", cr2"),
                        inout($register) value => read,
                    );
                }
                (read, value)
            }),*]
        };
    }
    let all = machine.run(|| {
        each!("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
    });
    for (i, (read, written)) in all.into_iter().enumerate() {
        assert_eq!(read, written, "register {i}");
    }
    let pair = machine.run(|| {
        let (rbx, rbp): (u64, u64);
        // SAFETY: as above; the registers that the compiler keeps for itself are put back.
        unsafe {
            asm!(
                "mov cr2, {a}", "xchg rbx, {x}", "mov rbx, cr2", "xchg rbx, {x}",
                "xchg rbp, {y}", "mov rbp, cr2", "mov cr2, rbp", "xchg rbp, {y}",
                a = in(reg) 77u64, x = inout(reg) 0u64 => rbx, y = inout(reg) 0u64 => rbp,
            );
        }
        (rbx, rbp)
    });
    assert_eq!(pair, (77, 77));
}
