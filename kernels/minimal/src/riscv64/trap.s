# An exception, on the stack of the code that it comes from.
.section .text
.balign 4
.globl kernel_trap
kernel_trap:
    addi sp, sp, -128
    sd ra, 0(sp)
    .irp r, 0, 1, 2, 3, 4, 5, 6
    sd t\r, (8 + \r * 8)(sp)
    .endr
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    sd a\r, (64 + \r * 8)(sp)
    .endr
    csrr a0, scause
    csrr a1, stval
    csrr a2, sepc
    call kernel_exception
    ld ra, 0(sp)
    .irp r, 0, 1, 2, 3, 4, 5, 6
    ld t\r, (8 + \r * 8)(sp)
    .endr
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    ld a\r, (64 + \r * 8)(sp)
    .endr
    addi sp, sp, 128
    sret
