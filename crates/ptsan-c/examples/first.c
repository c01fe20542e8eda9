/* The smallest test: four tables, one page, and a flush that comes too late. */
#include "ptsan.h"

static ptsan *san;
static _Alignas(4096) uint64_t ram[8 * 512]; /* memory: physical addresses 0 to 0x7fff */

static void map(void) { /* page 0 to frame 5, through tables in frames 1 to 4 */
    for (uint64_t table = 4; table >= 1; table--) {
        ptsan_table_allocated(san, table * 4096, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
        ram[table * 512] = (table + 1) * 4096 | 7;
    }
}

static void unmap(void) { /* the last table goes with its page */
    ram[3 * 512] = 0;
    ptsan_table_freed(san, 0x4000, 4096);  /* it is in the allocator's list, */
    ptsan_flush_page(san, 0, 1, 0, false); /* and then comes invlpg */
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
    san = ptsan_new(&options, ram, sizeof ram, 0);
    map();
    ptsan_switch(san, 0, 0x1000, 1);                     /* CPU 0 loads CR3; the space is number 1 */
    ptsan_access(san, 0, 0x123, PTSAN_READ, true, NULL); /* a program reads */
    unmap();
    ptsan_leave(san, 0);
    for (uint64_t table = 1; table <= 3; table++)
        ptsan_table_freed(san, table * 4096, 4096);
    return ptsan_end(san);
}
