// void *memcpy(void *to, const void *from, size_t bytes), and memset: those of `compiler_builtins` copy eight bytes at a
// time, and single ones where the two are not aligned alike. Memory is mapped as normal memory by now, where pairs need
// not be aligned. No vector register is used: they are the programs'.
//
// What is left at an end is done once more from that end: pieces may overlap.

.section .text.memcpy, "ax"
.globl memcpy
.type memcpy, %function
memcpy:
    add x3, x1, x2
    add x4, x0, x2
    cmp x2, #16
    b.lo 4f
    cmp x2, #64
    b.hi 2f
    ldp x6, x7, [x1]
    ldp x8, x9, [x3, #-16]
    cmp x2, #32
    b.ls 1f
    ldp x10, x11, [x1, #16]
    ldp x12, x13, [x3, #-32]
    stp x10, x11, [x0, #16]
    stp x12, x13, [x4, #-32]
1:  stp x6, x7, [x0]
    stp x8, x9, [x4, #-16]
    ret
2:  mov x5, x0
    sub x2, x2, #64
3:  ldp x6, x7, [x1]
    ldp x8, x9, [x1, #16]
    ldp x10, x11, [x1, #32]
    ldp x12, x13, [x1, #48]
    add x1, x1, #64
    stp x6, x7, [x5]
    stp x8, x9, [x5, #16]
    stp x10, x11, [x5, #32]
    stp x12, x13, [x5, #48]
    add x5, x5, #64
    subs x2, x2, #64
    b.hi 3b
    ldp x6, x7, [x3, #-64]
    ldp x8, x9, [x3, #-48]
    ldp x10, x11, [x3, #-32]
    ldp x12, x13, [x3, #-16]
    stp x6, x7, [x4, #-64]
    stp x8, x9, [x4, #-48]
    stp x10, x11, [x4, #-32]
    stp x12, x13, [x4, #-16]
    ret
4:  tbz x2, #3, 5f
    ldr x6, [x1]
    ldr x7, [x3, #-8]
    str x6, [x0]
    str x7, [x4, #-8]
    ret
5:  tbz x2, #2, 6f
    ldr w6, [x1]
    ldr w7, [x3, #-4]
    str w6, [x0]
    str w7, [x4, #-4]
    ret
6:  cbz x2, 7f
    // One to three bytes: the first, the middle one, the last.
    lsr x5, x2, #1
    ldrb w6, [x1]
    ldrb w7, [x1, x5]
    ldrb w8, [x3, #-1]
    strb w6, [x0]
    strb w7, [x0, x5]
    strb w8, [x4, #-1]
7:  ret
.size memcpy, . - memcpy

.section .text.memset, "ax"
.globl memset
.type memset, %function
memset:
    and w1, w1, #0xff
    mov x6, #0x0101010101010101
    mul x6, x6, x1
    add x4, x0, x2
    cmp x2, #16
    b.lo 3f
    mov x5, x0
    subs x2, x2, #32
    b.ls 2f
1:  stp x6, x6, [x5]
    stp x6, x6, [x5, #16]
    add x5, x5, #32
    subs x2, x2, #32
    b.hi 1b
    stp x6, x6, [x4, #-32]
    stp x6, x6, [x4, #-16]
    ret
2:  stp x6, x6, [x0]
    stp x6, x6, [x4, #-16]
    ret
3:  tbz x2, #3, 4f
    str x6, [x0]
    str x6, [x4, #-8]
    ret
4:  tbz x2, #2, 5f
    str w6, [x0]
    str w6, [x4, #-4]
    ret
5:  cbz x2, 6f
    lsr x5, x2, #1
    strb w6, [x0]
    strb w6, [x0, x5]
    strb w6, [x4, #-1]
6:  ret
.size memset, . - memset
