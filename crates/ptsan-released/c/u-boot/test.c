/* cache_v8.c of U-Boot: the functions that it calls, and tests. */
#include "../stores.h"

#include <cpu_func.h>

#include <asm/global_data.h>
#include <asm/armv8/mmu.h>

#define VA_BITS 40
#define LARGE (2ull << 20)
#define REGION (32ull << 30)
#define NORMAL (PTE_BLOCK_MEMTYPE(MT_NORMAL) | PTE_TYPE_VALID)

static struct global_data data;
struct global_data *gd = &data;
static struct mm_region map[] = {
    {REGION, REGION, 1ull << 30, PTE_BLOCK_MEMTYPE(MT_NORMAL) | PTE_BLOCK_INNER_SHARE},
    {REGION + (64ull << 30), REGION + (64ull << 30), LARGE, PTE_BLOCK_MEMTYPE(MT_DEVICE_NGNRNE)},
    {0},
};
struct mm_region *mem_map = map;
static u64 sctlr;

void *clear_table(void *to, int byte, size_t bytes) {
    settle();
    ptsan_table_allocated(san, (u64)to, bytes, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
    return told_memset(to, byte, bytes);
}

void set_sctlr(u64 value) {
    settle();
    if (value & CR_M && !(sctlr & CR_M)) {
        load_everywhere(gd->arch.tlb_addr);
    }
    sctlr = value;
}

void hang(void) { exit(2); }
u64 get_sctlr(void) { return sctlr; }
int current_el(void) { return 1; }

/* cache.S: MMU off, everything invalidated, the root set, MMU on. */
void __asm_switch_ttbr(u64 root) {
    settle();
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_leave(san, cpu);
    }
    flush_everything();
    load_everywhere(root);
}

void __asm_invalidate_tlb_all(void) { flush_everything(); }
void __asm_invalidate_dcache_all(void) {}
void __asm_flush_dcache_all(void) {}
int __asm_flush_l3_dcache(void) { return 0; }
void __asm_invalidate_l3_dcache(void) {}
void __asm_invalidate_l3_icache(void) {}
void __asm_invalidate_icache_all(void) {}
void __asm_invalidate_dcache_range(u64 start, u64 end) { (void)start, (void)end; }
void __asm_flush_dcache_range(u64 start, u64 end) { (void)start, (void)end; }

static void start(u64 seed) {
    begin(PTSAN_ARCH_AARCH64_4K, VA_BITS, seed);
    sctlr = 0;
    data = (struct global_data){0};
    gd->arch.tlb_addr = RAM_START;
    gd->arch.tlb_size = RAM_BYTES;
    mmu_setup();
}

/* The sequence is called break-before-make, and splits a live block in one store before it. */
static void live_split(void) {
    start(1);
    may(0, REGION, PTSAN_READ);
    mmu_change_region_attr(REGION + LARGE, 4096, NORMAL | PTE_BLOCK_PXN | PTE_BLOCK_UXN);
    verdict("u-boot mmu_change_region_attr: a live block becomes a table in one store", "break-before-make", "");
}

/* One page of a block is changed, then the whole block: its table of pages stays as it is. */
static void attributes_of_a_table(void) {
    start(2);
    mmu_set_region_dcache_behaviour(REGION + LARGE, 4096, DCACHE_OFF);
    mmu_change_region_attr(REGION + LARGE, LARGE, NORMAL | PTE_BLOCK_PXN | PTE_BLOCK_UXN);
    expect(REGION + LARGE + 0x5000, REGION + LARGE + 0x5000, 0, PTSAN_PERM_READ | PTSAN_PERM_WRITE);
    verdict("u-boot mmu_change_region_attr: no effect on a region that has a table of its own", "disagreement", "");
}

/* Returns the entry that translates `va`. */
static u64 leaf(u64 va) {
    u64 table = gd->arch.tlb_addr, entry = 0;
    for (int shift = 39; shift >= 12; shift -= 9) {
        entry = ((u64 *)table)[va >> shift & 511];
        if ((entry & PTE_TYPE_MASK) != PTE_TYPE_TABLE) {
            break;
        }
        table = entry & 0xfffffffff000;
    }
    return entry;
}

/* The same with memory types, which the sanitizer compares with no expectation. */
static void memory_type_of_a_table(void) {
    start(3);
    mmu_set_region_dcache_behaviour(REGION + LARGE, 4096, DCACHE_OFF);
    mmu_set_region_dcache_behaviour(REGION + LARGE, LARGE, DCACHE_OFF);
    u64 type = leaf(REGION + LARGE + 0x5000) & PMD_ATTRINDX_MASK;
    printf("u-boot mmu_set_region_dcache_behaviour: a page of the region that was switched off is %s\n",
           type == PTE_BLOCK_MEMTYPE(MT_NORMAL) ? "still cached" : "off; the source is fixed");
    if (type != PTE_BLOCK_MEMTYPE(MT_NORMAL)) {
        exit(1);
    }
    verdict("u-boot mmu_set_region_dcache_behaviour: no rule of the hardware is broken by it", "", "");
}

static void right(u64 seed) {
    start(seed);
    for (int step = 0; step < 40; step++) {
        u64 at = REGION + below(64) * LARGE;
        if (below(2)) {
            mmu_set_region_dcache_behaviour(at + below(256) * 4096, (1 + below(200)) * 4096,
                                            below(2) ? DCACHE_OFF : DCACHE_WRITEBACK);
        } else {
            mmu_map_region(REGION + (2ull << 30) + below(64) * 4096, (1 + below(200)) * 4096, false);
        }
        for (int n = 0; n < 8; n++) {
            may(n % CPUS, REGION + below(64 * LARGE), n & 1 ? PTSAN_WRITE : PTSAN_READ);
        }
    }
    for (u64 va = REGION; va < REGION + 64 * LARGE; va += 4096) {
        expect(va, va, 0, 0);
    }
    verdict("u-boot: memory types and new regions at random", "", "");
}

int main(void) {
    live_split();
    attributes_of_a_table();
    memory_type_of_a_table();
    for (u64 seed = 10; seed < 12; seed++) {
        right(seed);
    }
    return 0;
}
