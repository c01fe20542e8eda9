# struct Trap enter_user(struct Frame *frame): runs the user from its saved registers until it
# traps; returns cause and value in a0 and a1. Interrupts are masked before, and after.
#
# Frame: x0 to x31 (x0 unused), pc at 256, the kernel's stack pointer at 264.
.section .text
.globl enter_user
enter_user:
    addi sp, sp, -112
    sd ra, 0(sp)
    sd tp, 8(sp)
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    sd s\r, (16 + \r * 8)(sp)
    .endr
    sd sp, 264(a0)
    csrw sscratch, a0
    la t0, user_trap
    csrw stvec, t0
    ld t0, 256(a0)
    csrw sepc, t0
    li t0, 0x100                # sstatus.SPP: back to user mode
    csrc sstatus, t0
    li t0, 0x20                 # sstatus.SPIE: with interrupts enabled
    csrs sstatus, t0
    .irp r, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ld x\r, (\r * 8)(a0)
    .endr
    ld a0, 80(a0)
    sret

.balign 4
user_trap:
    csrrw a0, sscratch, a0
    .irp r, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    sd x\r, (\r * 8)(a0)
    .endr
    csrr t0, sscratch
    sd t0, 80(a0)
    csrr t0, sepc
    sd t0, 256(a0)
    ld sp, 264(a0)
    la t0, kernel_trap
    csrw stvec, t0
    ld ra, 0(sp)
    ld tp, 8(sp)
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ld s\r, (16 + \r * 8)(sp)
    .endr
    addi sp, sp, 112
    csrr a0, scause
    csrr a1, stval
    ret

# A trap in the kernel: interrupts where they are not masked. Anything else ends the run.
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
    call kernel_interrupt
    ld ra, 0(sp)
    .irp r, 0, 1, 2, 3, 4, 5, 6
    ld t\r, (8 + \r * 8)(sp)
    .endr
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    ld a\r, (64 + \r * 8)(sp)
    .endr
    addi sp, sp, 128
    sret
