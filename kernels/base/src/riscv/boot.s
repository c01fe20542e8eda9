# Entry from OpenSBI: supervisor mode, paging off, a0 = hart, a1 = device tree (boot hart) or CPU
# number (others).

.section .boot,"ax",@progbits
.globl start
start:
    mv s0, a0
    mv s1, a1
    li s2, 0                    # CPU number: the hart that OpenSBI chose is CPU 0
    la s3, kernel_main
    la t0, boot_taken
    li t1, 1
.option push
.option arch, +a
    amoswap.d.aqrl t1, t1, (t0)
.option pop
    beqz t1, common
    # Not the first to come here: a hart that the kernel has started while it was still on its way
    # through the firmware. OpenSBI 1.1 then forgets where it was to begin. It is one of those that
    # the kernel knows.
    la s3, kernel_other
    la t0, hart_ids
1:  addi s2, s2, 1
    slli t1, s2, 3
    add t1, t0, t1
    ld t1, 0(t1)
    bne t1, s0, 1b
    j common

# Where further harts begin: a1 = CPU number.
.globl start_other
start_other:
    mv s0, a0
    mv s1, a1
    mv s2, a1
    la s3, kernel_other

# The code runs at physical addresses here and is linked at virtual ones; both are reached relative
# to pc, so `la` gives physical addresses until the jump to `high` and virtual ones after it.
common:
    csrw sie, zero
    li t0, 0x6002               # sstatus: FS off, SIE off
    csrc sstatus, t0
    li s4, 0xffffffc000000000
    la t0, boot_root
    srli t0, t0, 12
    li t1, 8 << 60              # satp: Sv39
    or t0, t0, t1
    la t2, high
    add t2, t2, s4
    add s3, s3, s4
    sfence.vma
    csrw satp, t0
    sfence.vma
    jr t2
high:
    # Off the identity map, which only the jump needed. The low half is the user's from here on.
    la t0, kernel_root
    sub t0, t0, s4
    srli t0, t0, 12
    or t0, t0, t1
    csrw satp, t0
    sfence.vma
    la t0, kernel_trap
    csrw stvec, t0
    mv tp, s2
    la sp, cpu_stacks
    addi t0, s2, 1
    slli t0, t0, 18             # 256 KiB each
    add sp, sp, t0
    mv a0, s0
    mv a1, s1
    jr s3

# Entries: gigapages, global, accessed and dirty. Devices in the first (read, write), memory in the
# third and fourth.
.section .data
.balign 8
boot_taken:
    .quad 0
.balign 4096
boot_root:
    .zero 2 * 8
    .quad (0x80000 << 10) | 0xcf    # the identity of memory, until the jump
    .zero 253 * 8
    .quad 0xe7
    .zero 8
    .quad (0x80000 << 10) | 0xef
    .quad (0xc0000 << 10) | 0xef
    .zero 252 * 8

# The root of a hart that runs no user space, and what every user root copies its upper half from.
.globl kernel_root
kernel_root:
    .zero 256 * 8
    .quad 0xe7
    .zero 8
    .quad (0x80000 << 10) | 0xef
    .quad (0xc0000 << 10) | 0xef
    .zero 252 * 8
