/* Large pages of trees: they are mapped, told, split, collapsed, changed in part and unmapped, and
 * their logs of written pages. The model is the entries themselves, as an MMU reads them. */
#include "host.h"

#define M2 (PAGE << PT_LEVEL_BITS)
#define AT ((uint64_t)1 << 30)
#define RW (PT_ATTR_READ | PT_ATTR_WRITE | PT_ATTR_USER)
#define RO (PT_ATTR_READ | PT_ATTR_USER)
#define SET (uint32_t)(PT_ATTR_ACCESSED | PT_ATTR_DIRTY)

static struct pt_tree tree;

/* What a call told. */
#define TOLD 1200
static struct { unsigned n; struct pt_page pages[TOLD]; } told;

static void note(void *context, const struct pt_page *page) {
    CHECK(context == &told && told.n < TOLD);
    told.pages[told.n++] = *page;
}
#define TELLS(call, count) \
    do { \
        told.n = 0; \
        OK(call); \
        RETURNS(told.n, count); \
    } while (0)

static int is(const struct pt_page *page, uint64_t va, uint64_t phys, uint32_t attr, uint32_t level) {
    return page->va == va && page->phys == phys && (page->attr & ~SET) == attr && page->level == level
        && page->bytes == (uint64_t)PAGE << level * PT_LEVEL_BITS;
}

/* The entry that maps `va`, and the level of its table. */
static uint64_t *entry(uint64_t va, unsigned *level) {
#if defined(__riscv)
    const unsigned to_address = 2;
#else
    const unsigned to_address = 0;
#endif
    uint64_t at = pt_tree_root(&tree, &cpu);
    for (*level = PT_LEVELS - 1;; --*level) {
        unsigned index = (unsigned)(va >> (12 + 9 * *level)) & (PT_LEVELS == 3 && *level == 2 ? 3 : 511);
        uint64_t *here = (uint64_t *)(ram + at) + index;
#if defined(__riscv)
        int is_leaf = (*here & 14) != 0;
#elif defined(__aarch64__)
        int is_leaf = (*here & 2) == 0;
#else
        int is_leaf = (*here >> 7 & 1) != 0;
#endif
        if (*here == 0 || *level == 0 || is_leaf)
            return here;
        at = (*here << to_address) & UINT64_C(0x000ffffffffff000);
    }
}
static unsigned level_of(uint64_t va) {
    unsigned level;
    CHECK(*entry(va, &level) != 0);
    return level;
}

/* Writes through the page at `va`, as an MMU does it that keeps the bit. */
static void written(uint64_t va) {
    unsigned level;
    uint64_t *here = entry(va, &level);
#if defined(__riscv)
    *here |= 1 << 7;
#elif defined(__aarch64__)
    *here &= ~(uint64_t)(1 << 7); /* AP[2]: writes are not refused any more */
#else
    *here |= 1 << 6;
#endif
}

