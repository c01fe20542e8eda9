/* AArch64: stores, invalidations, and the barriers between them. With -DBUG=1 the dsb before the
 * tlbi is missing, with -DBUG=2 the one after it. */
#include "ptsan.h"

#include <stdio.h>

#ifndef BUG
#define BUG 0
#endif

static ptsan *san;
static uint64_t ram[8 * 512]; /* memory: physical addresses 0 to 0x7fff */
enum { PAGE = 4096, SPACE = 1 };

/* Hooks: the instructions of the kernel. */

static void dsb(void) {
    PTSAN_HARNESS(san);
    ptsan_barrier(san, PTSAN_THIS_CPU, PTSAN_BARRIER_KIND_DATA);
}

static void isb(void) {
    PTSAN_HARNESS(san);
    ptsan_barrier(san, PTSAN_THIS_CPU, PTSAN_BARRIER_KIND_INSTRUCTION);
}

static void tlbi_vae1is(uint64_t va) { /* broadcast */
    PTSAN_HARNESS(san);
    ptsan_flush_page(san, PTSAN_EVERY_CPU, SPACE, va, false);
}

static void write_entry(uint64_t entry, uint64_t value) {
    PTSAN_HARNESS(san);
    ram[entry / 8] = value;
    ptsan_entry_written(san, entry);
}

/* The kernel. */

static void unmap(uint64_t entry, uint64_t va, uint64_t page) {
    write_entry(entry, 0);
    if (BUG != 1)
        dsb();
    tlbi_vae1is(va);
    if (BUG != 2)
        dsb();
    ptsan_frame_freed(san, page, PAGE);
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_AARCH64_4K, .cpus = 2, .flags = PTSAN_FLAG_ASIDS | PTSAN_FLAG_BARRIERS};
    san = ptsan_new(&options, ram, sizeof ram, 0);
    if (san == NULL) {
        fprintf(stderr, "%s\n", ptsan_last_error());
        return 1;
    }
    ptsan_run_on(san, 0);
    for (uint64_t table = 4; table >= 1; table--) /* page 0 to frame 5 */
        ptsan_table_allocated(san, table * PAGE, PAGE, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    for (uint64_t table = 1; table <= 3; table++)
        write_entry(table * PAGE, (table + 1) * PAGE | 3);
    write_entry(4 * PAGE, 5 * PAGE | 0x443);
    ptsan_switch(san, PTSAN_THIS_CPU, 1 * PAGE, SPACE); /* msr ttbr0_el1 */
    isb();
    ptsan_access(san, PTSAN_THIS_CPU, 0x123, PTSAN_READ, true, NULL);
    unmap(4 * PAGE, 0, 5 * PAGE);
    ptsan_leave(san, PTSAN_THIS_CPU);
    ptsan_flush_all(san, PTSAN_EVERY_CPU);
    dsb();
    for (uint64_t table = 1; table <= 4; table++)
        ptsan_table_freed(san, table * PAGE, PAGE);
    return ptsan_end(san);
}
