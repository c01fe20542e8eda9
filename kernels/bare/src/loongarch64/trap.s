# u64 enter_user(struct Registers *registers): runs the user until an exception. There are no
# interrupts.
#
# Registers: r0 to r31, then pc at 256 and the kernel's stack pointer at 264. SAVE0 (0x30) is where
# they are while the user runs, SAVE1 (0x31) holds its stack pointer for a moment. CSRs: 0x1 PRMD,
# 0x6 ERA.

# What a function keeps.
.macro kept op
    \op $ra, $sp, 0
    \op $tp, $sp, 8
    \op $r21, $sp, 16
    .irp n, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    \op $r\n, $sp, (\n - 19) * 8
    .endr
.endm
# All registers but sp and the last one that is needed, r4.
.macro most op, base
    .irp n, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    \op $r\n, \base, \n * 8
    .endr
.endm

.section .text.trap,"ax",@progbits
.globl enter_user
enter_user:
    addi.d $sp, $sp, -112
    kept st.d
    st.d $sp, $a0, 264
    move $t0, $a0
    csrwr $t0, 0x30
    ld.d $t0, $a0, 256
    csrwr $t0, 0x6
    ori $t0, $zero, 3               # user mode
    csrwr $t0, 0x1
    most ld.d, $a0
    ld.d $sp, $a0, 24
    ld.d $a0, $a0, 32
    ertn

.balign 4096
.globl trap
trap:
    csrwr $sp, 0x31
    csrrd $sp, 0x1
    andi $sp, $sp, 3
    beqz $sp, in_kernel
    csrrd $sp, 0x30
    st.d $a0, $sp, 32
    most st.d, $sp
    move $a0, $sp
    csrrd $t0, 0x31
    st.d $t0, $a0, 24
    csrrd $t0, 0x6
    st.d $t0, $a0, 256
    ld.d $sp, $a0, 264
    kept ld.d
    addi.d $sp, $sp, 112
    ret
in_kernel:
    csrrd $sp, 0x31
    bstrins.d $sp, $zero, 3, 0
    bl kernel_trap