static void mapped(void) {
    /* A page, two large pages, a page; the frames are aligned as the addresses are. */
    uint64_t first = AT - PAGE, bytes = 2 * M2 + 2 * PAGE, phys = DEVICE - PAGE;
    struct pt_page found;
    OK(pt_tree_map_range_large(&tree, &cpu, first, bytes, phys, RW, 1));
    CHECK(level_of(first) == 0 && level_of(AT) == 1 && level_of(AT + M2) == 1 && level_of(AT + 2 * M2) == 0);
    TELLS(pt_tree_walk(&tree, &cpu, first, bytes, note, &told), 4);
    CHECK(is(&told.pages[0], first, phys, RW, 0) && is(&told.pages[1], AT, DEVICE, RW, 1));
    CHECK(is(&told.pages[2], AT + M2, DEVICE + M2, RW, 1));
    CHECK(is(&told.pages[3], AT + 2 * M2, DEVICE + 2 * M2, RW, 0));
    OK(pt_tree_query(&tree, &cpu, AT + M2 + 5 * PAGE + 7, &found));
    CHECK(is(&found, AT + M2, DEVICE + M2, RW, 1));
    TELLS(pt_tree_walk(&tree, &cpu, AT + 5 * PAGE, PAGE, note, &told), 1); /* in part */
    CHECK(is(&told.pages[0], AT, DEVICE, RW, 1));
    RETURNS(pt_tree_map(&tree, &cpu, AT + PAGE, DEVICE, RW), PT_ERROR_MAPPED);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT - M2, 4 * M2, DEVICE, RW, 1), PT_ERROR_MAPPED);
    RETURNS(pt_tree_query(&tree, &cpu, AT - M2, &found), PT_ERROR_NOT_MAPPED); /* nothing is left behind */

    /* A part of the first one goes, and a part of the second loses a permission: both are split, by
     * tables that were reserved. */
    TELLS(pt_tree_unmap(&tree, &cpu, AT + 3 * PAGE, 2 * PAGE, note, &told), 2);
    CHECK(is(&told.pages[0], AT + 3 * PAGE, DEVICE + 3 * PAGE, RW, 0));
    CHECK(level_of(AT) == 0 && level_of(AT + M2) == 1);
    OK(pt_tree_protect(&tree, &cpu, AT + M2, PAGE, RO));
    TELLS(pt_tree_walk(&tree, &cpu, AT + M2, M2, note, &told), 512);
    CHECK(is(&told.pages[0], AT + M2, DEVICE + M2, RO, 0));
    CHECK(is(&told.pages[511], AT + 2 * M2 - PAGE, DEVICE + 2 * M2 - PAGE, RW, 0));

    /* Back to large pages, once they are all alike. */
    RETURNS(pt_tree_collapse(&tree, &cpu, AT, 1), PT_ERROR_DIFFERS);
    RETURNS(pt_tree_collapse(&tree, &cpu, AT + M2, 1), PT_ERROR_DIFFERS);
    OK(pt_tree_protect(&tree, &cpu, AT + M2, PAGE, RW));
    OK(pt_tree_map_range(&tree, &cpu, AT + 3 * PAGE, 2 * PAGE, DEVICE + 3 * PAGE, RW));
    long long tables = pt_tree_tables(&tree, &cpu, 0);
    OK(pt_tree_collapse(&tree, &cpu, AT, 1));
    OK(pt_tree_collapse(&tree, &cpu, AT, 1)); /* it stays */
    OK(pt_tree_collapse(&tree, &cpu, AT + M2, 1));
    RETURNS(pt_tree_tables(&tree, &cpu, 0), tables - 2);
    CHECK(level_of(AT) == 1 && level_of(AT + M2) == 1);
    OK(pt_tree_split(&tree, &cpu, AT + M2 + PAGE, 1)); /* as small already */
    CHECK(level_of(AT + M2) == 1);
    OK(pt_tree_split(&tree, &cpu, AT + M2 + PAGE, 0));
    CHECK(level_of(AT) == 1 && level_of(AT + M2) == 0);
    OK(pt_tree_split(&tree, &cpu, 5 * AT / 2, 0)); /* nothing is mapped there */

    /* One call for the large page, one for each other. */
    OK(pt_tree_activate(&tree, &cpu));
    unsigned flushes = hooks.pages + hooks.alls;
    TELLS(pt_tree_unmap(&tree, &cpu, AT, M2, note, &told), 1);
    CHECK(is(&told.pages[0], AT, DEVICE, RW, 1) && hooks.pages + hooks.alls > flushes);
    TELLS(pt_tree_unmap(&tree, &cpu, first, bytes, note, &told), 1 + 512 + 1);
    RETURNS(pt_tree_tables(&tree, &cpu, 0), 0);
    OK(pt_tree_deactivate(&tree, &cpu));

    /* Where address and frame are not aligned alike there is no large page, nor with level 0. */
    OK(pt_tree_map_range_large(&tree, &cpu, AT, 2 * M2, DEVICE + PAGE, RO, 1));
    TELLS(pt_tree_unmap(&tree, &cpu, AT, 2 * M2, note, &told), 1024);
    OK(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE, RO, 0));
    TELLS(pt_tree_unmap(&tree, &cpu, AT, M2, note, &told), 512);
    OK(pt_tree_map_range_large(&tree, &cpu, AT, 0, DEVICE, RO, 1));
    if (PT_LEVELS == 4) { /* a page of 1 GiB, split in two steps */
        OK(pt_tree_map_range_large(&tree, &cpu, AT, AT, AT, RW, 2));
        CHECK(level_of(AT) == 2);
        TELLS(pt_tree_unmap(&tree, &cpu, AT + M2 + PAGE, PAGE, note, &told), 1);
        CHECK(is(&told.pages[0], AT + M2 + PAGE, AT + M2 + PAGE, RW, 0));
        CHECK(level_of(AT) == 1 && level_of(AT + M2) == 0 && level_of(2 * AT - M2) == 1);
        TELLS(pt_tree_unmap(&tree, &cpu, AT, AT, note, &told), 511 + 511);
    }
}

