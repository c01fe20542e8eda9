# void load_floats(const struct Rest *from), void save_floats(struct Rest *to): f0 to f31, and fcsr
# at 256.
.section .text
.option push
.option arch, +d
.globl load_floats
load_floats:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    fld f\n, (\n * 8)(a0)
    .endr
    ld t0, 256(a0)
    fscsr t0
    ret
.globl save_floats
save_floats:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    fsd f\n, (\n * 8)(a0)
    .endr
    frcsr t0
    sd t0, 256(a0)
    ret
.option pop
