/* Each kind of store is told once, at the latest when the thread calls the library. */
#include "check.h"
#include "ptsan_stores.h"

int stores(volatile uint64_t *at, int kind); /* of stores_code.c */

static uint64_t ram[8 * 512];

static ptsan *made(uint32_t flags) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .flags = flags};
    ptsan *san = ptsan_new(&options, ram, sizeof ram, 0x10000);
    CHECK(san);
    return san;
}

static void each_kind_is_told_once(void) {
    ptsan *san = made(0);
    CHECK(ptsan_stores_begin(san, ram, sizeof ram, 0x10000, 8) == PTSAN_OK);
    int kinds = 0, told = 0;
    for (int here = 0; (here = stores(ram + 512, kinds)) != -2; kinds++) {
        CHECK(here >= 0);
        told += here;
        CHECK(ptsan_total(san) == 0);
        if (ptsan_stores_told() != (uint64_t)told) {
            printf("kind %d: %d were told in all, not %d\n", kinds, (int)ptsan_stores_told(), told);
            exit(1);
        }
    }
    CHECK(kinds == 15);
    /* Stores elsewhere are no table's. */
    uint64_t other = 0;
    CHECK(stores(&other, 0) == 1 && ptsan_total(san) == 0 && ptsan_stores_told() == (uint64_t)told);
    ptsan_stores_end();
    CHECK(stores(ram, 0) == 1 && ptsan_total(san) == 0 && ptsan_stores_told() == (uint64_t)told);
    ptsan_destroy(san);
}

/* A store, and a flush right after it without a load or store in between. */
static void a_flush_does_not_overtake_the_store_before_it(void) {
    memset(ram, 0, sizeof ram);
    ptsan *san = made(0);
    CHECK(ptsan_stores_begin(san, ram, sizeof ram, 0x10000, 8) == PTSAN_OK);
    for (int level = 0; level <= 3; level++) {
        uint64_t table = 0x14000 - (uint64_t)level * 0x1000;
        ptsan_table_allocated(san, table, 4096, level, PTSAN_CONTENT_ZERO);
        ram[(table - 0x10000) / 8] = (table + 0x1000) | 7;
        ptsan_entry_written(san, table);
    }
    ptsan_switch(san, 0, 0x11000, 1);
    CHECK(ptsan_access(san, 0, 0, PTSAN_READ, true, NULL) == PTSAN_OK);
    CHECK(stores(ram + 4 * 512, 1) == 1); /* the last entry maps another frame */
    ptsan_flush_page(san, 0, 1, 0, false);
    ptsan_flushes_done(san);
    CHECK(ptsan_total(san) == 0);
    CHECK(stores(ram + 4 * 512, 11) == 1); /* and now it is empty */
    ptsan_flushes_done(san);
    COUNT("flush-missing", 1);
    ptsan_stores_end();
    ptsan_destroy(san);
}

static void arguments_that_make_no_sense_are_refused(void) {
    ptsan *san = made(0);
    CHECK(ptsan_stores_begin(san, NULL, 8, 0, 8) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_stores_begin(san, ram, SIZE_MAX, 0, 8) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_stores_begin(san, ram, sizeof ram, 0, 3) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_stores_begin(NULL, ram, sizeof ram, 0, 8) == PTSAN_ERROR_NO_SANITIZER);
    ptsan_stores_end();
    ptsan_destroy(san);
}

int main(void) {
    each_kind_is_told_once();
    a_flush_does_not_overtake_the_store_before_it();
    arguments_that_make_no_sense_are_refused();
    return 0;
}
