/* pgtable.c of KVM for arm64: its allocator, the instructions, and tests of both kinds of
 * tables. */
#include "../stores.h"
#define dsb linux_dsb
#include <asm/kvm_pgtable.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (2ull << 20)
#define PAGES (4 * LARGE / PAGE_SIZE)
#define HYP (1ull << 39)
/* Data frames: outside of the memory that has tables. */
#define FRAMES (1ull << 36)

static uint16_t count[RAM_BYTES / PAGE_SIZE];
static uint64_t *next_free[RAM_BYTES / PAGE_SIZE];
static size_t frees;
static bool pending;
static struct kvm_arch arch;
static struct kvm_pgtable tables;
static struct kvm_s2_mmu mmu = {.arch = &arch, .pgt = &tables, .vmid = SPACE};

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

/* Pages are counted; the last put gives a table back. The last page freed is the next one. */
static uint16_t *count_of(void *page) { return &count[((uint64_t)page - RAM_START) / PAGE_SIZE]; }

static void *zalloc(size_t bytes) {
    if (frees < bytes / PAGE_SIZE) {
        return NULL;
    }
    settle();
    /* The root comes first, so its two pages follow each other. */
    uint64_t *page = next_free[frees - 1];
    frees -= bytes / PAGE_SIZE;
    memset(page, 0, bytes);
    ptsan_table_allocated(san, (uint64_t)page, bytes, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    *count_of(page) = 1;
    return page;
}

static void *zalloc_page(void *memcache) { return zalloc(PAGE_SIZE); }

static void free_pages(void *page, size_t bytes) {
    settle();
    ptsan_table_freed(san, (uint64_t)page, bytes);
    for (size_t at = bytes; at > 0; at -= PAGE_SIZE) {
        next_free[frees++] = (uint64_t *)((char *)page + at - PAGE_SIZE);
    }
}

/* Only the root has two pages, and it is freed by another call. */
static void get_page(void *entry) { ++*count_of(entry); }

static void put_page(void *entry) {
    void *page = (void *)ALIGN_DOWN((uint64_t)entry, PAGE_SIZE);
    if (--*count_of(page) == 0) {
        free_pages(page, PAGE_SIZE);
    }
}

static int page_count(void *page) { return *count_of(page); }
static void *to_virt(phys_addr_t phys) { return (void *)phys; }
static phys_addr_t to_phys(void *at) { return (phys_addr_t)at; }

static struct kvm_pgtable_mm_ops ops = {
    .zalloc_page = zalloc_page,
    .zalloc_pages_exact = zalloc,
    .free_pages_exact = free_pages,
    .get_page = get_page,
    .put_page = put_page,
    .page_count = page_count,
    .phys_to_virt = to_virt,
    .virt_to_phys = to_phys,
};

/* The sanitizer knows one kind of DSB: none of these follows an invalidation that is under way. */
void linux_dsb(enum dsb_kind kind) {
    if (kind == ishst && pending) {
        fail("a DSB ISHST while an invalidation is under way, which the test does not model", __LINE__);
    }
    pending = false;
    ptsan_barrier(san, 0, PTSAN_BARRIER_KIND_DATA);
}

void isb(void) { ptsan_barrier(san, 0, PTSAN_BARRIER_KIND_INSTRUCTION); }

void tlbi(enum tlbi_kind kind, u64 page) {
    pending = true;
    ptsan_flush_page(san, PTSAN_EVERY_CPU, SPACE, (page & GENMASK(43, 0)) << 12, kind == vale2is);
}

/* nvhe/tlb.c: stage 2 by address, then all that CPUs have combined of both stages. */
void __kvm_tlb_flush_vmid_ipa(struct kvm_s2_mmu *of, phys_addr_t ipa, int level) {
    linux_dsb(ishst);
    ptsan_flush_page(san, PTSAN_EVERY_CPU, of->vmid, ipa, false);
    linux_dsb(ish);
    ptsan_stage1_flushed(san, PTSAN_EVERY_CPU);
    linux_dsb(ish);
}

void __kvm_tlb_flush_vmid(struct kvm_s2_mmu *of) {
    linux_dsb(ishst);
    ptsan_flush_space(san, PTSAN_EVERY_CPU, of->vmid);
    linux_dsb(ish);
}

static void start(ptsan_arch kind, uint32_t bits, uint64_t seed) {
    bool guest = kind == PTSAN_ARCH_AARCH64_STAGE2_4K;
    uint32_t both = PTSAN_FLAG_ASIDS | PTSAN_FLAG_TWO_STAGES;
    begin_as((ptsan_options){.arch = kind,
                             .va_bits = bits,
                             .start_level = guest ? 1 : 0,
                             .flags = PTSAN_FLAG_BARRIERS | (guest ? both : 0),
                             .adversary_rate = 500,
                             .seed = seed});
    memset(count, 0, sizeof count);
    frees = 0;
    pending = false;
    for (uint64_t page = RAM_START + RAM_BYTES - PAGE_SIZE; page >= RAM_START; page -= PAGE_SIZE) {
        next_free[frees++] = (uint64_t *)page;
    }
}

static void load(void) {
    load_everywhere((uint64_t)tables.pgd);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_barrier(san, cpu, PTSAN_BARRIER_KIND_INSTRUCTION);
    }
}

/* Returns the frame that the code says is mapped, or PTSAN_NONE. */
static uint64_t looked_up(uint64_t at) {
    kvm_pte_t entry = 0;
    u32 level = 0;
    settle();
    if (kvm_pgtable_get_leaf(&tables, at, &entry, &level) || !kvm_pte_valid(entry)) {
        return PTSAN_NONE;
    }
    return kvm_pte_to_phys(entry) + (at & (kvm_granule_size(level) - 1));
}