static void refused(void) {
    uint64_t frame = pt_page_alloc(&cpu);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, PAGE, frame, RW, 1), PT_ERROR_FOREIGN);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, 16 * M2, LOW_BYTES / 2, RW, 1), PT_ERROR_FOREIGN);
    /* The library's memory begins within it, or ends. */
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, 0, RW, 1), PT_ERROR_FOREIGN);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, 2 * PAGE, LOW_BYTES - PAGE, RW, 1), PT_ERROR_FOREIGN);
    OK(pt_tree_map_range_large(&tree, &cpu, AT, PAGE, LOW_BYTES, RW, 1));
    OK(pt_tree_map_range_large(&tree, &cpu, AT + PAGE, PAGE, run.start - PAGE, RW, 1));
    OK(pt_tree_unmap(&tree, &cpu, AT, 2 * PAGE, NULL, NULL));
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE, RW, PT_LEVELS), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE, RW, UINT32_MAX), PT_ERROR_ARGUMENT);
    if (IS_X86) /* the root has no pages */
        RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE, RW, PT_LEVELS - 1), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE, 16, 1), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT + 1, M2, DEVICE, RW, 1), PT_ERROR_RANGE);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE + 1, RW, 1), PT_ERROR_RANGE);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, PT_USER_END - PAGE, M2, DEVICE, RW, 1), PT_ERROR_RANGE);
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, ((uint64_t)1 << 44) - PAGE, RW, 1), PT_ERROR_RANGE);
    RETURNS(pt_tree_split(&tree, &cpu, PT_USER_END, 0), PT_ERROR_RANGE);
    RETURNS(pt_tree_split(&tree, &cpu, AT, PT_LEVELS), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_split(NULL, &cpu, AT, 0), PT_ERROR_POINTER);
    RETURNS(pt_tree_collapse(&tree, &cpu, AT, PT_LEVELS), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_collapse(&tree, &cpu, AT, 0), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_collapse(&tree, &cpu, AT, 1), PT_ERROR_DIFFERS); /* nothing is mapped */
    RETURNS(pt_tree_collapse(&tree, &cpu, PT_USER_END - PAGE, 1), PT_ERROR_RANGE);
    RETURNS(pt_tree_collapse(&tree, &cpu, AT + PAGE, 1), PT_ERROR_RANGE);
    RETURNS(pt_tree_take_dirty(&tree, &cpu, AT, PAGE, PT_LEVELS, note, &told), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_take_dirty(&tree, &cpu, 1, PAGE, 0, note, &told), PT_ERROR_RANGE);
    RETURNS(pt_tree_write_protect(&tree, &cpu, AT, PAGE, PT_LEVELS, note, &told), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_take_accessed(&tree, &cpu, PT_USER_END, PAGE, note, &told), PT_ERROR_RANGE);
    OK(pt_page_free(&cpu, frame));
}

/* Frames of pt_page_alloc that follow each other do not become a large page: the tree owns each. */
static void owned(void) {
    static uint64_t frames[LOW_BYTES / PAGE];
    static unsigned char is_ours[LOW_BYTES / PAGE];
    size_t n = 0;
    uint64_t block = 0;
    while (n < LOW_BYTES / PAGE - 4096 && (frames[n] = pt_page_alloc(&cpu)) != 0)
        is_ours[frames[n++] / PAGE] = 1;
    for (uint64_t at = M2; at < LOW_BYTES && block == 0; at += M2) {
        size_t pages = 0;
        while (pages < 512 && is_ours[at / PAGE + pages])
            pages++;
        block = pages == 512 ? at : 0;
    }
    CHECK(block != 0);
    OK(pt_tree_map_range(&tree, &cpu, AT, M2, block, RW));
    RETURNS(pt_tree_collapse(&tree, &cpu, AT, 1), PT_ERROR_FOREIGN);
    CHECK(level_of(AT) == 0);
    OK(pt_tree_unmap(&tree, &cpu, AT, M2, NULL, NULL)); /* all of them are back */
    while (n-- > 0)
        RETURNS(pt_page_free(&cpu, frames[n]), frames[n] - block < M2 ? PT_ERROR_FREED : PT_OK);
}

