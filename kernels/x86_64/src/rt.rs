//! What the compiler expects to find: memory functions, an unwinder's name, a panic handler.

use core::arch::global_asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Outcome, exit};
use crate::say;

static PANICKING: AtomicBool = AtomicBool::new(false);

/// Reports once. A panic while reporting would report for ever, so it ends the machine in silence.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if !PANICKING.swap(true, Ordering::Relaxed) {
        say!("FAIL {info}");
    }
    exit(Outcome::Fail)
}

// The host's target expects these from libc and libstd. Nothing unwinds: the profile says abort.
global_asm!(
    r#"
.section .text
.globl memcpy, memmove, memset, memcmp, bcmp, rust_eh_personality, _Unwind_Resume
memcpy:
    mov rax, rdi
    mov rcx, rdx
    rep movsb
    ret
memmove:
    mov rax, rdi
    mov rcx, rdx
    cmp rdi, rsi
    ja 2f
    rep movsb
    ret
2:  lea rdi, [rdi + rdx - 1]
    lea rsi, [rsi + rdx - 1]
    std
    rep movsb
    cld
    ret
memset:
    mov r8, rdi
    mov eax, esi
    mov rcx, rdx
    rep stosb
    mov rax, r8
    ret
memcmp:
bcmp:
    xor ecx, ecx
2:  cmp rcx, rdx
    je 3f
    movzx eax, byte ptr [rdi + rcx]
    movzx r8d, byte ptr [rsi + rcx]
    inc rcx
    sub eax, r8d
    je 2b
    ret
3:  xor eax, eax
    ret
rust_eh_personality:
_Unwind_Resume:
    ud2
"#
);
