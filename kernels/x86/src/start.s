# Pieces of the entries of images on PCs, as macros.

# The note that names the 32-bit entry of a PVH loader.
.macro PVH_NOTE
.section .note.pvh,"a",@note
.balign 4
.long 4, 8, 18                  # name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.quad pvh_start_physical
.endm

# Maps the low 4 GiB by 2 MiB pages, reached twice: as the direct map at 0xffff800000000000 (slot
# 256), where the image is linked, and where they are (slot 0), for the few instructions until the
# jump there. One third-level table serves both. The tables are in zeroed .bss. Changes eax, ecx and
# edi.
.macro MAP_LOW
    mov eax, offset boot_upper_physical
    or eax, 3
    mov [boot_top_physical], eax
    mov [boot_top_physical + 256 * 8], eax
    mov edi, offset boot_upper_physical
    mov eax, offset boot_directories_physical
    or eax, 3
    mov ecx, 4
1:  mov [edi], eax
    add edi, 8
    add eax, 4096
    loop 1b
    mov edi, offset boot_directories_physical
    mov eax, 0x83               # present, writable, 2 MiB
    mov ecx, 2048
1:  mov [edi], eax
    add edi, 8
    add eax, 0x200000
    loop 1b
.endm

# Where another CPU begins, copied to physical 0x8000: real mode. Goes on at `enter` with its
# number, which lies behind the code, in ebp. `code` is a segment of 32-bit code in boot_gdt, which
# ends at `limit`.
.macro TRAMPOLINE code, limit, enter
.code16
.globl trampoline, trampoline_end, trampoline_cpu
trampoline:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x66, 0x0F, 0x01, 0x16            # lgdtl [0x8000 + trampoline_gdtr - trampoline]
    .word trampoline_gdtr - trampoline + 0x8000
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xEA                        # ljmpl code:trampoline32
    .long trampoline32 - trampoline + 0x8000
    .word \code
.code32
trampoline32:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    .byte 0x8B, 0x2D                        # mov ebp, [0x8000 + trampoline_cpu - trampoline]
    .long trampoline_cpu - trampoline + 0x8000
    mov eax, offset \enter
    jmp eax
.balign 4
trampoline_gdtr:
    .word \limit
    .long boot_gdt_physical
.balign 4
trampoline_cpu:
    .long 0
trampoline_end:
.endm
