// Exceptions, on the stack of the code that they come from. All of them go the same way.
.altmacro
.macro pair op, r, n, m, base, bytes
    \op \r\n, \r\m, [\base, #(\n * \bytes)]
.endm

.section .text
.balign 2048
vectors:
    .rept 16
    .balign 128
    sub sp, sp, #704
    stp x0, x1, [sp]
    b exception
    .endr

exception:
    .irp n, 2, 4, 6, 8, 10, 12, 14, 16
    pair stp, x, \n, %\n+1, sp, 8
    .endr
    stp x18, x30, [sp, #144]
    mrs x0, elr_el1
    mrs x1, spsr_el1
    stp x0, x1, [sp, #160]
    add x0, sp, #192
    .irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
    pair stp, q, \n, %\n+1, x0, 16
    .endr
    mrs x0, esr_el1
    mrs x1, far_el1
    mrs x2, elr_el1
    bl kernel_exception
    add x0, sp, #192
    .irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
    pair ldp, q, \n, %\n+1, x0, 16
    .endr
    ldp x0, x1, [sp, #160]
    msr elr_el1, x0
    msr spsr_el1, x1
    ldp x18, x30, [sp, #144]
    .irp n, 2, 4, 6, 8, 10, 12, 14, 16
    pair ldp, x, \n, %\n+1, sp, 8
    .endr
    ldp x0, x1, [sp]
    add sp, sp, #704
    eret
