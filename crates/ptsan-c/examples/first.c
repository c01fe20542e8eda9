/* The smallest test: four tables, one page, and a flush that comes too late. */
#include "ptsan.h"

#include <stdio.h>

static ptsan *san;
static uint64_t ram[8 * 512]; /* memory: physical addresses 0 to 0x7fff */

/* Hooks: what the kernel has below its page tables. Reports name their callers. */

static void table_free(uint64_t table) {
    PTSAN_HARNESS(san);
    ptsan_table_freed(san, table, 4096);
}

static void invlpg(uint64_t va) {
    PTSAN_HARNESS(san);
    ptsan_flush_page(san, 0, 1, va, false);
}

/* The kernel. */

static void map(void) { /* page 0 to frame 5, through tables in frames 1 to 4 */
    for (uint64_t table = 4; table >= 1; table--) {
        ptsan_table_allocated(san, table * 4096, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
        ram[table * 512] = (table + 1) * 4096 | 7;
    }
}

static void unmap(void) { /* the last table goes with its page */
    ram[3 * 512] = 0;
    table_free(0x4000); /* it is in the allocator's list, */
    invlpg(0);          /* and then comes the flush */
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
    san = ptsan_new(&options, ram, sizeof ram, 0);
    if (san == NULL) {
        fprintf(stderr, "%s\n", ptsan_last_error());
        return 1;
    }
    map();
    ptsan_switch(san, 0, 0x1000, 1);                     /* CPU 0 loads CR3; the space is number 1 */
    ptsan_access(san, 0, 0x123, PTSAN_READ, true, NULL); /* a program reads */
    unmap();
    ptsan_leave(san, 0);
    for (uint64_t table = 1; table <= 3; table++)
        table_free(table * 4096);
    return ptsan_end(san);
}
