# Entry from OpenSBI: supervisor mode, paging off, a1 = device tree.

.section .boot,"ax",@progbits
.globl start
start:
    csrw sie, zero
    li t0, 0x6002               # sstatus: FS off, SIE off
    csrc sstatus, t0
    li t0, 0x40000              # SUM: this kernel is its own user
    csrs sstatus, t0
    # The code runs at physical addresses here and is linked at virtual ones; both are reached
    # relative to pc, so `la` gives physical addresses until the jump to `high` and virtual ones
    # after it.
    li s4, 0xffffffc000000000
    li t1, 8 << 60              # satp: Sv39
    la t0, boot_root
    srli t0, t0, 12
    or t0, t0, t1
    la t2, high
    add t2, t2, s4
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
    la sp, stack_end
    mv a0, a1
    tail kernel_main

.section .bss
.balign 16
    .zero 0x10000
stack_end:

# Entries: gigapages, global, accessed and dirty. Devices in the first (read, write), memory in the
# third and fourth.
.section .data
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

# The root that maps the kernel alone, and what every space copies its upper half from.
.globl kernel_root
kernel_root:
    .zero 256 * 8
    .quad 0xe7
    .zero 8
    .quad (0x80000 << 10) | 0xef
    .quad (0xc0000 << 10) | 0xef
    .zero 252 * 8
