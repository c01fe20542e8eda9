/* The window for high memory of i386, by its table: nothing looks through it here. */
#include "host.h"

static uint64_t *table;
static uintptr_t base;

/* The slot that shows a frame at `address`. */
static unsigned slot(void *address) {
    uintptr_t offset = (uintptr_t)address - base;
    CHECK(offset % PAGE == 0 && offset / PAGE < KMAP_SLOTS);
    return (unsigned)(offset / PAGE);
}

int main(void) {
    ram = reserve(LOW_BYTES);
    table = (uint64_t *)(ram + KMAP_TABLE);
    struct pt_config config = configured();
    /* Memory of its own stands at the window's addresses. */
    config.kmap_tables = table, config.kmap_base = reserve(KMAP_SLOTS * PAGE), config.kmap_slots = KMAP_SLOTS;
    base = (uintptr_t)config.kmap_base;
    if (PT_LEVELS == 4) {
        /* There is no high memory, and no window. */
        config.boot_bytes = pt_machine_bytes(&config), config.boot_memory = reserve(config.boot_bytes);
        RETURNS(pt_machine_init(&machine, &config), PT_ERROR_ARGUMENT);
        begin(configured());
        uint64_t frame = pt_page_alloc(&cpu);
        CHECK(pt_kmap(&cpu, frame) == ram + frame);
        OK(pt_kunmap(&cpu, ram + frame));
        OK(pt_page_free(&cpu, frame));
        finish();
        puts("mapped");
        return 0;
    }
    /* The last 16 MiB are high memory: of the run that crosses the border, too. */
    config.direct_map_end = LOW_BYTES - (16 << 20);
    config.boot_bytes = pt_machine_bytes(&config), config.boot_memory = reserve(config.boot_bytes);
    struct pt_config bad = config;
    bad.kmap_base = (char *)bad.kmap_base + 1;
    RETURNS(pt_machine_init(&machine, &bad), PT_ERROR_RANGE);
    bad = config, bad.kmap_tables = NULL;
    RETURNS(pt_machine_init(&machine, &bad), PT_ERROR_POINTER);
    bad.kmap_slots = 0;
    RETURNS(pt_machine_init(&machine, &bad), PT_ERROR_RUNS);
    bad = config, bad.kmap_tables = (void *)(ram + run.start);
    RETURNS(pt_machine_init(&machine, &bad), PT_ERROR_RUNS);
    begin(config);
    static uint64_t frames[KMAP_SLOTS + 1];
    void *at[KMAP_SLOTS + 1];
    for (unsigned i = 0; i <= KMAP_SLOTS; i++) {
        frames[i] = pt_page_alloc(&cpu);
        CHECK(frames[i] >= config.direct_map_end); /* data comes from high memory first */
    }
    /* One address for one frame, shown by the entry of its slot. */
    at[0] = pt_kmap(&cpu, frames[0]);
    CHECK(at[0] && table[slot(at[0])] == (frames[0] | 0x63 | UINT64_C(1) << 63));
    CHECK(pt_kmap(&cpu, frames[0]) == at[0]);
    RETURNS(pt_kunmap(&cpu, (char *)at[0] + 8), PT_ERROR_RANGE);
    OK(pt_kunmap(&cpu, at[0]));
    OK(pt_kunmap(&cpu, at[0]));
    RETURNS(pt_kunmap(&cpu, at[0]), PT_ERROR_FREED);
    RETURNS(pt_kunmap(&cpu, (char *)config.kmap_base + KMAP_SLOTS * PAGE), PT_ERROR_FOREIGN);
    /* All slots, and one too many. */
    for (unsigned i = 0; i < KMAP_SLOTS; i++) {
        at[i] = pt_kmap(&cpu, frames[i]);
        CHECK(at[i] && (table[slot(at[i])] & ~(UINT64_C(1) << 63)) == (frames[i] | 0x63));
        for (unsigned j = 0; j < i; j++)
            CHECK(at[i] != at[j]);
    }
    CHECK(pt_kmap(&cpu, frames[KMAP_SLOTS]) == NULL);
    RETURNS(pt_cpu_error(&cpu), PT_ERROR_NO_SLOT);
    CHECK(pt_page_alloc(&cpu) == 0); /* it could not be cleared, and has not been lost */
    RETURNS(pt_cpu_error(&cpu), PT_ERROR_NO_SLOT);
    /* A slot that shows another frame has been forgotten in between. */
    OK(pt_kunmap(&cpu, at[5]));
    unsigned forgotten = hooks.pages + hooks.globals;
    CHECK(pt_kmap(&cpu, frames[KMAP_SLOTS]) == at[5]);
    CHECK(hooks.pages + hooks.globals == forgotten + 1);
    at[KMAP_SLOTS] = at[5];
    for (unsigned i = 0; i <= KMAP_SLOTS; i++) {
        if (i != 5)
            OK(pt_kunmap(&cpu, at[i]));
        OK(pt_page_free(&cpu, frames[i]));
    }
    /* The direct map does not reach the frames that rest: none is cleared ahead. */
    RETURNS(pt_cpu_idle(&cpu, 64), 0);
    finish();
    puts("mapped");
    return 0;
}
