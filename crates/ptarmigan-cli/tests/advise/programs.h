/* What the programs share. They use no memory but what they ask the kernel for. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
/* What one leaf table maps, and the size of a huge page. */
#define TABLE (512 * PAGE)

/* Maps memory that is aligned to TABLE. */
static char *map(size_t bytes) {
    char *at = mmap(0, bytes + TABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    size_t before = -(uintptr_t)at % TABLE;
    if (before > 0)
        munmap(at, before);
    munmap(at + before + bytes, TABLE - before);
    return at + before;
}

static inline void advise(char *at, size_t bytes, int advice) {
    if (madvise(at, bytes, advice) != 0) {
        perror("madvise");
        exit(1);
    }
}

/* Whether the program runs in its mended form. */
static int is_mended(int argc, char **argv) {
    return argc > 1 && strcmp(argv[1], "mended") == 0;
}
