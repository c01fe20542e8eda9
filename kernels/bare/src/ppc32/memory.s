# The functions that the target expects from libc and libstd, for the kernel and the user program.
# Panics abort, and never unwind. Whole words are moved where both ends are aligned to them.
.section .text.memory,"ax",@progbits
.globl memcpy, memmove, memset, memcmp, bcmp, rust_eh_personality, _Unwind_Resume
memmove:
    cmplw 3, 4
    bgt backward
memcpy:
    mr 6, 3
    or 7, 3, 4
    andi. 7, 7, 3
    bne 2f
    srwi. 7, 5, 2
    beq 2f
    mtctr 7
    clrlwi 5, 5, 30
1:  lwz 7, 0(4)
    stw 7, 0(6)
    addi 4, 4, 4
    addi 6, 6, 4
    bdnz 1b
2:  cmpwi 5, 0
    beqlr
    mtctr 5
3:  lbz 7, 0(4)
    stb 7, 0(6)
    addi 4, 4, 1
    addi 6, 6, 1
    bdnz 3b
    blr
backward:
    cmpwi 5, 0
    beqlr
    mtctr 5
    add 6, 3, 5
    add 4, 4, 5
4:  lbzu 7, -1(4)
    stbu 7, -1(6)
    bdnz 4b
    blr
memset:
    mr 6, 3
    andi. 7, 3, 3
    bne 6f
    srwi. 7, 5, 2
    beq 6f
    mtctr 7
    clrlwi 5, 5, 30
    rlwimi 4, 4, 8, 16, 23
    rlwimi 4, 4, 16, 0, 15
5:  stw 4, 0(6)
    addi 6, 6, 4
    bdnz 5b
6:  cmpwi 5, 0
    beqlr
    mtctr 5
7:  stb 4, 0(6)
    addi 6, 6, 1
    bdnz 7b
    blr
memcmp:
bcmp:
    cmpwi 5, 0
    beq 9f
    mtctr 5
8:  lbz 6, 0(3)
    lbz 7, 0(4)
    subf. 6, 7, 6
    bne 10f
    addi 3, 3, 1
    addi 4, 4, 1
    bdnz 8b
9:  li 3, 0
    blr
10: mr 3, 6
    blr
rust_eh_personality:
_Unwind_Resume:
    trap