static void logs(void) {
    struct pt_page found;
    OK(pt_tree_map_range_large(&tree, &cpu, AT, 2 * M2, DEVICE, RW, 1));
    /* AArch64 and RISC-V: dirty from the beginning. */
    TELLS(pt_tree_take_dirty(&tree, &cpu, AT, 2 * M2, PT_LEVELS - 1, note, &told), IS_X86 ? 0 : 2);
    TELLS(pt_tree_take_dirty(&tree, &cpu, AT, 2 * M2, PT_LEVELS - 1, note, &told), 0);
    written(AT + PAGE);
    /* Told as a whole, also if a part is asked for; then the part is split. */
    OK(pt_tree_activate(&tree, &cpu));
    unsigned flushes = hooks.pages + hooks.alls;
    TELLS(pt_tree_take_dirty(&tree, &cpu, AT + 4 * PAGE, PAGE, 0, note, &told), 1);
    CHECK(is(&told.pages[0], AT, DEVICE, RW, 1) && told.pages[0].attr & PT_ATTR_DIRTY);
    CHECK(hooks.pages + hooks.alls > flushes && level_of(AT) == 0 && level_of(AT + M2) == 1);
    OK(pt_tree_deactivate(&tree, &cpu));
    written(AT + 9 * PAGE);
    TELLS(pt_tree_take_dirty(&tree, &cpu, AT, 2 * M2, 1, note, &told), 1);
    CHECK(is(&told.pages[0], AT + 9 * PAGE, DEVICE + 9 * PAGE, RW, 0));
    TELLS(pt_tree_take_dirty(&tree, &cpu, AT, 2 * M2, 1, NULL, NULL), 0);

    /* The permission to write: in the range alone. */
    TELLS(pt_tree_write_protect(&tree, &cpu, AT + M2, M2, 1, note, &told), 1);
    CHECK(is(&told.pages[0], AT + M2, DEVICE + M2, RW, 1));
    OK(pt_tree_query(&tree, &cpu, AT + M2, &found));
    CHECK(is(&found, AT + M2, DEVICE + M2, RO, 1));
    OK(pt_tree_query(&tree, &cpu, AT, &found));
    CHECK(is(&found, AT, DEVICE, RW, 0));
    TELLS(pt_tree_write_protect(&tree, &cpu, AT + M2, M2, 0, note, &told), 0);
    CHECK(level_of(AT + M2) == 0);
    /* The handler of a write fault. */
    OK(pt_tree_protect(&tree, &cpu, AT + M2 + PAGE, PAGE, RW));
    TELLS(pt_tree_write_protect(&tree, &cpu, AT + M2, M2, 0, note, &told), 1);
    CHECK(is(&told.pages[0], AT + M2 + PAGE, DEVICE + M2 + PAGE, RW, 0));
    OK(pt_tree_unmap(&tree, &cpu, AT, 2 * M2, NULL, NULL));

    OK(pt_tree_map_range_large(&tree, &cpu, AT, M2 + PAGE, DEVICE, RO, 1));
    unsigned level;
    if (IS_X86) {
        TELLS(pt_tree_take_accessed(&tree, &cpu, AT, 2 * M2, note, &told), 0);
        *entry(AT, &level) |= 1 << 5;
        *entry(AT + M2, &level) |= 1 << 5;
    }
    TELLS(pt_tree_take_accessed(&tree, &cpu, AT, 2 * M2, note, &told), 2);
    CHECK(is(&told.pages[0], AT, DEVICE, RO, 1) && told.pages[0].attr == (RO | PT_ATTR_ACCESSED));
    TELLS(pt_tree_take_accessed(&tree, &cpu, AT, 2 * M2, note, &told), 0);
    OK(pt_tree_query(&tree, &cpu, AT, &found));
    CHECK(found.attr == RO && found.level == 1);
}

