# PVH entry: 32-bit protected mode, paging off, ebx = physical address of the start information.

PVH_NOTE

.section .boot,"ax",@progbits
.code32
.globl pvh_start, over_message
over_message:
    .asciz "FAIL the initial file system lies over the image: give the machine more memory\n"
.balign 16
pvh_start:
    cli
    cld
    jmp check
.globl checked
checked:
    # QEMU puts the first module at the end of memory, over the image if there is little. The
    # image's .bss is not zero then.
    cmp dword ptr [ebx + 12], 0
    je 2f
    mov eax, [ebx + 16]         # the list of modules, whose first number is an address
    cmp dword ptr [eax + 4], 0
    jne 2f
    mov eax, [eax]
    mov esi, offset over_message_physical
    cmp eax, offset image_end_physical
    jb complain
2:
    MAP_LOW
    xor ebp, ebp                # CPU 0

# Also where the other CPUs come, with their number in ebp.
.globl enter_long
enter_long:
    mov eax, cr4
    or eax, 0x620               # PAE, and OSFXSR, OSXMMEXCPT: programs use SSE
    mov cr4, eax
    mov eax, offset boot_top_physical
    mov cr3, eax
    mov ecx, 0xC0000080         # EFER
    rdmsr
    or eax, 0x901               # SCE, LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0x9FFFFFFB         # clear CD, NW, EM
    or eax, 0x80010023          # PG, WP, NE, MP, PE
    mov cr0, eax
    lgdt [boot_gdtr_physical]
    ljmp 0x08, offset start64_physical
.code64
.globl start64
start64:
    movabs rax, offset high
    jmp rax
high:
    lgdt [rip + boot_gdtr64]
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    mov edi, ebx                # first argument: the start information
    mov esi, ebp                # second argument: the CPU's number
    shl rbp, 16
    lea rsp, [rip + boot_stacks + 0x10000]
    add rsp, rbp
    xor ebp, ebp
    call kernel_main
1:  hlt
    jmp 1b

TRAMPOLINE 0x18, 31, enter_long_physical
.code64

.section .data
.balign 16
boot_gdt:
    .quad 0                     # the null descriptor
    .quad 0x00AF9A000000FFFF    # 0x08: 64-bit code
    .quad 0x00CF92000000FFFF    # 0x10: data
    .quad 0x00CF9A000000FFFF    # 0x18: 32-bit code, for the trampoline
boot_gdtr64:
    .word 31
    .quad boot_gdt
boot_gdtr32:
    .word 31
    .long boot_gdt_physical
.globl boot_gdt, boot_gdtr32
