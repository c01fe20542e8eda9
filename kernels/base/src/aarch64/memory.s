// void *memcpy(void *to, const void *from, size_t bytes), and memset: those of `compiler_builtins`
// copy eight bytes at a time, and single ones where the two are not aligned alike. Memory is mapped
// as normal memory by now, where accesses need not be aligned. Traps save all registers of programs
// (`trap.s`), so that vector registers are free.
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
    cmp x2, #32
    b.hi 1f
    ldr q0, [x1]
    ldr q1, [x3, #-16]
    str q0, [x0]
    str q1, [x4, #-16]
    ret
1:  ldp q0, q1, [x1]
    ldp q2, q3, [x3, #-32]
    stp q0, q1, [x0]
    stp q2, q3, [x4, #-32]
    ret
2:  mov x5, x0
    sub x2, x2, #64
3:  ldp q0, q1, [x1]
    ldp q2, q3, [x1, #32]
    add x1, x1, #64
    stp q0, q1, [x5]
    stp q2, q3, [x5, #32]
    add x5, x5, #64
    subs x2, x2, #64
    b.hi 3b
    ldp q0, q1, [x3, #-64]
    ldp q2, q3, [x3, #-32]
    stp q0, q1, [x4, #-64]
    stp q2, q3, [x4, #-32]
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
    dup v0.16b, w1
    add x4, x0, x2
    cmp x2, #16
    b.lo 3f
    mov x5, x0
    subs x2, x2, #32
    b.ls 2f
1:  stp q0, q0, [x5], #32
    subs x2, x2, #32
    b.hi 1b
    stp q0, q0, [x4, #-32]
    ret
2:  str q0, [x0]
    str q0, [x4, #-16]
    ret
3:  umov x6, v0.d[0]
    tbz x2, #3, 4f
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
