/* Stacks and the heap. */
#include "zoo.h"
#include <sys/prctl.h>
#include <sys/resource.h>

/* A stack of one page that ends at `end`. */
static char *stack(char *end) {
    return map_over(end - PAGE, PAGE, RW, PRIVATE | MAP_GROWSDOWN, -1);
}
static void grow(char *stack, size_t bytes) {
    for (size_t down = 0; down < bytes; down += PAGE) {
        stack[-(long)down] = 1;
    }
}

CASE(stack_grows) { grow(stack(nowhere(64 * MIB) + 64 * MIB), 6 * MIB); }
CASE(stack_reads) {
    volatile char *p = stack(nowhere(64 * MIB) + 64 * MIB);
    for (size_t down = 0; down < 3 * MIB; down += PAGE) {
        (void)p[-(long)down];
    }
    fork_once();
}
CASE(stack_above_none) {
    char *p = map(64 * MIB, PROT_NONE, PRIVATE);
    munmap(p + 4 * MIB, 60 * MIB);
    grow(stack(p + 12 * MIB), 8 * MIB - PAGE);
}
CASE(stack_above_stack) {
    char *p = nowhere(64 * MIB);
    char *upper = stack(p + 12 * MIB), *lower = stack(p + 4 * MIB);
    *lower = 1;
    grow(upper, 8 * MIB - PAGE);
}
static int recurse(int n) {
    volatile char frame[2 * PAGE];
    frame[0] = 1;
    return n ? recurse(n - 1) + frame[0] : frame[0];
}
CASE(stack_deep) { recurse(900); }
CASE(stack_large) {
    struct rlimit limit = {256 * MIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    recurse(12000);
}
CASE(heap_up_and_down) {
    char *heap = sbrk(0);
    for (int i = 0; i < 20; i++) {
        size_t bytes = (i % 5) * 3 * MIB;
        CHECK(brk(heap + bytes + i * PAGE) == 0);
        write_pages(heap, bytes);
    }
    CHECK(brk(heap) == 0 && brk(heap + MIB) == 0);
    write_pages(heap, MIB);
}
CASE(heap_hole) {
    char *heap = (char *)(((uintptr_t)sbrk(0) + TABLE - 1) & ~(TABLE - 1));
    CHECK(brk(heap + 8 * TABLE) == 0);
    write_pages(heap, 8 * TABLE);
    munmap(heap + 2 * TABLE, 2 * TABLE);
    map_over(heap + 3 * TABLE, PAGE, PROT_READ, PRIVATE, -1);
    CHECK(brk(heap + TABLE) == 0 && brk(heap + TABLE + PAGE) == 0);
}
/* Needs CAP_SYS_RESOURCE. */
CASE(heap_moved) {
    char *heap = sbrk(4 * TABLE);
    write_pages(heap, 4 * TABLE);
    if (prctl(PR_SET_MM, PR_SET_MM_BRK, heap + TABLE, 0, 0) != 0) {
        perror("the end of the heap");
    }
    sbrk(TABLE);
}
