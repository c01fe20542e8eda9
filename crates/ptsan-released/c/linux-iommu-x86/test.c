/* io_pgtable_v2.c of Linux's driver for AMD's IOMMU. Each CPU of the sanitizer is the TLB of an
 * IOMMU; its driver is this test. */
#include "../stores.h"

#include "amd_iommu.h"

#include <string.h>

#define WINDOW (8 * SZ_2M)
#define PAGES (WINDOW / PAGE_SIZE)
#define FRAMES (1ull << 33)

static uint64_t *free_list[RAM_BYTES / PAGE_SIZE];
static size_t frees;
static struct io_pgtable_ops *ops;

/* The other format of this driver is not under test. */
struct io_pgtable_init_fns io_pgtable_amd_iommu_v1_init_fns;

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
int amd_iommu_flush_tlb(struct iommu_domain *domain, u32 pasid) {
    ptsan_flush_space(san, PTSAN_EVERY_CPU, SPACE);
    return 0;
}

int amd_iommu_flush_page(struct iommu_domain *domain, u32 pasid, u64 at) {
    ptsan_flush_page(san, PTSAN_EVERY_CPU, SPACE, at, false);
    return 0;
}

int amd_iommu_domain_set_gcr3(struct iommu_domain *domain, u32 pasid, unsigned long root) {
    load_everywhere(root);
    return 0;
}

void amd_iommu_domain_update(struct protection_domain *domain) { amd_iommu_flush_tlb(&domain->domain, 0); }

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
    int rights = IOMMU_READ | (below(2) ? IOMMU_WRITE : 0);
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
    /* iotlb_sync comes after it in iommu.c. */
    amd_iommu_flush_tlb(NULL, 0);
    for (size_t n = 0; n < size * count / PAGE_SIZE; n++) {
        if (before[n] != PTSAN_NONE && looked_up(at + n * PAGE_SIZE) == PTSAN_NONE) {
            ptsan_frame_freed(san, before[n], PAGE_SIZE);
        }
    }
    ptsan_flushes_done(san);
}

/* Of each 2 MiB, whether they were mapped as a block or by pages: they stay what they are first. */
static bool block[WINDOW / SZ_2M], paged[WINDOW / SZ_2M];

static void map_some(uint64_t large, bool whole) {
    uint64_t at = large * SZ_2M, page = whole ? 0 : below(512), pages = whole ? 512 : 1 + below(512 - page);
    if (block[large] || (!paged[large] && below(2))) {
        map(at, SZ_2M, 1);
        block[large] = true;
    } else {
        map(at + page * PAGE_SIZE, PAGE_SIZE, pages);
        paged[large] = true;
    }
}

static void unmap_some(uint64_t large, bool whole) {
    uint64_t at = large * SZ_2M, page = whole ? 0 : below(512);
    if (block[large]) {
        unmap(at, SZ_2M, 1);
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

static void right(uint64_t seed) {
    begin(PTSAN_ARCH_X86_64, 0, seed);
    frees = 0;
    memset(block, 0, sizeof block);
    memset(paged, 0, sizeof paged);
    for (uint64_t page = RAM_START + RAM_BYTES - PAGE_SIZE; page >= RAM_START; page -= PAGE_SIZE) {
        free_list[frees++] = (uint64_t *)page;
    }
    static struct protection_domain domain;
    domain = (struct protection_domain){.flags = PD_IOMMUV2_MASK};
    ops = alloc_io_pgtable_ops(AMD_IOMMU_V2, &domain.iop.pgtbl_cfg, &domain);
    if (!ops) {
        fail("alloc_io_pgtable_ops", __LINE__);
    }
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
    verdict("linux-iommu-x86: map and unmap at random", "", "");
}

int main(void) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        right(seed);
    }
    return 0;
}