/* Every frame that was mapped before the operation and is not now goes back to its owner. */
static void change(uint64_t base, void (*operation)(uint64_t, uint64_t)) {
    static uint64_t before[PAGES];
    uint64_t page = below(PAGES), pages = 1 + below(PAGES - page < 700 ? PAGES - page : 700);
    if (below(3) == 0) {
        page &= ~511ull;
        pages = 512;
    }
    for (uint64_t n = 0; n < PAGES; n++) {
        before[n] = looked_up(base + n * PAGE_SIZE);
    }
    operation(base + page * PAGE_SIZE, pages * PAGE_SIZE);
    settle();
    for (uint64_t n = 0; n < PAGES; n++) {
        uint64_t now = looked_up(base + n * PAGE_SIZE);
        if (before[n] != PTSAN_NONE && before[n] != now) {
            ptsan_frame_freed(san, before[n], PAGE_SIZE);
        }
    }
    ptsan_flushes_done(san);
    for (int n = 0; n < 16; n++) {
        may(n % CPUS, base + below(PAGES) * PAGE_SIZE, n & 1 ? PTSAN_WRITE : PTSAN_READ);
    }
}

static void compare(uint64_t base) {
    for (uint64_t n = 0; n < PAGES; n++) {
        expect(base + n * PAGE_SIZE, looked_up(base + n * PAGE_SIZE), 0, 0);
    }
}

static uint64_t frame_for(uint64_t at) { return FRAMES + below(3) * (1ull << 32) + at; }

static void map_guest(uint64_t at, uint64_t bytes) {
    enum kvm_pgtable_prot prot = below(2) ? KVM_PGTABLE_PROT_RWX : KVM_PGTABLE_PROT_R;
    int error = kvm_pgtable_stage2_map(&tables, at, bytes, frame_for(at), prot, &ops);
    if (error && error != -EAGAIN && error != -ENOMEM) {
        fail("kvm_pgtable_stage2_map", error);
    }
}

static void unmap_guest(uint64_t at, uint64_t bytes) { kvm_pgtable_stage2_unmap(&tables, at, bytes); }

/* kvm_arch_flush_remote_tlbs comes after it in mmu.c. */
static void protect_guest(uint64_t at, uint64_t bytes) {
    kvm_pgtable_stage2_wrprotect(&tables, at, bytes);
    __kvm_tlb_flush_vmid(&mmu);
}

static void allow_guest(uint64_t at, uint64_t bytes) {
    if (looked_up(at) != PTSAN_NONE) {
        kvm_pgtable_stage2_relax_perms(&tables, at, KVM_PGTABLE_PROT_RW);
    }
}

static void age_guest(uint64_t at, uint64_t bytes) {
    kvm_pgtable_stage2_mkold(&tables, at);
    kvm_pgtable_stage2_mkyoung(&tables, at);
}

static void own_guest(uint64_t at, uint64_t bytes) {
    kvm_pgtable_stage2_set_owner(&tables, at, bytes, &ops, below(2));
}

static void guest(uint64_t seed) {
    void (*all[])(uint64_t, uint64_t) = {map_guest,   map_guest,   unmap_guest, protect_guest,
                                         allow_guest, age_guest, own_guest};
    start(PTSAN_ARCH_AARCH64_STAGE2_4K, 40, seed);
    arch.vtcr = kvm_get_vtcr(0, 0, 40);
    if (__kvm_pgtable_stage2_init(&tables, &mmu, &ops, 0, NULL)) {
        fail("__kvm_pgtable_stage2_init", __LINE__);
    }
    load();
    for (int step = 0; step < 60; step++) {
        change(0, all[below(sizeof all / sizeof *all)]);
    }
    compare(0);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_leave(san, cpu);
    }
    __kvm_tlb_flush_vmid(&mmu);
    kvm_pgtable_stage2_destroy(&tables);
    ptsan_finish(san);
    verdict("linux-kvm: map, unmap, split, merge, protect, age, own at random, stage 2", "", "");
}

static void map_hyp(uint64_t at, uint64_t bytes) {
    for (uint64_t n = 0; n < bytes; n += PAGE_SIZE) {
        if (looked_up(at + n) != PTSAN_NONE) {
            return;
        }
    }
    int error = kvm_pgtable_hyp_map(&tables, at, bytes, FRAMES + at, below(2) ? PAGE_HYP : PAGE_HYP_RO);
    if (error && error != -ENOMEM) {
        fail("kvm_pgtable_hyp_map", error);
    }
}

/* A part of a block is refused, and pages before a hole are unmapped. */
static void unmap_hyp(uint64_t at, uint64_t bytes) { kvm_pgtable_hyp_unmap(&tables, at, bytes); }

static void hypervisor(uint64_t seed) {
    void (*all[])(uint64_t, uint64_t) = {map_hyp, unmap_hyp, unmap_hyp};
    start(PTSAN_ARCH_AARCH64_4K, 48, seed);
    if (kvm_pgtable_hyp_init(&tables, 48, &ops)) {
        fail("kvm_pgtable_hyp_init", __LINE__);
    }
    load();
    for (int step = 0; step < 60; step++) {
        change(HYP, all[below(sizeof all / sizeof *all)]);
    }
    compare(HYP);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_leave(san, cpu);
    }
    ptsan_flush_all(san, PTSAN_EVERY_CPU);
    linux_dsb(ish);
    kvm_pgtable_hyp_destroy(&tables);
    ptsan_finish(san);
    verdict("linux-kvm: map and unmap at random, the hypervisor's own tables", "", "");
}

int main(void) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        guest(seed);
        hypervisor(seed);
    }
    return 0;
}
