/* io-pgtable-arm.c of Linux: tables that devices walk. Each CPU of the sanitizer is the TLB of an
 * IOMMU; its driver is this test. */
#include "../stores.h"

#include <linux/io-pgtable.h>

#include <string.h>

#define WINDOW (8 * SZ_2M)
#define PAGES (WINDOW / PAGE_SIZE)
#define FRAMES (1ull << 33)

static uint64_t *free_list[RAM_BYTES / PAGE_SIZE];
static size_t frees;
static struct io_pgtable_ops *ops;

static void fail(const char *what, int line) {
    printf("FAILED: %s, line %d\n", what, line);
    exit(1);
}

bool warned(bool condition, int line) {
    if (condition) {
        fail("a warning of the code", line);
    }
    return condition;
}

struct page *alloc_pages_node(int node, gfp_t gfp, int order) {
    settle();
    /* Only the root, which comes first, has more than one page. */
    uint64_t *page = free_list[frees - 1];
    frees -= 1ul << order;
    memset(page, 0, PAGE_SIZE << order);
    ptsan_table_allocated(san, (uint64_t)page, PAGE_SIZE << order, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    return (struct page *)page;
}

void free_pages(unsigned long at, int order) {
    settle();
    ptsan_table_freed(san, at, PAGE_SIZE << order);
    for (size_t n = 1ul << order; n > 0; n--) {
        free_list[frees++] = (uint64_t *)(at + (n - 1) * PAGE_SIZE);
    }
}

/* The driver: every invalidation is waited for at once. */
static void flush_all(void *cookie) { ptsan_flush_space(san, PTSAN_EVERY_CPU, SPACE); }

static void flush_walk(unsigned long at, size_t bytes, size_t granule, void *cookie) {
    ptsan_flush_range(san, PTSAN_EVERY_CPU, SPACE, at, at + bytes, granule, false);
}

static void add_page(struct iommu_iotlb_gather *gather, unsigned long at, size_t granule, void *cookie) {
    ptsan_flush_page(san, PTSAN_EVERY_CPU, SPACE, at, true);
}

static const struct iommu_flush_ops flushes = {flush_all, flush_walk, add_page};

static uint64_t looked_up(uint64_t at) {
    uint64_t phys = ops->iova_to_phys(ops, at);
    return phys ? phys : PTSAN_NONE;
}

static void map(uint64_t at, size_t size, size_t count) {
    for (uint64_t n = 0; n < size * count; n += PAGE_SIZE) {
        if (looked_up(at + n) != PTSAN_NONE) {
            return;
        }
    }
    int rights = IOMMU_READ | IOMMU_CACHE | (below(2) ? IOMMU_WRITE : 0);
    for (size_t done = 0; done < size * count;) {
        size_t now = 0, left = count - done / size;
        if (ops->map_pages(ops, at + done, FRAMES + at + done, size, left, rights, GFP_KERNEL, &now)) {
            fail("map_pages", (int)at);
        }
        done += now;
    }
}

/* Unmaps as many pages of one size as are there. */
static void unmap(uint64_t at, size_t size, size_t count) {
    struct iommu_iotlb_gather gather = {false};
    static uint64_t before[PAGES];
    for (size_t n = 0; n < size * count / PAGE_SIZE; n++) {
        before[n] = looked_up(at + n * PAGE_SIZE);
    }
    for (size_t done = 0; done < size * count && looked_up(at + done) != PTSAN_NONE;) {
        done += ops->unmap_pages(ops, at + done, size, 1, &gather);
    }
    settle();
    for (size_t n = 0; n < size * count / PAGE_SIZE; n++) {
        if (before[n] != PTSAN_NONE && looked_up(at + n * PAGE_SIZE) == PTSAN_NONE) {
            ptsan_frame_freed(san, before[n], PAGE_SIZE);
        }
    }
    ptsan_flushes_done(san);
}

/* Of each 2 MiB, whether they were mapped as a block: they are unmapped as they were mapped. */
static bool block[WINDOW / SZ_2M];

static void map_some(uint64_t large, bool whole) {
    uint64_t at = large * SZ_2M, page = whole ? 0 : below(512), pages = whole ? 512 : 1 + below(512 - page);
    bool empty = true;
    for (uint64_t n = 0; n < 512; n++) {
        empty = empty && looked_up(at + n * PAGE_SIZE) == PTSAN_NONE;
    }
    if (empty && below(2)) {
        map(at, SZ_2M, 1);
        block[large] = true;
    } else if (!block[large]) {
        map(at + page * PAGE_SIZE, PAGE_SIZE, pages);
    }
}

/* A table goes as a whole, or page by page. */
static void unmap_some(uint64_t large, bool whole) {
    uint64_t at = large * SZ_2M, page = below(512);
    if (block[large] || (whole && looked_up(at) != PTSAN_NONE)) {
        unmap(at, SZ_2M, 1);
        block[large] = false;
    } else if (whole) {
        for (uint64_t n = 0; n < 512; n++) {
            unmap(at + n * PAGE_SIZE, PAGE_SIZE, 1);
        }
    } else {
        unmap(at + page * PAGE_SIZE, PAGE_SIZE, 1 + below(512 - page));
    }
}

static void step(void) {
    uint64_t large = below(WINDOW / SZ_2M);
    bool whole = below(3) == 0;
    if (below(2)) {
        map_some(large, whole);
    } else {
        unmap_some(large, whole);
    }
    for (int n = 0; n < 16; n++) {
        may(n % CPUS, below(PAGES) * PAGE_SIZE, n & 1 ? PTSAN_WRITE : PTSAN_READ);
    }
}

static void right(enum io_pgtable_fmt format, uint64_t seed) {
    bool first = format == ARM_64_LPAE_S1;
    begin_as((ptsan_options){.arch = first ? PTSAN_ARCH_AARCH64_4K : PTSAN_ARCH_AARCH64_STAGE2_4K,
                             .va_bits = first ? 39 : 40,
                             .start_level = first ? 0 : 1,
                             .adversary_rate = 500,
                             .seed = seed});
    frees = 0;
    memset(block, 0, sizeof block);
    for (uint64_t page = RAM_START + RAM_BYTES - PAGE_SIZE; page >= RAM_START; page -= PAGE_SIZE) {
        free_list[frees++] = (uint64_t *)page;
    }
    struct io_pgtable_cfg cfg = {.pgsize_bitmap = SZ_4K | SZ_2M,
                                 .ias = first ? 39 : 40,
                                 .oas = 48,
                                 .coherent_walk = seed % 2,
                                 .tlb = &flushes};
    ops = alloc_io_pgtable_ops(format, &cfg, NULL);
    if (!ops) {
        fail("alloc_io_pgtable_ops", format);
    }
    load_everywhere(first ? cfg.arm_lpae_s1_cfg.ttbr : cfg.arm_lpae_s2_cfg.vttbr);
    for (int n = 0; n < 300; n++) {
        step();
    }
    for (uint64_t n = 0; n < PAGES; n++) {
        expect(n * PAGE_SIZE, looked_up(n * PAGE_SIZE), 0, 0);
    }
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_leave(san, cpu);
    }
    free_io_pgtable_ops(ops);
    ptsan_finish(san);
    verdict(first ? "linux-iommu: map and unmap at random, stage 1"
                  : "linux-iommu: map and unmap at random, stage 2",
            "", "");
}

int main(void) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        right(ARM_64_LPAE_S1, seed);
        right(ARM_64_LPAE_S2, seed);
    }
    return 0;
}
