/* mmu.c of coreboot for AArch64: the functions that it calls, and tests. */
#include "../stores.h"

#include <arch/mmu.h>
#include <sys/wait.h>
#include <unistd.h>
#undef dsb
#undef memset

#define LARGE (2ull << 20)
#define REGION (8ull << 30)

static uint32_t sctlr;

void raw_write_ttbr0_el3(uint64_t root) { (void)root; }
uint32_t raw_read_sctlr_el3(void) { return sctlr; }
void full_dsb(void) { settle(); }
void tlbiall_el3(void) { flush_everything(); }
void tlb_invalidate_all(void) { flush_everything(); }

void raw_write_sctlr_el3(uint32_t value) {
    sctlr = value;
    if (value & SCTLR_M) {
        load_everywhere((uint64_t)_ttb);
    }
}

static bool unused(u8 *table) { return *(uint64_t *)table == UNUSED_DESC; }

/* Changes a range. Meanwhile the unused tables are the code's own: it takes those that it needs. */
static void config(uint64_t start, uint64_t bytes, uint64_t tag) {
    settle();
    for (u8 *table = _ttb; table < _ettb; table += 4096) {
        if (unused(table)) {
            ptsan_table_allocated(san, (uint64_t)table, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
        }
    }
    mmu_config_range((void *)start, bytes, tag);
    settle();
    for (u8 *table = _ttb; table < _ettb; table += 4096) {
        if (unused(table)) {
            ptsan_table_freed(san, (uint64_t)table, 4096);
        }
    }
}

static void start(uint64_t seed) {
    begin(PTSAN_ARCH_AARCH64_4K, 48, seed);
    sctlr = 0;
    ptsan_table_allocated(san, (uint64_t)_ttb, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
    mmu_init();
    config((uint64_t)_ttb, 64 * 4096, MA_MEM | MA_S | MA_RW);
    config(REGION, 64 * LARGE, MA_MEM | MA_NS | MA_RW);
}

static void live(uint64_t seed, uint64_t bytes, const char *title) {
    start(seed);
    mmu_enable();
    may(0, REGION, PTSAN_READ);
    config(REGION, bytes, MA_MEM | MA_NS | MA_RW | MA_MEM_NC);
    verdict(title, "break-before-make", "");
}

/* A page of a block is changed while no CPU has the tables loaded, and the block when all have. */
static void block_for_table(void) {
    start(3);
    config(REGION, 4096, MA_MEM | MA_NS | MA_RW | MA_MEM_NC);
    mmu_enable();
    may(0, REGION + 0x5000, PTSAN_READ);
    config(REGION, LARGE, MA_MEM | MA_NS | MA_RW | MA_MEM_NC);
    verdict("coreboot mmu_config_range: a live table becomes a block in one store", "break-before-make", "");
}

/* Ranges at random before the MMU is enabled, which is all that most boards do. */
static void right(uint64_t seed) {
    start(seed);
    for (int step = 0; step < 30; step++) {
        uint64_t first = below(64 * 512 - 1), most = 64 * 512 - first;
        uint64_t pages = 1 + below(most < 1500 ? most : 1500);
        config(REGION + first * 4096, pages * 4096, MA_MEM | MA_NS | (below(2) ? MA_RO : MA_RW) |
                                                        (below(2) ? MA_MEM_NC : 0));
    }
    mmu_enable();
    for (uint64_t va = REGION; va < REGION + 64 * LARGE; va += 4096) {
        may(va >> 12 & 3, va, PTSAN_READ);
        expect(va, va, 0, 0);
    }
    verdict("coreboot mmu_config_range: ranges at random before the MMU is enabled", "", "");
}

/* A boot of its own: mmu_init may be called once. */
static void boot(int test) {
    fflush(stdout);
    if (fork() == 0) {
        switch (test) {
        case 0: live(1, 4096, "coreboot mmu_config_range: a live block becomes a table in one store"); break;
        case 1: live(2, LARGE, "coreboot mmu_config_range: a live block gets another memory type in one store"); break;
        case 2: block_for_table(); break;
        default: right(test);
        }
        exit(0);
    }
    int status;
    if (wait(&status) < 0 || status != 0) {
        exit(1);
    }
}

int main(void) {
    for (int test = 0; test < 6; test++) {
        boot(test);
    }
    return 0;
}
