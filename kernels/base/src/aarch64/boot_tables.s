// The tables that a kernel boots on. Entry 0 of the root leads to blocks of 1 GiB: devices, which
// are not executable, and memory. Global, accessed, not the user's. `empty_root` is a root of the
// user's half that maps nothing.
.section .data
.balign 4096
.globl boot_root
boot_root:
    .quad boot_blocks - 0xffff000000000000 + 3
    .zero 511 * 8
boot_blocks:
    .quad 0x00000000 | 1 | 1 << 2 | 1 << 10 | 3 << 53
    .quad 0x40000000 | 1 | 3 << 8 | 1 << 10 | 1 << 54
    .quad 0x80000000 | 1 | 3 << 8 | 1 << 10 | 1 << 54
    .quad 0xc0000000 | 1 | 3 << 8 | 1 << 10 | 1 << 54
    .zero 508 * 8
.globl empty_root
empty_root:
    .zero 512 * 8
