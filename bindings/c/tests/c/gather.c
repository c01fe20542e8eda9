/* A kernel's own tree: its tables from the lists, its frames and tables through gathers. */
#include "host.h"

#define P 1u
#define LINK 7u
#define ADDRESS UINT64_C(0x000ffffffffff000)

static struct pt_space space;
static uint64_t *root, root_at;

static unsigned shift(unsigned level) { return 12 + 9 * level; }
static uint64_t *entry(uint64_t *table, unsigned level, uint64_t va) { return &table[va >> shift(level) & 511]; }
static uint64_t *at(uint64_t raw) { return (uint64_t *)(ram + (raw & ADDRESS)); }

static void map(uint64_t va, uint64_t frame) {
    uint64_t *table = root;
    for (unsigned level = PT_LEVELS - 1; level > 0; level--) {
        uint64_t *link = entry(table, level, va);
        if (*link == 0) {
            unsigned char *page = pt_quicklist_alloc(&cpu, level - 1);
            CHECK(page != NULL);
            if (level < PT_LEVELS - 1 || PT_LEVELS == 4)
                OK(pt_table_touched(&cpu, link));
            *link = (uint64_t)(page - ram) | (PT_LEVELS == 3 && level == 2 ? P : LINK);
        }
        table = at(*link);
    }
    OK(pt_table_touched(&cpu, entry(table, 0, va)));
    *entry(table, 0, va) = frame | LINK;
}

/* Takes all tables below `table` down; entries of tables that go need not be cleared. */
static void take_down(struct pt_gather *gather, uint64_t *table, unsigned level, uint64_t va) {
    unsigned n = level + 1 < PT_LEVELS ? 512 : USER_ENTRIES;
    for (unsigned i = 0; i < n; i++) {
        uint64_t raw = table[i], from = va + ((uint64_t)i << shift(level));
        if (raw == 0)
            continue;
        if (level == 0) {
            OK(pt_gather_page(gather, from, raw & ADDRESS));
        } else {
            take_down(gather, at(raw), level - 1, from);
            table[i] = 0;
            OK(pt_gather_table(gather, at(raw), from));
        }
    }
}

