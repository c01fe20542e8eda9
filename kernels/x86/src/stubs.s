# The stubs of vectors, as a macro for images on PCs.

# One 16-byte stub for each of so many vectors: pushes a zero where the CPU pushes no error code,
# pushes the vector, goes on at trap_common. The stub of the vector `call` pushes eax, the number of
# a system call.
.macro STUBS count, call=-1
.balign 16
.globl trap_stubs
trap_stubs:
.set vector, 0
.rept \count
    .balign 16
    .if (vector == 8) | (vector == 17) | (vector == 21) | ((vector >= 10) & (vector <= 14))
    .elseif vector == \call
    push eax
    .else
    .byte 0x6A, 0               # push 0
    .endif
    .byte 0x68                  # push vector, with four bytes whatever its size
    .long vector
    jmp trap_common
    .set vector, vector + 1
.endr
.endm
