# PVH entry: 32-bit protected mode, paging off, ebx = physical address of the start information.

.section .note.pvh,"a",@note
.balign 4
.long 4, 8, 18                  # name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.quad pvh_start_physical

.section .boot,"ax",@progbits
.code32
.globl pvh_start
pvh_start:
    cli
    cld
    # The low 4 GiB by 2 MiB pages, reached twice: as the direct map at 0xffff800000000000 (slot 256), where the
    # image is linked, and where they are (slot 0), for the few instructions until the jump there. One third-level
    # table serves both. The tables are in zeroed .bss.
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

    mov eax, cr4
    or eax, 0x620               # PAE, OSFXSR, OSXMMEXCPT: the host's prebuilt core uses SSE
    mov cr4, eax
    mov eax, offset boot_top_physical
    mov cr3, eax
    mov ecx, 0xC0000080         # EFER
    rdmsr
    or eax, 0x900               # LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0x9FFFFFFB         # clear CD, NW, EM
    or eax, 0x80010003          # PG, WP, MP, PE
    mov cr0, eax
    lgdt [gdtr_physical]
    ljmp 0x08, offset start64_physical
.code64
.globl start64
start64:
    movabs rax, offset high
    jmp rax
high:
    lgdt [rip + gdtr64]
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    mov [rip + boot_top], rax   # slot 0, like all of the lower half, is the user's from here on
    mov rax, cr3
    mov cr3, rax
    mov edi, ebx                # first argument: the start information
    lea rsp, [rip + boot_stack + 0x10000]
    xor ebp, ebp
    call kernel_main
1:  hlt
    jmp 1b

.section .data
.balign 16
gdt:
    .quad 0                     # the null descriptor
    .quad 0x00AF9A000000FFFF    # 0x08: 64-bit code
    .quad 0x00CF92000000FFFF    # 0x10: data
.globl tss_descriptor
tss_descriptor:
    .quad 0, 0                  # 0x18: the task state segment, filled in by trap::init
gdtr64:
    .word 39
    .quad gdt
gdtr32:
    .word 39
    .long gdt_physical
.globl gdt, gdtr32