int main(void) {
    ram = reserve(LOW_BYTES);
    begin(configured());
    for (unsigned round = 0; round < 3; round++) {
        struct pt_gather gather = {0};
        unsigned roots = hooks.roots;
        OK(pt_space_init(&space, &cpu));
        if (PT_LEVELS == 4) {
            root = pt_quicklist_alloc(&cpu, PT_LEVELS - 1);
            CHECK(root != NULL && root[KERNEL_INDEX] == (HAS_KERNEL_HALF ? KERNEL_ENTRY : 0));
            if (HAS_KERNEL_HALF)
                RETURNS(pt_table_touched(&cpu, &root[KERNEL_INDEX]), PT_ERROR_RANGE);
        } else {
            CHECK(pt_quicklist_alloc(&cpu, PT_LEVELS - 1) == NULL);
            root = (uint64_t *)(ram + 3 * PAGE); /* 32 bytes of the kernel's own */
        }
        root_at = (uint64_t)((unsigned char *)root - ram);
        OK(pt_space_activate(&space, &cpu, root_at));
        CHECK(hooks.roots == roots + 1 && hooks.root == root_at);
        for (unsigned i = 0; i < 500; i++)
            map((uint64_t)i << 21 | (uint64_t)(i % 97) << 12, pt_page_alloc(&cpu));

        /* One page: its frame is not handed out before the flush, and is afterwards. */
        uint64_t va = UINT64_C(7) << 21 | 7 << 12, *leaf = root, frames[64];
        for (unsigned level = PT_LEVELS - 1; level > 0; level--)
            leaf = at(*entry(leaf, level, va));
        uint64_t frame = *entry(leaf, 0, va) & ADDRESS;
        *entry(leaf, 0, va) = 0;
        unsigned pages = hooks.pages;
        OK(pt_gather_begin(&gather, &cpu, &space));
        OK(pt_gather_page(&gather, va, frame));
        for (unsigned i = 0; i < 64; i++)
            CHECK((frames[i] = pt_page_alloc(&cpu)) != frame);
        CHECK(hooks.pages == pages);
        OK(pt_gather_finish(&gather));
        CHECK(hooks.pages == pages + 1 && hooks.va == va);
        uint64_t again = pt_page_alloc(&cpu);
        CHECK(again == frame);
        OK(pt_page_free(&cpu, again));
        for (unsigned i = 0; i < 64; i++)
            OK(pt_page_free(&cpu, frames[i]));

        /* A large page of a device: one call, and one for each smaller page beside it. */
        uint64_t large = UINT64_C(600) << 21, size = UINT64_C(1) << 21;
        unsigned alls = hooks.alls;
        pages = hooks.pages;
        OK(pt_gather_begin(&gather, &cpu, &space));
        RETURNS(pt_gather_changed_large(&gather, large, size, 0), PT_ERROR_ARGUMENT);
        RETURNS(pt_gather_changed_large(&gather, large, size, PT_LEVELS), PT_ERROR_ARGUMENT);
        RETURNS(pt_gather_changed_large(&gather, large + 4096, size, 1), PT_ERROR_RANGE);
        RETURNS(pt_gather_changed_large(&gather, large, size + 4096, 1), PT_ERROR_RANGE);
        RETURNS(pt_gather_changed_large(&gather, PT_USER_END, size, 1), PT_ERROR_RANGE);
        OK(pt_gather_changed_large(&gather, large, 0, 1));
        OK(pt_gather_changed_large(&gather, large, size, 1));
        OK(pt_gather_finish(&gather));
        CHECK(hooks.pages == pages + 1 && hooks.va == large && hooks.alls == alls);
        OK(pt_gather_begin(&gather, &cpu, &space));
        OK(pt_gather_changed_large(&gather, large, size, 1));
        OK(pt_gather_changed(&gather, large + size, 4096));
        OK(pt_gather_finish(&gather));
        CHECK(hooks.alls > alls || hooks.pages == pages + 1 + 513); /* it is counted in pages now */
        RETURNS(pt_gather_changed_large(&gather, large, size, 1), PT_ERROR_OBJECT);

        /* Its table, unlinked: the same. */
        uint64_t *above = root;
        for (unsigned level = PT_LEVELS - 1; level > 1; level--)
            above = at(*entry(above, level, va));
        CHECK(at(*entry(above, 1, va)) == leaf);
        *entry(above, 1, va) = 0;
        void *tables[64];
        OK(pt_gather_begin(&gather, &cpu, &space));
        OK(pt_gather_table(&gather, leaf, UINT64_C(7) << 21));
        for (unsigned i = 0; i < 64; i++)
            CHECK((tables[i] = pt_quicklist_alloc(&cpu, 0)) != leaf);
        pages = hooks.pages + hooks.alls;
        OK(pt_gather_finish(&gather));
        /* One page: any INVLPG drops paging-structure caches, and AArch64's TLBI those on the way.
         * RISC-V: all. */
        CHECK(hooks.pages + hooks.alls == pages + 1);
        void *table = pt_quicklist_alloc(&cpu, 0);
        CHECK(table == leaf);
        for (unsigned i = 0; i < 512; i++)
            CHECK(leaf[i] == 0);
        OK(pt_quicklist_free(&cpu, table));
        for (unsigned i = 0; i < 64; i++)
            OK(pt_quicklist_free(&cpu, tables[i]));

        /* All of it. The root goes last. */
        OK(pt_gather_begin(&gather, &cpu, &space));
        take_down(&gather, root, PT_LEVELS - 1, 0);
        OK(pt_gather_finish(&gather));
        RETURNS(pt_space_exit(&space, &cpu, PT_LEVELS == 4 ? root : NULL), PT_ERROR_IN_USE);
        OK(pt_space_deactivate(&space, &cpu));
        CHECK(hooks.root == KERNEL_ROOT);
        OK(pt_space_exit(&space, &cpu, PT_LEVELS == 4 ? root : NULL));
        struct pt_counts counts;
        OK(pt_counts(&machine, &counts));
        CHECK(counts.tables == 0 && counts.cached_tables == pt_quicklist_total_size(&machine));
        CHECK(round == 0 || counts.cached_tables > 0);
    }
    /* A change of the kernel's half reaches roots that rest. */
    if (PT_LEVELS == 4 && HAS_KERNEL_HALF) {
        OK(pt_kernel_set(&cpu, KERNEL_INDEX + 1, 0x9001));
        root = pt_quicklist_alloc(&cpu, PT_LEVELS - 1);
        CHECK(root[KERNEL_INDEX] == KERNEL_ENTRY && root[KERNEL_INDEX + 1] == 0x9001);
        OK(pt_quicklist_free(&cpu, root));
    }
    uint64_t before = pt_quicklist_total_size(&machine);
    int64_t trimmed = pt_quicklist_trim(&cpu, before / 2, 8);
    CHECK(trimmed >= 0 && trimmed <= 8 && pt_quicklist_total_size(&machine) == before - (uint64_t)trimmed);
    CHECK(pt_quicklist_trim(&cpu, before, 8) == 0);
    CHECK(pt_cpu_idle(&cpu, 4) >= 0);
    finish();
    puts("gathered");
    return 0;
}
