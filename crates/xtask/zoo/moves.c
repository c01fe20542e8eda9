/* mremap. */
#include "zoo.h"

#define SIZE (8 * TABLE)

static char *written(size_t bytes) {
    char *p = aligned(bytes);
    write_pages(p, bytes);
    return p;
}

CASE(move_keep) {
    char *p = written(SIZE);
    move(p, 4 * TABLE, 4 * TABLE, MREMAP_FIXED | DONTUNMAP, aligned(SIZE));
    move(p + 4 * TABLE, 2 * TABLE, 2 * TABLE, DONTUNMAP, NULL);
    move(p + 6 * TABLE, TABLE, TABLE, MREMAP_FIXED | DONTUNMAP, aligned(4 * TABLE) + 2 * PAGE);
    fork_once();
}
CASE(move_nothing) {
    char *p = map_over(aligned(SIZE), SIZE, RW, SHARED, -1);
    write_pages(p, SIZE);
    write_pages(move(p, 0, SIZE, 0, NULL), SIZE);
}
CASE(move_several) {
    char *p = written(SIZE);
    mprotect(p + TABLE, TABLE, PROT_READ);
    munmap(p + 3 * TABLE, TABLE);
    move(p, SIZE, SIZE, MREMAP_FIXED, nowhere(2 * SIZE));
}
CASE(move_unaligned) {
    char *p = written(SIZE), *q = aligned(2 * SIZE);
    move(p + 3 * PAGE, 4 * TABLE, 4 * TABLE, MREMAP_FIXED, q + PAGE);
    move(p + 4 * TABLE + 3 * PAGE, TABLE, TABLE, MREMAP_FIXED, q + SIZE + 3 * PAGE);
}
CASE(move_sparse) {
    char *p = aligned(8 * SIZE);
    write_each(p, 8 * SIZE, 5 * TABLE);
    p = move(p, 8 * SIZE, 8 * SIZE, MREMAP_FIXED, aligned(8 * SIZE));
    move(p, 8 * SIZE, 8 * SIZE, MREMAP_FIXED, aligned(8 * SIZE + TABLE) + PAGE);
}
CASE(move_gib) {
    char *p = (char *)(((uintptr_t)nowhere(8 * GIB) + GIB - 1) & ~(GIB - 1));
    map_over(p, 2 * GIB, RW, PRIVATE | MAP_NORESERVE, -1);
    write_each(p, 2 * GIB, 64 * MIB);
    move(p, GIB, GIB, MREMAP_FIXED, p + 3 * GIB);
    move(p + GIB, GIB, GIB, MREMAP_FIXED, p + 5 * GIB + TABLE);
}
CASE(move_shrink) {
    char *p = written(SIZE);
    mremap(p, SIZE, SIZE / 2, 0);
    mremap(p, SIZE / 2, 6 * TABLE, 0);
    write_pages(p + SIZE / 2, 2 * TABLE);
    move(p, 6 * TABLE, 2 * SIZE, 0, NULL);
}
/* Both places are at the same distance from a table's start, and nothing lies below. */
static void realign(int flags) {
    char *p = map_over(nowhere(4 * TABLE) + 5 * PAGE, 3 * TABLE, RW, PRIVATE, -1);
    write_pages(p, 3 * TABLE);
    move(p, 3 * TABLE, 3 * TABLE, MREMAP_FIXED | flags, nowhere(SIZE) + 2 * TABLE + 5 * PAGE);
}
CASE(move_realign) { realign(0); }
CASE(move_realign_keep) { realign(DONTUNMAP); }
