/* Trees by a random sequence of calls, printed. `examples/reference.rs` does the same in Rust, and
 * the output has to be the same. */
#include "host.h"

static uint64_t sum;

static void seen(void *context, const struct pt_page *page) {
    uint64_t *pages = context;
    ++*pages;
    sum = sum * 31 + page->va + page->attr;
}

static void one(unsigned number) {
    static struct pt_tree tree;
    OK(pt_tree_init(&tree, &cpu));
    if (number % 2)
        OK(pt_tree_activate(&tree, &cpu));
    unsigned refused = 0;
    for (unsigned step = 0; step < 4000; step++) {
        uint32_t what = below(10), gib = below(3), mib = below(64), page = below(512), bits = below(8);
        uint64_t va = (uint64_t)gib << 30 | (uint64_t)mib << 21 | (uint64_t)page << 12;
        uint64_t bytes = (below(64) + 1) * PAGE, pages = 0;
        uint32_t attr = PT_ATTR_READ | PT_ATTR_USER | (bits & 3) << 1;
        struct pt_page found;
        if (what < 5) {
            uint64_t frame = pt_page_alloc(&cpu);
            CHECK(frame != 0);
            int32_t result = pt_tree_map(&tree, &cpu, va, frame, attr);
            if (result == PT_ERROR_MAPPED) {
                refused++;
                OK(pt_page_free(&cpu, frame));
            } else {
                OK(result);
            }
        } else if (what == 5) {
            OK(pt_tree_unmap(&tree, &cpu, va, bytes, seen, &pages));
        } else if (what == 6) {
            OK(pt_tree_protect(&tree, &cpu, va, bytes, bits & 4 ? attr : PT_ATTR_USER));
        } else if (what == 7) {
            int32_t result = pt_tree_query(&tree, &cpu, va, &found);
            if (result == PT_OK)
                seen(&pages, &found);
            else
                RETURNS(result, PT_ERROR_NOT_MAPPED);
        } else if (what == 8) {
            int32_t result = pt_tree_map_range(&tree, &cpu, va, bytes, DEVICE + va % (1 << 21), attr);
            refused += result == PT_ERROR_MAPPED;
        } else {
            OK(pt_tree_walk(&tree, &cpu, va, bytes, seen, &pages));
        }
        sum += pages;
    }
    printf("tree %u: sum %016llx, %u refused, tables", number, (unsigned long long)sum, refused);
    for (uint32_t level = 0; level < PT_LEVELS; level++)
        printf(" %lld", (long long)pt_tree_tables(&tree, &cpu, level));
    printf("\n");
    dump(PT_LEVELS - 1, pt_tree_root(&tree, &cpu));
    OK(pt_tree_exit(&tree, &cpu));
}

int main(void) {
    ram = reserve(LOW_BYTES);
    struct pt_config config = configured();
    begin(config);
    for (unsigned number = 0; number < 4; number++)
        one(number);
    finish();
    return 0;
}
