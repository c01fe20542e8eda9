# From the loader, at physical addresses, to the kernel in the cached window; the refill of the TLB.
#
# CSRs: 0x0 CRMD, 0x2 EUEN, 0x4 ECFG, 0xc EENTRY, 0x10 TLBIDX, 0x18 ASID, 0x1b PGD, 0x1c PWCL, 0x1d
# PWCH, 0x1e STLBPS, 0x32 SAVE2, 0x88 TLBRENTRY, 0x89 TLBRBADV, 0x8b TLBRSAVE, 0x8c TLBRELO0, 0x8d
# TLBRELO1, 0x8e TLBREHI, 0x180 DMW0, 0x181 DMW1.

.macro csr number, value
    li.d $t0, \value
    csrwr $t0, \number
.endm

.section .boot,"ax",@progbits
.globl start
start:
    csr 0x180, 0x8000000000000001   # devices: not cached, for the kernel alone
    csr 0x181, 0x9000000000000011   # memory: cached, for the kernel alone
    la.pcrel $t0, high
    bstrpick.d $t0, $t0, 47, 0
    li.d $t1, 0x9000000000000000
    or $t0, $t0, $t1
    jr $t0
high:
    csr 0x0, 0xb0                   # translation on; without it, as in a refill, accesses are cached
    csr 0x2, 0                      # no floating point
    csr 0x4, 0                      # no interrupts, one vector
    csr 0x18, 0
    # Pages of 16 KiB: bits 14 to 24 of an address count in a leaf table, 25 to 35 in directory 1,
    # 36 to 46 in directory 3, whose place alone may be above 31.
    csr 0x1c, (14 | 11 << 5 | 25 << 10 | 11 << 15)
    csr 0x1d, (36 | 11 << 6)
    csr 0x1e, 14
    csr 0x8e, 14
    csr 0x10, 14 << 24
    la.pcrel $t0, trap
    csrwr $t0, 0xc
    invtlb 0, $zero, $zero
    la.pcrel $sp, kernel_stack
    li.d $t0, 0x10000
    add.d $sp, $sp, $t0
    la.pcrel $t0, kernel_main
    jirl $ra, $t0, 0

# The refill: finds the pair of pages in the tree below PGD, with translation off. `LDDIR` goes on
# at physical address 0 where an entry is empty, so each result is tested. The leaves are not loaded
# by `LDPTE`, which loses bits 48 to 63 (NX) on QEMU. Their bits 9 to 13, the software's, stay out
# of the TLB.
.macro refill name, test
    .balign 4096
    .globl \name
\name:
    csrwr $t0, 0x8b
    csrwr $t1, 0x32
    csrrd $t0, 0x1b
    lddir $t0, $t0, 3
    .if \test
    beqz $t0, 1f
    .endif
    lddir $t0, $t0, 1
    .if \test
    beqz $t0, 1f
    .endif
    csrrd $t1, 0x89
    bstrpick.d $t1, $t1, 24, 15
    slli.d $t1, $t1, 4
    bstrpick.d $t0, $t0, 47, 14
    slli.d $t0, $t0, 14
    add.d $t0, $t0, $t1
    ld.d $t1, $t0, 0
    ld.d $t0, $t0, 8
    bstrins.d $t1, $zero, 13, 9
    bstrins.d $t0, $zero, 13, 9
    csrwr $t1, 0x8c
    csrwr $t0, 0x8d
    b 2f
1:  csrwr $t0, 0x8c                 # nothing is there: two pages that are not valid
    csrwr $zero, 0x8d
2:  tlbfill
    csrrd $t1, 0x32
    csrrd $t0, 0x8b
    ertn
.endm
    refill refill_tested, 1
    refill refill_untested, 0
