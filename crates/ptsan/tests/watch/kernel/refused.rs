//! Instructions that are not carried out.
use super::{Machine, config, store};
use crate::signals::{alone, dies_of, is_inside};
use ptsan::Config;
use ptsan::watch::Error;
use std::arch::asm;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;
use x86_64::registers::model_specific::{FsBase, Msr};

const VA: u64 = 0x4020_4000;

/// Executes an instruction that ends the run, and returns the error. The code stores before and
/// after it.
#[track_caller]
fn refused(machine: &Machine, code: impl FnOnce()) -> Error {
    let place = machine.root + 12 * 4096;
    store(place, 0);
    // SAFETY: 1. The frames hold no value that must be dropped. 2. It needs no more.
    let ended = unsafe {
        machine.watch.run_on(0, || {
            store(place, 1);
            code();
            store(place, 2);
        })
    };
    assert_eq!(machine.watch.memory().load(place), Some(1), "the run ended there");
    ended.expect_err("refused")
}

#[test]
fn an_unemulated_instruction_ends_the_run_and_is_named() {
    /// Executes the instruction, and returns its address too.
    macro_rules! code {
        ($address:ident, $($instruction:literal),+) => {
            // SAFETY: the processor refuses the instruction.
            || unsafe {
                asm!("lea {x}, [rip + 2f]", "mov [{to}], {x}", "2:", $($instruction),+, to = in(reg) &raw mut $address, x = out(reg) _,
                    out("rax") _, out("rdx") _, out("rcx") _)
            }
        };
    }
    let machine = Machine::plain(VA);
    let mut at = 0usize;
    macro_rules! each {
        ($(($bytes:expr, $($instruction:literal),+)),+ $(,)?) => {
            $({
                let error = refused(&machine, code!(at, $($instruction),+));
                let Error::Instruction { rip, code, why, value } = error else { panic!("{error}") };
                assert_eq!((rip, value), (at, None), "{}", stringify!($($instruction),+));
                let bytes: &[u8] = &$bytes;
                assert!(code.bytes().starts_with(bytes), "{error}");
                let invalid = bytes == [0x0f, 0x0b] || bytes == [0x0f, 0x01, 0xca];
                assert!(why.starts_with(if invalid { "is invalid" } else { "raised a general" }), "{error}");
                let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
                let text = error.to_string();
                assert!(text.contains(&hex.join(" ")) && text.contains(&format!("{at:#x}")), "{text}");
            })+
        };
    }
    each!(
        ([0x0f, 0x01, 0xf8], "swapgs"),
        ([0x0f, 0x08], "invd"),
        ([0x0f, 0x06], "clts"),
        ([0xee], "out dx, al"),
        ([0x0f, 0x01, 0x10], "lgdt [rax]"),
        ([0x0f, 0x00, 0xd8], "ltr ax"),
        ([0x0f, 0x21, 0xf8], "mov rax, dr7"),
        ([0x0f, 0x01, 0xca], "clac"),
        ([0x0f, 0x0b], "ud2"),
    );
    assert_eq!(machine.total(), 0, "{}", machine.watch);
    machine.run(|| store(machine.entry, 0));
}

