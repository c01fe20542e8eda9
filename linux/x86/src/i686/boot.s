# Multiboot entry: 32-bit protected mode, paging off, ebx = physical address of the loader's
# information.

.section .multiboot,"a"
.balign 4
.long 0x1BADB002, 3, -(0x1BADB002 + 3)      # modules on page borders, a map of memory

.section .boot,"ax",@progbits
.globl start
start:
    cli
    cld
    jmp check
.globl checked
checked:
    # The low 768 MiB by 2 MiB pages, reached twice: as the direct map at 0xc0000000 (entry 3 of the
    # root), where the image is linked, and where they are (entry 0), for the few instructions until
    # the jump there. Above them lie the windows on high memory, at 0xf0000000, and the registers of
    # the interrupt controller.
    mov edi, offset boot_directory_physical
    mov eax, 0x83               # present, writable, 2 MiB
    mov ecx, 384
1:  mov [edi], eax
    add edi, 8
    add eax, 0x200000
    loop 1b
    mov eax, offset window_table_physical
    or eax, 3
    mov [boot_directory_physical + 384 * 8], eax
    mov eax, 0xfee00083
    mov [boot_directory_physical + 503 * 8], eax
    mov eax, offset boot_directory_physical
    or eax, 1
    mov [boot_root_physical], eax
    mov [boot_root_physical + 24], eax
    xor ebp, ebp                # CPU 0

# Also where the other CPUs come, with their number in ebp.
.globl enter_paging
enter_paging:
    mov eax, cr4
    or eax, 0x620               # PAE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov eax, offset boot_root_physical
    mov cr3, eax
    mov ecx, 0xC0000080         # EFER
    rdmsr
    or eax, 0x800               # NXE
    wrmsr
    mov eax, cr0
    and eax, 0x9FFFFFFB         # clear CD, NW, EM
    or eax, 0x80010023          # PG, WP, NE, MP, PE
    mov cr0, eax
    lgdt [boot_gdtr_physical]
    mov eax, offset high
    jmp eax
high:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    .byte 0xEA                  # ljmp 0x08:loaded
    .long loaded
    .word 0x08
loaded:
    mov eax, ebp
    shl eax, 16
    lea esp, [boot_stacks + eax + 0x10000]
    push ebp                    # second argument: the CPU's number
    push ebx                    # first argument: the loader's information
    xor ebp, ebp
    call kernel_main
1:  hlt
    jmp 1b

TRAMPOLINE 0x08, 23, enter_paging_physical

.section .data
.balign 16
boot_gdt:
    .quad 0                     # the null descriptor
    .quad 0x00CF9A000000FFFF    # 0x08: code
    .quad 0x00CF92000000FFFF    # 0x10: data
boot_gdtr:
    .word 23
    .long boot_gdt_physical
.globl boot_gdt, boot_gdtr
