# PVH entry: 32-bit protected mode, paging off, ebx = physical address of the start information.

PVH_NOTE

.section .boot,"ax",@progbits
.code32
.globl pvh_start
pvh_start:
    cli
    cld
    MAP_LOW

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