#[test]
fn a_value_that_a_processor_refuses_ends_the_run_and_is_named() {
    let machine = Machine::plain(VA);
    let says = |code: &dyn Fn(), parts: &[&str]| {
        let text = refused(&machine, code).to_string();
        for part in parts {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    };
    says(&|| execute!("mov cr3, {}", in(reg) 1u64 << 60), &["reserved bits of CR3", "0x1000000000000000"]);
    says(&|| execute!("mov cr4, {}", in(reg) 0x200a0u64), &["0f 22 e", "`Config::asids`"]);
    says(&|| execute!("mov cr4, {}", in(reg) 0u64), &["format in CR4"]);
    says(&|| execute!("mov cr0, {}", in(reg) 1u64), &["turns paging off"]);
    says(&|| execute!("mov {}, cr8", out(reg) _), &["other than 0, 2, 3 and 4", "(0x8)"]);
    says(&|| FsBase::write(VirtAddr::new(0x1000)), &["0f 30", "(0xc0000100)"]);
    // SAFETY: the register is emulated.
    let read = |number| unsafe { Msr::new(number).read() };
    says(&|| _ = read(0x1b), &["0f 32", "model-specific", "(0x1b)"]);
    let descriptor = [5u64, 0];
    let invpcid = |kind: u64| execute!("invpcid {}, [{}]", in(reg) kind, in(reg) &raw const descriptor);
    says(&|| invpcid(1), &["names a PCID", "CR4.PCIDE"]);
    says(&|| invpcid(4), &["type above 3"]);
    // A pointer that no processor takes is a general-protection fault as well.
    says(&|| execute!("mov al, [{}]", in(reg) 1u64 << 63, out("al") _), &["8a 0", "is not emulated"]);
    let tagged = Machine::new(Config { asids: true, ..config() }, VA, 0);
    tagged.run(|| execute!("mov cr4, {}", in(reg) 0x200a0u64));
}

#[test]
fn a_privileged_instruction_outside_a_run_crashes() {
    if is_inside() {
        let machine = Machine::plain(VA);
        let _ = machine.watch.run(|| tlb::flush(VirtAddr::new(VA)));
        return;
    }
    let name = "kernel::refused::a_privileged_instruction_outside_a_run_crashes";
    dies_of(name, libc::SIGSEGV);
}

#[test]
fn a_page_fault_in_kernel_code_is_a_crash_as_ever() {
    if is_inside() {
        let machine = Machine::plain(VA);
        return machine.run(|| store(8, 1));
    }
    dies_of("kernel::refused::a_page_fault_in_kernel_code_is_a_crash_as_ever", libc::SIGSEGV);
}

#[test]
fn an_illegal_instruction_elsewhere_is_a_crash_as_ever() {
    if is_inside() {
        let machine = Machine::plain(VA);
        // SAFETY: unsound on purpose: the fault is the test.
        let _ = machine.watch.run(|| execute!("ud2"));
        return;
    }
    dies_of("kernel::refused::an_illegal_instruction_elsewhere_is_a_crash_as_ever", libc::SIGILL);
}

#[test]
fn a_privileged_instruction_under_the_sanitizer_says_so() {
    if is_inside() {
        let machine = Machine::plain(VA);
        return machine.run(|| machine.watch.with(|_, _| tlb::flush(VirtAddr::new(VA))));
    }
    let name = "kernel::refused::a_privileged_instruction_under_the_sanitizer_says_so";
    let text = dies_of(name, libc::SIGSEGV);
    assert!(text.contains("inside `Watch::with`"), "{text}");
}

#[test]
fn decoding_does_not_read_beyond_the_instructions_page() {
    if !is_inside() {
        let name = "kernel::refused::decoding_does_not_read_beyond_the_instructions_page";
        let out = alone(name);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let machine = Machine::plain(VA);
    // SAFETY: a new mapping of which the second page is taken away again.
    let page = unsafe {
        let (rwx, how) =
            (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let pages = libc::mmap(std::ptr::null_mut(), 8192, rwx, how, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::munmap(pages.wrapping_byte_add(4096), 4096), 0);
        pages.cast::<u8>()
    };
    for code in [&[0xf4][..], &[0x0f, 0x0b], &[0x0f, 0x01, 0xf8]] {
        let at = page.wrapping_add(4096 - code.len());
        // SAFETY: the code fits before the end of the page, and ends the run.
        let ended = unsafe {
            at.copy_from(code.as_ptr(), code.len());
            let function: extern "C" fn() = std::mem::transmute(at);
            machine.watch.run_on(0, || function())
        };
        match ended {
            Ok(ended) => assert!(ended.halted() && code.len() == 1),
            Err(Error::Instruction { rip, code: named, .. }) => {
                assert_eq!((rip, named.bytes()), (at.addr(), code));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
