// Entry: EL1, MMU off, at physical addresses. The first CPU comes from the loader, the others from
// the firmware with their CPU number in x0.

.section .boot,"ax",@progbits
.globl start
start:
    mov x19, #0
    ldr x20, =kernel_main
    b 1f
.globl start_other
start_other:
    mov x19, x0
    ldr x20, =kernel_other
1:  msr daifset, #0xf
    // Addresses relative to pc are physical ones here.
    adrp x0, boot_root
    msr ttbr0_el1, x0               // the identity, until the jump
    msr ttbr1_el1, x0
    ldr x0, ={mair}                 // memory types as the library's formats have them
    msr mair_el1, x0
    // TCR_EL1: 48 bits each (T0SZ, T1SZ), walks write-back and inner shareable, granule 4 KiB, the
    // ASID in TTBR0, of 16 bits if there are.
    ldr x0, =(16 | 1 << 8 | 1 << 10 | 3 << 12 | 16 << 16 | 1 << 24 | 1 << 26 | 3 << 28 | 2 << 30)
    mrs x1, id_aa64mmfr0_el1
    ubfx x2, x1, #4, #4
    cmp x2, #2
    b.ne 2f
    orr x0, x0, #(1 << 36)
2:  and x1, x1, #7                  // output addresses: as many bits as there are, at most 48
    cmp x1, #5
    b.ls 3f
    mov x1, #5
3:  orr x0, x0, x1, lsl #32
    msr tcr_el1, x0
    mov x0, #(3 << 20)              // CPACR_EL1: vector registers
    msr cpacr_el1, x0
    mov x0, #2                      // CNTKCTL_EL1: programs read the virtual counter
    msr cntkctl_el1, x0
    tlbi vmalle1
    ic iallu
    dsb ish
    isb
    mrs x0, sctlr_el1
    ldr x1, =0x0400d005             // M, C, I; programs may use DC ZVA, CTR_EL0, DC CVAU and IC IVAU
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
    msr tpidr_el1, x19
    isb
    adrp x0, cpu_stacks
    add x0, x0, :lo12:cpu_stacks
    add x1, x19, #1
    add x0, x0, x1, lsl #18         // 256 KiB each
    mov sp, x0
    br x20
.ltorg
