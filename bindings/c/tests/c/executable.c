/* Frames that instructions may be fetched from: the kernel is told before the entry is there. */
#include "host.h"

#define FIRST ((uint64_t)1 << 30)
#define R PT_ATTR_READ
#define W PT_ATTR_WRITE
#define X PT_ATTR_EXEC
#define U PT_ATTR_USER

static struct pt_tree tree;
static struct { unsigned calls; uint64_t phys, pages; } told;
static uint64_t watched, before, root;

/* The entry that maps `va`; 0 if there is none. */
static uint64_t leaf(uint64_t va) {
#if defined(__riscv)
    const unsigned to_address = 2;
#else
    const unsigned to_address = 0;
#endif
    uint64_t at = root, raw = 0;
    for (unsigned level = PT_LEVELS; level-- > 0;) {
        unsigned index = (unsigned)(va >> (12 + 9 * level)) & (PT_LEVELS == 3 && level == 2 ? 3 : 511);
        raw = ((const uint64_t *)(ram + at))[index];
        if (raw == 0)
            return 0;
        at = (raw << to_address) & UINT64_C(0x000ffffffffff000);
    }
    return raw;
}

static void clean(void *context, uint32_t number, uint64_t phys, uint64_t pages) {
    CHECK(context == &told && number == 0);
    CHECK(leaf(watched) == before); /* not written yet */
    told.calls++, told.phys = phys, told.pages = pages;
}

/* The call makes pages executable so many times, the last time the frame at `phys`. */
#define TELLS(call, va, n, at) \
    do { \
        watched = (va), before = leaf(watched), told.calls = 0; \
        OK(call); \
        CHECK(told.calls == (n)); \
        CHECK(told.calls == 0 || (told.phys == (at) && told.pages == 1)); \
    } while (0)

int main(void) {
    ram = reserve(LOW_BYTES);
    struct pt_config config = configured();
    config.hooks.context = &told;
    config.hooks.before_executable = clean;
    begin(config);
    OK(pt_tree_init(&tree, &cpu));
    root = pt_tree_root(&tree, &cpu);
    uint64_t code = pt_page_alloc(&cpu), data = pt_page_alloc(&cpu);
    TELLS(pt_tree_map(&tree, &cpu, FIRST, code, R | X | U), FIRST, 1, code);
    TELLS(pt_tree_map(&tree, &cpu, FIRST + PAGE, data, R | W | U), FIRST + PAGE, 0, 0);
    /* Written, then executed; then neither, and executed again. */
    TELLS(pt_tree_protect(&tree, &cpu, FIRST + PAGE, PAGE, R | X | U), FIRST + PAGE, 1, data);
    TELLS(pt_tree_protect(&tree, &cpu, FIRST + PAGE, PAGE, R | W | X | U), FIRST + PAGE, 0, 0);
    TELLS(pt_tree_protect(&tree, &cpu, FIRST + PAGE, PAGE, R | U), FIRST + PAGE, 0, 0);
    TELLS(pt_tree_protect(&tree, &cpu, FIRST + PAGE, PAGE, R | X | U), FIRST + PAGE, 1, data);
    /* Code of the kernel's own, which programs may execute; a page for execution alone, where there
     * are such pages. */
    TELLS(pt_tree_map_range(&tree, &cpu, 2 * FIRST, 3 * PAGE, DEVICE, R | X | U), 2 * FIRST + 2 * PAGE, 3,
          DEVICE + 2 * PAGE);
    uint64_t only = 2 * FIRST + 8 * PAGE;
    told.calls = 0;
    if (IS_X86)
        CHECK(pt_tree_map(&tree, &cpu, only, DEVICE + 8 * PAGE, X | U) == PT_ERROR_ARGUMENT && told.calls == 0);
    else
        TELLS(pt_tree_map(&tree, &cpu, only, DEVICE + 8 * PAGE, X | U), only, 1, DEVICE + 8 * PAGE);
    CHECK(pt_tree_map(&tree, &cpu, only + PAGE, DEVICE, W | U) == PT_ERROR_ARGUMENT);
    CHECK(pt_tree_protect(&tree, &cpu, FIRST, PAGE, W | X | U) == PT_ERROR_ARGUMENT);
    struct pt_page page;
    OK(pt_tree_query(&tree, &cpu, FIRST, &page));
    CHECK((page.attr & (R | W | X | U)) == (R | X | U)); /* unchanged */
    TELLS(pt_tree_unmap(&tree, &cpu, FIRST, 2 * PAGE, NULL, NULL), FIRST, 0, 0);
    OK(pt_tree_exit(&tree, &cpu));
    finish();
    /* Where instruction caches see stores, the kernel need not be told. */
    config = configured();
    config.hooks.before_executable = NULL;
    if (IS_X86) {
        begin(config);
        OK(pt_tree_init(&tree, &cpu));
        OK(pt_tree_map(&tree, &cpu, FIRST, pt_page_alloc(&cpu), R | X | U));
        OK(pt_tree_exit(&tree, &cpu));
        finish();
    }
    puts("told");
    return 0;
}
