/* Memory types: those that there are come back, others are refused, and nothing changes then. */
#include "host.h"

#define USER (PT_ATTR_READ | PT_ATTR_WRITE | PT_ATTR_USER)
#define FIRST ((uint64_t)0x400000)

static struct pt_tree tree;

/* The attributes of a page, without those that an MMU sets; 0 if there is none. */
static uint32_t attr_of(uint64_t va) {
    struct pt_page page;
    if (pt_tree_query(&tree, &cpu, va, &page) != PT_OK)
        return 0;
    return page.attr & ~(uint32_t)(PT_ATTR_ACCESSED | PT_ATTR_DIRTY);
}

int main(void) {
    ram = reserve(LOW_BYTES);
    begin(configured());
    OK(pt_tree_init(&tree, &cpu));
#if defined(__aarch64__)
    const int any = 1;
#else
    const int any = IS_X86;
#endif
    const struct {
        uint32_t type;
        int there;
    } types[] = {
        {0, 1},
        {PT_ATTR_WRITE_COMBINING, any},
        {PT_ATTR_UNCACHED, IS_X86},
        {PT_ATTR_DEVICE, any},
        {PT_ATTR_WRITE_THROUGH, any},
        /* No type has these numbers. */
        {0x4000, 0},
        {0x5000, 0},
        {0x6000, 0},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint32_t attr = USER | types[i].type;
        int32_t want = types[i].there ? PT_OK : PT_ERROR_MEMORY_TYPE;
        RETURNS(pt_tree_map(&tree, &cpu, FIRST, DEVICE, attr), want);
        RETURNS(pt_tree_map_range(&tree, &cpu, FIRST + PAGE, 2 * PAGE, DEVICE, attr), want);
        for (uint64_t page = 0; page < 3; page++)
            CHECK(attr_of(FIRST + page * PAGE) == (types[i].there ? attr : 0));
        OK(pt_tree_map(&tree, &cpu, FIRST + 3 * PAGE, DEVICE, USER));
        RETURNS(pt_tree_protect(&tree, &cpu, FIRST + 3 * PAGE, PAGE, attr), want);
        CHECK(attr_of(FIRST + 3 * PAGE) == (types[i].there ? attr : USER));
        OK(pt_tree_unmap(&tree, &cpu, FIRST, 4 * PAGE, NULL, NULL));
    }
    /* A bit that is none of the attributes is another mistake. */
    RETURNS(pt_tree_map(&tree, &cpu, FIRST, DEVICE, USER | 0x8000), PT_ERROR_ARGUMENT);
    CHECK(strcmp(pt_error_text(PT_ERROR_MEMORY_TYPE), pt_error_text(PT_ERROR_ARGUMENT)) != 0);
    OK(pt_tree_exit(&tree, &cpu));
    finish();
    puts("typed");
    return 0;
}
