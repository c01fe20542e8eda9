// u64 enter_user(struct Registers *registers): runs the user from its registers until an exception;
// returns 0 for a synchronous one, 1 for an interrupt. Interrupts are masked before, and after.
//
// Registers: x0 to x30, sp, pc, spsr, fpcr, fpsr, and q0 to q31 at 288.

// Executes an instruction for all pairs of vector registers.
.macro vectors_all op, base, at
    .irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
    vector_pair \op, \n, %\n+1, \base, \at
    .endr
.endm
.altmacro
.macro vector_pair op, n, m, base, at
    \op q\n, q\m, [\base, #(\at + \n * 16)]
.endm
.macro pair op, n, m, base, at
    \op x\n, x\m, [\base, #(\at + \n * 8)]
.endm
// The same for x2 to x29.
.macro most op, base
    .irp n, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28
    pair \op, \n, %\n+1, \base, 0
    .endr
.endm

// What a function keeps, and the address of the user's registers.
.macro kept op
    .irp n, 18, 20, 22, 24, 26, 28
    pair \op, %\n+1, %\n+2, sp, -152
    .endr
    \op d8, d9, [sp, #96]
    \op d10, d11, [sp, #112]
    \op d12, d13, [sp, #128]
    \op d14, d15, [sp, #144]
.endm

.section .text
.globl enter_user
enter_user:
    sub sp, sp, #176
    kept stp
    str x0, [sp, #160]
    ldp x1, x2, [x0, #248]
    msr sp_el0, x1
    msr elr_el1, x2
    ldp x1, x2, [x0, #264]
    msr spsr_el1, x1
    msr fpcr, x2
    ldr x1, [x0, #280]
    msr fpsr, x1
    add x1, x0, #288
    vectors_all ldp, x1, 0
    most ldp, x0
    ldr x30, [x0, #240]
    ldp x0, x1, [x0]
    eret

leave_user:
    ldr x0, [sp, #176]              // behind the two that were pushed
    most stp, x0
    ldp x2, x3, [sp], #16
    stp x2, x3, [x0]
    mrs x2, sp_el0
    stp x30, x2, [x0, #240]
    mrs x2, elr_el1
    mrs x3, spsr_el1
    stp x2, x3, [x0, #256]
    mrs x2, fpcr
    mrs x3, fpsr
    stp x2, x3, [x0, #272]
    add x2, x0, #288
    vectors_all stp, x2, 0
    mov x0, x1
    kept ldp
    add sp, sp, #176
    ret

// An exception in the kernel: everything is kept that a function may change.
in_kernel:
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    mrs x2, elr_el1
    mrs x3, spsr_el1
    stp x2, x3, [sp, #160]
    add x2, sp, #192
    vectors_all stp, x2, 0
    mrs x2, fpsr
    str x2, [sp, #176]
    bl kernel_trap
    ldr x2, [sp, #176]
    msr fpsr, x2
    add x2, sp, #192
    vectors_all ldp, x2, 0
    ldp x2, x3, [sp, #160]
    msr elr_el1, x2
    msr spsr_el1, x3
    ldp x18, x30, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp]
    add sp, sp, #704
    eret

// Vectors: \cause is 0 for a synchronous exception, 1 for an interrupt, 2 for others.
.macro of_user cause
    .balign 128
    stp x0, x1, [sp, #-16]!
    mov x1, #\cause
    b leave_user
.endm
.macro of_kernel cause
    .balign 128
    sub sp, sp, #704
    stp x0, x1, [sp]
    mov x0, #\cause
    b in_kernel
.endm

.balign 2048
.globl vectors
vectors:
    .rept 4                         // with SP_EL0, which the kernel does not use
    of_kernel 2
    .endr
    of_kernel 0                     // synchronous, IRQ, FIQ, SError
    of_kernel 1
    of_kernel 2
    of_kernel 2
    of_user 0
    of_user 1
    of_kernel 2
    of_kernel 2
    .rept 4                         // of 32-bit code
    of_kernel 2
    .endr