/* Groups: 16 entries with the hint that the MMU may keep them as one. */
static void groups(void) {
#if defined(__aarch64__)
    const uint64_t hint = (uint64_t)1 << 52, bytes = 16 * PAGE, from = AT - PAGE;
    struct pt_page found;
    unsigned level;
    /* A page, two groups, a page; without the flag there are pages alone. */
    OK(pt_tree_map_range_large(&tree, &cpu, from, 2 * bytes + 2 * PAGE, DEVICE - PAGE, RW, 1));
    TELLS(pt_tree_unmap(&tree, &cpu, from, 2 * bytes + 2 * PAGE, note, &told), 34);
    OK(pt_tree_map_range_large(&tree, &cpu, from, 2 * bytes + 2 * PAGE, DEVICE - PAGE, RW, 1 | PT_GROUPS));
    TELLS(pt_tree_walk(&tree, &cpu, from, 2 * bytes + 2 * PAGE, note, &told), 4);
    CHECK(is(&told.pages[0], from, DEVICE - PAGE, RW, 0) && told.pages[1].bytes == bytes);
    OK(pt_tree_query(&tree, &cpu, AT + bytes + 5 * PAGE, &found));
    CHECK(found.va == AT + bytes && found.phys == DEVICE + bytes && found.bytes == bytes && found.level == 0);
    for (uint64_t va = from; va <= AT + 2 * bytes; va += PAGE)
        CHECK(!(*entry(va, &level) & hint) == (va == from || va == AT + 2 * bytes));
    /* A part that changes takes the hint from its own group, and the pages can have it again. */
    OK(pt_tree_protect(&tree, &cpu, AT + 3 * PAGE, PAGE, RO));
    CHECK(!(*entry(AT, &level) & hint) && *entry(AT + bytes, &level) & hint);
    RETURNS(pt_tree_make_group(&tree, &cpu, AT, 0), PT_ERROR_DIFFERS);
    OK(pt_tree_protect(&tree, &cpu, AT + 3 * PAGE, PAGE, RW));
    RETURNS(pt_tree_make_group(&tree, &cpu, AT + PAGE, 0), PT_ERROR_RANGE);
    OK(pt_tree_make_group(&tree, &cpu, AT, 0));
    OK(pt_tree_make_group(&tree, &cpu, AT, 0)); /* it stays */
    CHECK(*entry(AT + 15 * PAGE, &level) & hint);
    OK(pt_tree_split(&tree, &cpu, AT, 0));
    CHECK(!(*entry(AT, &level) & hint) && *entry(AT + bytes, &level) & hint);
    TELLS(pt_tree_unmap(&tree, &cpu, from, 2 * bytes + 2 * PAGE, note, &told), 1 + 16 + 1 + 1);

    /* Of large pages: 32 MiB. */
    OK(pt_tree_map_range_large(&tree, &cpu, AT, 17 * M2, 2 * AT, RW, 1 | PT_GROUPS));
    TELLS(pt_tree_unmap(&tree, &cpu, AT, 17 * M2, note, &told), 2);
    CHECK(told.pages[0].bytes == 16 * M2 && told.pages[0].level == 1 && is(&told.pages[1], AT + 16 * M2, 2 * AT + 16 * M2, RW, 1));
#else
    RETURNS(pt_tree_map_range_large(&tree, &cpu, AT, M2, DEVICE, RW, 1 | PT_GROUPS), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_make_group(&tree, &cpu, AT, 0), PT_ERROR_ARGUMENT);
#endif
    RETURNS(pt_tree_make_group(&tree, &cpu, AT, PT_LEVELS), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_make_group(NULL, &cpu, AT, 0), PT_ERROR_POINTER);
}

int main(void) {
    ram = reserve(LOW_BYTES);
    begin(configured());
    OK(pt_tree_init(&tree, &cpu));
    mapped();
    refused();
    owned();
    logs();
    OK(pt_tree_unmap(&tree, &cpu, AT, AT, NULL, NULL));
    groups();
    /* What is still mapped goes with the tree, and so do the tables that are reserved. */
    OK(pt_tree_map_range_large(&tree, &cpu, 2 * AT, 3 * M2, DEVICE, RW, 1));
    OK(pt_tree_exit(&tree, &cpu));
    added_up();
    finish();
    puts("large");
    return 0;
}
