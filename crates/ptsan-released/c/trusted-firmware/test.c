/* xlat_tables_v2 of Trusted Firmware-A: the functions that it calls, and tests. */
#include "../stores.h"

#include <arch_helpers.h>
#include <errno.h>
#include <lib/xlat_tables/xlat_tables_v2.h>
#include <stdlib.h>
#include <string.h>

#define VA_BITS 39
#define TABLES 6
#define LARGE (2ull << 20)
#define REGION (8ull << 30)

static xlat_ctx_t context;
static mmap_region_t regions[17];
static int in_use[TABLES];
static bool taken[TABLES];
static int tables;
static bool mmu;

uint64_t read_sctlr_el3(void) { return mmu ? SCTLR_M_BIT | SCTLR_C_BIT : 0; }
uint64_t read_CurrentEl(void) { return 3 << 2; }
void tlbivae3is(uint64_t va) { tlbi_page_everywhere(va << 12); }
void tlbivae2is(uint64_t va) { tlbivae3is(va); }
void tlbivaae1is(uint64_t va) { tlbivae3is(va); }
void dsbish(void) { dsb(); }
void dsbishst(void) { settle(); } /* orders stores; it does not complete invalidations */
void isb(void) {}

static uint64_t table(int n) { return RAM_START + (n + 1) * 4096ull; }

/* While the library maps a region, the tables that count no regions are its own: it takes those
 * that it needs. */
static void take(void) {
    settle();
    for (int n = 0; n < tables; n++) {
        if (!taken[n]) {
            ptsan_table_allocated(san, table(n), 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
            taken[n] = true;
        }
    }
}

/* When a function of the library returns, tables that count no regions may be taken again. */
static int done(int result) {
    settle();
    for (int n = 0; n < tables; n++) {
        if (taken[n] && !in_use[n]) {
            taken[n] = false;
            ptsan_table_freed(san, table(n), 4096);
        }
    }
    return result;
}

static void start(uint64_t seed, int count) {
    begin(PTSAN_ARCH_AARCH64_4K, VA_BITS, seed);
    memset(taken, 0, sizeof taken);
    memset(in_use, 0, sizeof in_use);
    memset(&context, 0, sizeof context);
    mmu = false;
    tables = count;
    ptsan_table_allocated(san, RAM_START, 4096, 2, PTSAN_CONTENT_UNCHECKED);
    static uint64_t *first;
    first = (uint64_t *)table(0);
    xlat_setup_dynamic_ctx(&context, (1ull << 40) - 1, (1ull << 39) - 1, regions, 16, (uint64_t **)first, tables,
                           (uint64_t *)RAM_START, EL3_REGIME, in_use);
    init_xlat_tables_ctx(&context);
    mmu = true;
    load_everywhere(RAM_START);
}

static int add(uint64_t va, uint64_t bytes) {
    mmap_region_t region = MAP_REGION(va, va, bytes, MT_MEMORY | MT_RW | MT_SECURE);
    take();
    return done(mmap_add_dynamic_region_ctx(&context, &region));
}

static int remove_region(uint64_t va, uint64_t bytes) {
    return done(mmap_remove_dynamic_region_ctx(&context, va, bytes));
}

static void end(void) {
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_leave(san, cpu);
    }
    ptsan_table_freed(san, RAM_START, 4096);
    ptsan_finish(san);
}

/* One table is left for a region that needs two: the one that was linked is lost. */
static void lost_table(void) {
    start(1, 1);
    if (add(REGION, 8192) != -ENOMEM) {
        exit(2);
    }
    end();
    verdict("TF-A xlat_tables_v2: a region that does not fit leaves a table behind", "leak", "");
}

/* The same in the second of two GiB: the pages of the first are undone, the new table is not. */
static void lost_table_further_on(void) {
    start(3, 3);
    if (add(REGION + (1ull << 30) - 8192, 16384) != -ENOMEM) {
        exit(2);
    }
    if (in_use[0] || in_use[1] || in_use[2] != 1) {
        exit(2);
    }
    end();
    verdict("TF-A xlat_tables_v2: the same further on, together with the next", "leak free-before-flush", "");
}

/* A region over two blocks of 2 MiB finds no table for the second: its pages of the first are
 * unmapped, and the invalidations are not completed. */
static void not_completed(void) {
    start(2, 2);
    if (add(REGION + LARGE - 8192, 16384) != -ENOMEM) {
        exit(2);
    }
    end();
    verdict("TF-A xlat_tables_v2: after a failure, invalidations are issued but not completed",
            "free-before-flush", "stale-use use-after-free");
}

static void right(uint64_t seed) {
    start(seed, TABLES);
    struct { uint64_t va, bytes; bool there; } mine[3] = {{0}};
    for (int step = 0; step < 60; step++) {
        int n = below(3);
        uint64_t gib = REGION + ((uint64_t)n << 30);
        if (!mine[n].there) {
            mine[n].va = gib + below(4) * LARGE + below(256) * 4096;
            mine[n].bytes = (1 + below(200)) * 4096;
            if (below(4) == 0) {
                mine[n].va = gib + 4 * LARGE, mine[n].bytes = 3 * LARGE;
            }
            mine[n].there = add(mine[n].va, mine[n].bytes) == 0;
            if (!mine[n].there) {
                exit(2);
            }
        } else if (mine[n].bytes < LARGE && below(2)) {
            uint32_t attributes = below(2) ? MT_RO | MT_EXECUTE_NEVER : MT_RW | MT_EXECUTE_NEVER;
            done(xlat_change_mem_attributes_ctx(&context, mine[n].va, mine[n].bytes, attributes));
        } else {
            mine[n].there = remove_region(mine[n].va, mine[n].bytes) != 0;
            expect(mine[n].va, PTSAN_NONE, 0, 0);
        }
        for (int i = 0; i < 16; i++) {
            int which = below(3);
            uint64_t va = mine[which].va + (mine[which].bytes ? below(mine[which].bytes) : 0);
            may(i % CPUS, va, i & 1 ? PTSAN_WRITE : PTSAN_READ);
        }
    }
    for (int n = 0; n < 3; n++) {
        if (mine[n].there) {
            expect(mine[n].va, mine[n].va, 0, 0);
            remove_region(mine[n].va, mine[n].bytes);
        }
    }
    end();
    verdict("TF-A xlat_tables_v2: regions and attributes at random", "", "");
}

int main(void) {
    lost_table();
    lost_table_further_on();
    not_completed();
    for (uint64_t seed = 10; seed < 14; seed++) {
        right(seed);
    }
    return 0;
}
