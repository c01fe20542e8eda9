/* Tables announced without a level and built before their root is loaded: a page that is unmapped
 * without a flush is found with every seed. */
#include "check.h"

static _Alignas(4096) uint64_t ram[16 * 512];
static ptsan *san;

static void store(uint64_t entry, uint64_t value) {
    ram[entry / 8] = value;
    ptsan_entry_written(san, entry);
}

/* Returns how many findings there are. */
static uint64_t run(uint64_t seed, bool flushes) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .cpus = 2, .adversary_rate = 500, .seed = seed};
    memset(ram, 0x55, sizeof ram);
    san = ptsan_new(&options, ram, sizeof ram, 0);
    CHECK(san != NULL);
    for (uint64_t table = 0x1000; table <= 0x4000; table += 4096) {
        CHECK(ptsan_table_allocated(san, table, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN) == PTSAN_OK);
        memset(ram + table / 8, 0, 4096);
    }
    for (uint64_t table = 0x1000; table < 0x4000; table += 4096)
        store(table, (table + 4096) | 7);
    uint64_t va = (seed % 512) * 4096;
    store(0x4000 + va / 512, 0x9007);
    for (int cpu = 0; cpu < 2; cpu++)
        CHECK(ptsan_switch(san, cpu, 0x1000, 1) == PTSAN_OK);
    store(0x4000 + va / 512, 0);
    for (int cpu = 0; flushes && cpu < 2; cpu++)
        CHECK(ptsan_flush_page(san, cpu, 1, va, false) == PTSAN_OK);
    CHECK(ptsan_frame_freed(san, 0x9000, 4096) == PTSAN_OK);
    uint64_t found = ptsan_count(san, "data-freed-before-flush");
    CHECK(found == ptsan_total(san));
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    return found;
}

int main(void) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        CHECK(run(seed, false) == 1);
        CHECK(run(seed, true) == 0);
    }
    return 0;
}
