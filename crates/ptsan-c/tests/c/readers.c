/* Devices, guests, readers without a lock, locks, errata. */
#include "check.h"

enum { PAGE = 4096, ROOT = 0x1000, TABLE = 0x2000, FRAME = 0x9000 };

static _Alignas(4096) uint32_t ram[1 << 14];
static ptsan *san;

static void put(uint64_t at, uint32_t raw) {
    ram[at / 4] = raw;
    ptsan_entry_written(san, at);
}

/* One page below a root, of x86 with two levels. */
static void begin(ptsan_options options) {
    memset(ram, 0, sizeof ram);
    options.arch = PTSAN_ARCH_X86;
    options.flags |= PTSAN_FLAG_NO_BACKTRACES;
    san = ptsan_new(&options, ram, sizeof ram, 0);
    CHECK(san != NULL);
    CHECK(ptsan_table_allocated(san, ROOT, PAGE, 1, PTSAN_CONTENT_ZERO) == PTSAN_OK);
    CHECK(ptsan_table_allocated(san, TABLE, PAGE, 0, PTSAN_CONTENT_ZERO) == PTSAN_OK);
    put(TABLE, FRAME | 7);
    put(ROOT, TABLE | 7);
}

static void ends_with(const char *kind, uint64_t count) {
    CHECK(ptsan_count(san, kind) == count);
    CHECK(ptsan_total(san) == count);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

static void devices(void) {
    uint64_t phys = 0;
    for (int waits = 0; waits < 2; waits++) {
        begin((ptsan_options){.devices = 1, .devices_only = true});
        int32_t device = ptsan_device(san, 0);
        CHECK(device == 0);
        CHECK(ptsan_device(san, 1) < 0);
        CHECK(ptsan_switch(san, device, ROOT, 3) == PTSAN_OK);
        CHECK(ptsan_access(san, device, 0x123, PTSAN_READ, true, &phys) == PTSAN_OK && phys == 0x9123);
        put(TABLE, 0);
        CHECK(ptsan_queue_range(san, device, 3, 0, PAGE, PAGE, false) == PTSAN_OK);
        CHECK(ptsan_queue_space(san, device, 4) == PTSAN_OK);
        if (waits)
            CHECK(ptsan_queue_completed(san, device) == PTSAN_OK);
        CHECK(ptsan_frame_freed(san, FRAME, PAGE) == PTSAN_OK);
        CHECK(ptsan_count(san, "data-freed-before-flush") == (waits ? 0 : 1));
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
    begin((ptsan_options){.devices = 1});
    int32_t device = ptsan_device(san, 0);
    CHECK(device == 1);
    CHECK(ptsan_device_entry(san, device, 0x3000, 16, 0, 1) == PTSAN_OK);
    ram[0x3000 / 4] = 1;
    CHECK(ptsan_device_entry_written(san, 0x3000) == PTSAN_OK);
    ram[0x3008 / 4] = 7;
    CHECK(ptsan_device_entry_written(san, 0x3008) == PTSAN_OK);
    CHECK(ptsan_device_entries_flushed(san, device, PTSAN_ALL_ENTRIES) == PTSAN_OK);
    CHECK(ptsan_queue_all(san, device) == PTSAN_OK);
    ends_with("torn-entry", 1);
}

static void readers(void) {
    begin((ptsan_options){0});
    uint64_t reader = ptsan_reader_begins(san, ROOT);
    CHECK(reader != 0);
    CHECK(ptsan_reader_reads(san, reader, TABLE) == PTSAN_OK);
    put(ROOT, 0);
    CHECK(ptsan_table_freed(san, TABLE, PAGE) == PTSAN_OK);
    CHECK(ptsan_reader_ends(san, reader) == PTSAN_OK);
    ends_with("free-under-reader", 1);
    begin((ptsan_options){0});
    ptsan_reader_ends(san, 77);
    ends_with("misuse", 1);
}

static void locks(void) {
    begin((ptsan_options){.flags = PTSAN_FLAG_LOCKS});
    CHECK(ptsan_lock_guards(san, ROOT, 5, true) == PTSAN_OK);
    CHECK(ptsan_switch(san, 0, ROOT, 1) == PTSAN_OK);
    CHECK(ptsan_lock_taken(san, 0, 5, false) == PTSAN_OK);
    put(TABLE + 4, 0xa007);
    CHECK(ptsan_lock_released(san, 0, 5) == PTSAN_OK);
    CHECK(ptsan_total(san) == 0);
    put(TABLE + 8, 0xb007);
    ends_with("unlocked-write", 1);
}

static void guests(void) {
    begin((ptsan_options){.flags = PTSAN_FLAG_ASIDS | PTSAN_FLAG_COMMON_NUMBERS});
    CHECK(ptsan_number_given(san, ROOT, 7) == PTSAN_OK);
    ptsan_switch(san, 0, ROOT, 8);
    CHECK(ptsan_numbers_taken_back(san) == PTSAN_OK);
    ends_with("wrong-number", 1);
    begin((ptsan_options){.flags = PTSAN_FLAG_ASIDS | PTSAN_FLAG_TWO_STAGES});
    uint64_t phys = 0;
    CHECK(ptsan_switch(san, 0, ROOT, 7) == PTSAN_OK);
    CHECK(ptsan_access_combined(san, 0, 1, 0x5123, 0x123, PTSAN_READ, &phys) == PTSAN_OK && phys == 0x9123);
    ram[TABLE / 4] = 0;
    CHECK(ptsan_access_combined(san, 0, 1, 0x5123, 0x123, PTSAN_READ, NULL) == PTSAN_OK);
    CHECK(ptsan_count(san, "stale-use") == 1);
    CHECK(ptsan_stage1_page_flushed(san, 0, 1, 0x5000) == PTSAN_OK);
    CHECK(ptsan_access_combined(san, 0, 1, 0x5123, 0x123, 9, NULL) < 0);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

static void errata(void) {
    begin((ptsan_options){.flags = PTSAN_FLAG_ASIDS | PTSAN_FLAG_INVLPG_SPARES_GLOBALS});
    CHECK(ptsan_switch(san, 0, ROOT, 1) == PTSAN_OK);
    put(TABLE + 4, 0xa107);
    put(TABLE + 4, 0);
    CHECK(ptsan_flush_page(san, 0, 1, 0x1000, false) == PTSAN_OK);
    CHECK(ptsan_frame_freed(san, 0xa000, PAGE) == PTSAN_OK);
    ends_with("data-freed-before-flush", 1);
}

int main(void) {
    devices();
    readers();
    locks();
    guests();
    errata();
    return 0;
}
