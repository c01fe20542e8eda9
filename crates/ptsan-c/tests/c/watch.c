/* Stores are seen without a hook: a table that is linked before it is cleared. */
#include "check.h"

static ptsan *san;
static volatile uint64_t *memory;

static void clear(void *table) {
    for (int i = 0; i < 512; i++)
        ((volatile uint64_t *)table)[i] = 0;
}

static void map(void *bad) {
    ptsan_table_allocated(san, 0x102000, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
    if (bad == NULL)
        clear((void *)(memory + 0x2000 / 8));
    memory[0x1000 / 8] = 0x102007;
    if (bad != NULL)
        ptsan_watch_unseen(san, clear, (void *)(memory + 0x2000 / 8));
    CHECK(ptsan_refused(san) == 0);
}

static uint64_t run(bool bad) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
    san = ptsan_watch_new(&options, 16 * 4096, 0x100000);
    CHECK(san != NULL);
    memory = ptsan_watch_base(san);
    memory[0x2000 / 8 + 7] = 0x55; /* of the frame's last owner */
    ptsan_table_allocated(san, 0x101000, 4096, 3, PTSAN_CONTENT_ZERO);
    ptsan_switch(san, 0, 0x101000, 1);
    CHECK(ptsan_watch_stores(san) == 0);
    CHECK(ptsan_watch_run(san, map, bad ? &bad : NULL) == PTSAN_OK);
    CHECK(ptsan_watch_stores(san) == (bad ? 1 : 513) && memory[0x2000 / 8 + 7] == 0);
    COUNT("linked-before-cleared", bad ? 1u : 0u);
    return ptsan_total(san);
}

int main(void) {
    CHECK(run(false) == 0);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    CHECK(run(true) == 1);
    ptsan_leave(san, 0);
    ptsan_table_freed(san, 0x101000, 4096);
    ptsan_table_freed(san, 0x102000, 4096);
    return ptsan_end(san);
}
