// Entry: EL1, MMU off, at physical addresses.

.section .boot,"ax",@progbits
.globl start
start:
    msr daifset, #0xf
    // Addresses relative to pc are physical ones here.
    adrp x0, boot_root
    msr ttbr0_el1, x0               // the identity, until the jump
    msr ttbr1_el1, x0
    ldr x0, ={mair}                 // memory types as the library's formats have them
    msr mair_el1, x0
    // TCR_EL1: 48 bits each, walks write-back and inner shareable, granule 4 KiB, output addresses
    // of 40 bits.
    ldr x0, =(16 | 1 << 8 | 1 << 10 | 3 << 12 | 16 << 16 | 1 << 24 | 1 << 26 | 3 << 28 | 2 << 30 | 2 << 32)
    msr tcr_el1, x0
    mov x0, #(3 << 20)              // CPACR_EL1: vector registers
    msr cpacr_el1, x0
    tlbi vmalle1
    dsb ish
    isb
    mrs x0, sctlr_el1
    ldr x1, =0x801005               // M, C, I; SPAN: this kernel is its own user
    orr x0, x0, x1
    msr sctlr_el1, x0
    isb
    ldr x0, =high
    br x0
high:
    // Off the identity, which only the jump needed. The lower half is the user's from here on.
    adrp x0, empty_root
    ldr x1, =0xffff000000000000
    sub x0, x0, x1
    msr ttbr0_el1, x0
    isb
    tlbi vmalle1
    dsb nsh
    adrp x0, vectors
    add x0, x0, :lo12:vectors
    msr vbar_el1, x0
    isb
    adrp x0, stack_end
    add x0, x0, :lo12:stack_end
    mov sp, x0
    b kernel_main
.ltorg

.section .bss
.balign 16
    .zero 0x10000
stack_end:
