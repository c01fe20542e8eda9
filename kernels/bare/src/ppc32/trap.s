# Exceptions: from the vectors, where translation is off, to the kernel.
#
# SPRG3 is the physical address of the registers of the task that runs: r0 to r31, then pc at 128,
# CR 132, LR 136, CTR 140, XER 144, the kernel's stack pointer 148, and of the exception the vector
# 152, SRR1 156, DAR 160, DSISR 164; floating-point registers from 168 on, then FPSCR at 424.
# Compilers copy memory by those registers, in the kernel as well.

.macro vector number
    .org \number - 0x100
    mtspr 272, 3
    mtspr 273, 4
    li 3, \number
    b enter
.endm

.section .vectors,"ax",@progbits
    vector 0x100
    vector 0x200
    vector 0x300
    vector 0x400
    vector 0x500
    vector 0x600
    vector 0x700
    vector 0x800
    vector 0x900
    vector 0xc00
    vector 0xd00
    vector 0x1000
    vector 0x1100
    vector 0x1200
    vector 0x1300
    vector 0x1400
    .org 0x2000 - 0x100

# r3 is the vector; r3 and r4 are in SPRG0 and SPRG1.
enter:
    mfcr 4
    mtspr 274, 4
    mfspr 4, 27
    andi. 4, 4, 0x4000          # from user mode?
    beq from_kernel
    mfspr 4, 275
    stw 0, 0(4)
    stw 1, 4(4)
    stw 2, 8(4)
    .irp r, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    stw \r, (4 * \r)(4)
    .endr
    stw 3, 152(4)
    mfspr 5, 272
    stw 5, 12(4)
    mfspr 5, 273
    stw 5, 16(4)
    mfspr 5, 26
    stw 5, 128(4)
    mfspr 5, 274
    stw 5, 132(4)
    mflr 5
    stw 5, 136(4)
    mfctr 5
    stw 5, 140(4)
    mfxer 5
    stw 5, 144(4)
    mfspr 5, 27
    stw 5, 156(4)
    mfspr 5, 19
    stw 5, 160(4)
    mfspr 5, 18
    stw 5, 164(4)
    lwz 1, 148(4)
    lis 5, user_left@h
    ori 5, 5, user_left@l
    mtspr 26, 5
    li 5, 0x2030              # translation and floating point on
    mtspr 27, 5
    rfi

# The kernel's stack is in memory that it always sees; below its pointer nothing is live.
from_kernel:
    addis 4, 1, 0x4000          # its physical address
    addi 4, 4, -208
    stw 1, 0(4)
    stw 0, 8(4)
    .irp r, 5, 6, 7, 8, 9, 10, 11, 12
    stw \r, (12 + 4 * \r)(4)
    .endr
    mfspr 5, 272
    stw 5, 12(4)
    mfspr 5, 273
    stw 5, 16(4)
    mfspr 5, 274
    stw 5, 64(4)
    mflr 5
    stw 5, 68(4)
    mfctr 5
    stw 5, 72(4)
    mfxer 5
    stw 5, 76(4)
    mfspr 5, 27
    stw 5, 80(4)
    addi 1, 1, -208
    mfspr 6, 26
    mr 7, 5
    mfspr 4, 19
    mfspr 5, 18
    lis 8, kernel_stopped@h
    ori 8, 8, kernel_stopped@l
    mtspr 26, 8
    li 8, 0x2030
    mtspr 27, 8
    rfi

.section .text.trap,"ax",@progbits
# Calls kernel_trap(vector, DAR, DSISR, pc, SRR1), which returns where the kernel goes on.
kernel_stopped:
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
    stfd \r, (88 + 8 * \r)(1)
    .endr
    bl kernel_trap
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
    lfd \r, (88 + 8 * \r)(1)
    .endr
    mtspr 26, 3
    lwz 5, 80(1)
    mtspr 27, 5
    lwz 5, 64(1)
    mtcr 5
    lwz 5, 68(1)
    mtlr 5
    lwz 5, 72(1)
    mtctr 5
    lwz 5, 76(1)
    mtxer 5
    lwz 0, 8(1)
    lwz 3, 12(1)
    lwz 4, 16(1)
    .irp r, 5, 6, 7, 8, 9, 10, 11, 12
    lwz \r, (12 + 4 * \r)(1)
    .endr
    addi 1, 1, 208
    rfi

# enter_user(registers, their physical address): runs the user until an exception.
.globl enter_user
enter_user:
    stwu 1, -96(1)
    mflr 0
    stw 0, 100(1)
    mfcr 0
    stw 0, 8(1)
    .irp r, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    stw \r, (16 + 4 * (\r - 13))(1)
    .endr
    stw 2, 12(1)
    stw 3, 92(1)
    stw 1, 148(3)
    mtspr 275, 4
    lfd 0, 424(3)
    mtfsf 255, 0
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    lfd \r, (168 + 8 * \r)(3)
    .endr
    lwz 5, 128(3)
    mtspr 26, 5
    lis 5, 0
    ori 5, 5, 0x6030            # user mode, translation and floating point on
    mtspr 27, 5
    lwz 5, 132(3)
    mtcr 5
    lwz 5, 136(3)
    mtlr 5
    lwz 5, 140(3)
    mtctr 5
    lwz 5, 144(3)
    mtxer 5
    lwz 0, 0(3)
    lwz 1, 4(3)
    lwz 2, 8(3)
    .irp r, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    lwz \r, (4 * \r)(3)
    .endr
    lwz 3, 12(3)
    rfi

user_left:
    lwz 3, 92(1)
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    stfd \r, (168 + 8 * \r)(3)
    .endr
    mffs 0
    stfd 0, 424(3)
    lwz 2, 12(1)
    .irp r, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    lwz \r, (16 + 4 * (\r - 13))(1)
    .endr
    lwz 0, 8(1)
    mtcr 0
    lwz 0, 100(1)
    mtlr 0
    addi 1, 1, 96
    blr

# probe_load(address, &mut value) and probe_store(address, value): 1, or 0 if the access is not
# allowed.
.globl probe_load, probe_store, probe_load_at, probe_store_at, probe_failed
probe_load:
probe_load_at:
    lwz 5, 0(3)
    stw 5, 0(4)
    li 3, 1
    blr
probe_store:
probe_store_at:
    stw 4, 0(3)
    li 3, 1
    blr
probe_failed:
    li 3, 0
    blr
