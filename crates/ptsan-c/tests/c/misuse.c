/* Calls that make no sense: each is a finding or an error, and no call crashes. */
#include "check.h"

static _Alignas(4096) uint64_t ram[16 * 512];
static ptsan *san;

static bool last_error_says(const char *part) { return strstr(ptsan_last_error(), part) != NULL; }

static void creation(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
    CHECK(ptsan_new(NULL, ram, sizeof ram, 0) == NULL && last_error_says("ptsan_new: the options are NULL"));
    CHECK(ptsan_new(&options, NULL, sizeof ram, 0) == NULL && last_error_says("memory is NULL"));
    CHECK(ptsan_new(&options, ram, 0, 0) == NULL && last_error_says("0 bytes"));
    CHECK(ptsan_new(&options, (char *)ram + 1, 4096, 0) == NULL && last_error_says("align"));
    CHECK(ptsan_new(&options, ram, sizeof ram, UINT64_MAX - 7) == NULL && last_error_says("fits"));
    CHECK(ptsan_new_reading(&options, NULL, NULL) == NULL && last_error_says("NULL"));
    CHECK(ptsan_watch_new(&options, 0, 0) == NULL && ptsan_watch_new_identity(&options, 0, 0) == NULL);
    CHECK(ptsan_watch_new_identity(&options, 4096, 8) == NULL);
    CHECK(ptsan_watch_new_identity(NULL, 4096, 0) == NULL && last_error_says("the options are NULL"));
    options.arch = 77;
    CHECK(ptsan_new(&options, ram, sizeof ram, 0) == NULL && last_error_says("no format has number 77"));
    options.arch = PTSAN_ARCH_X86_64;
    options.suppressions = "leak\nlaek";
    CHECK(ptsan_new(&options, ram, sizeof ram, 0) == NULL && last_error_says("line 2: no such kind"));
    options.suppressions = NULL;
    options.flags = 1u << 31;
    CHECK(ptsan_new(&options, ram, sizeof ram, 0) == NULL && last_error_says("ptsan_flag"));
}

/* Every function refuses a sanitizer that is not there. */
static void nobody(ptsan *none) {
    ptsan_finding finding;
    uint64_t phys = 5;
    CHECK(ptsan_table_allocated(none, 0, 4096, 0, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_table_freed(none, 0, 4096) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_entry_written(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_entry_exchanged(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_frame_mapped(none, 0, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_frame_freed(none, 0, 4096) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_frame_reused(none, 0, 4096) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_flushes_done(none) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_barrier(none, 0, PTSAN_BARRIER_KIND_DATA) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_table_linked(none, 0, 0, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_run_on(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_this_cpu(none) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_switch(none, 0, 0, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_lazy(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_resume(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_leave(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_space_created(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_space_destroyed(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_flush_page(none, 0, 0, 0, false) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_flush_range(none, 0, 0, 0, 1, 1, false) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_flush_every_space(none, 0, 0, 1, 1, false) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_flush_space(none, 0, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_flush_all(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_operation_begins(none) == 0);
    CHECK(ptsan_operation_ends(none, 1) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_access(none, 0, 0, 0, true, &phys) == PTSAN_ERROR_NO_SANITIZER && phys == 5);
    CHECK(ptsan_probe_walk(none, 0, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_adversary_step(none) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_expect(none, 0, 0, NULL) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_expect_below(none, 0, 0, NULL) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_hash_table(none, 0, 65536, PTSAN_HASH_LAYOUT_BITS32) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_segments(none, 0, 0, NULL) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_hash_written(none, 0) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_check_hash_table(none) == PTSAN_NONE);
    CHECK(ptsan_watch_base(none) == NULL);
    CHECK(ptsan_watch_run(none, NULL, NULL) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_watch_run_on(none, 0, NULL, NULL) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_watch_unseen(none, NULL, NULL) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(ptsan_watch_stores(none) == PTSAN_NONE);
    CHECK(ptsan_total(none) == PTSAN_NONE && ptsan_count(none, "leak") == PTSAN_NONE);
    CHECK(ptsan_allowed(none) == PTSAN_NONE && ptsan_refused(none) == PTSAN_NONE);
    CHECK(ptsan_live_tables(none) == PTSAN_NONE && ptsan_debts_dropped(none) == PTSAN_NONE);
    CHECK(!ptsan_finding_at(none, 0, &finding));
    CHECK(ptsan_finding_text(none, 0) == NULL && ptsan_report(none) == NULL);
    CHECK(ptsan_finish(none) == PTSAN_ERROR_NO_SANITIZER);
    CHECK(last_error_says("ptsan_finish: "));
    CHECK(ptsan_end(none) == 1);
}

/* Calls that the sanitizer itself reports as misuse. */
static void findings(void) {
    ptsan_table_allocated(san, 4096, 8192, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    ptsan_table_allocated(san, 8192, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    COUNT("double-allocate", 1); /* they overlap */
    ptsan_table_freed(san, 12288, 4096);
    COUNT("foreign-free", 1); /* never announced */
    ptsan_table_freed(san, 8192, 4096);
    ptsan_table_freed(san, 8192, 4096);
    COUNT("double-free", 1);
    ptsan_table_allocated(san, 1u << 30, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    COUNT("outside-memory", 1);
    ptsan_table_freed(san, 1u << 30, 4096);

    uint64_t before = ptsan_count(san, "misuse");
    ptsan_switch(san, 2, 4096, 1); /* CPU beyond the number */
    ptsan_access(san, INT32_MAX, 0, PTSAN_READ, true, NULL);
    ptsan_table_allocated(san, 4096, 0, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    ptsan_table_allocated(san, UINT64_MAX, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    ptsan_table_allocated(san, 4096, 4096, 4, PTSAN_CONTENT_ZERO); /* no such level */
    ptsan_table_linked(san, UINT64_MAX, UINT64_MAX, 0);
    ptsan_flush_range(san, 0, 1, 9, 8, 1, false); /* wraps */
    ptsan_flush_range(san, 0, 1, 8, 9, 0, false); /* goes nowhere */
    ptsan_flush_space(san, PTSAN_EVERY_CPU, 17);  /* never loaded, which is legal */
    ptsan_lazy(san, 0);                           /* no root loaded */
    ptsan_space_destroyed(san, 18);
    ptsan_hash_table(san, 0, 65536, PTSAN_HASH_LAYOUT_BITS32); /* of another format */
    ptsan_frame_freed(san, 4096, 0); /* no frame */
    ptsan_frame_reused(san, UINT64_MAX, 4096);
    ptsan_barrier(san, 7, PTSAN_BARRIER_KIND_FENCE);
    ptsan_frame_mapped(san, UINT64_MAX, UINT64_MAX); /* no CPU runs there: no effect */
    ptsan_entry_exchanged(san, UINT64_MAX);
    CHECK(ptsan_flushes_done(san) == PTSAN_OK && ptsan_debts_dropped(san) == 0);
    CHECK(ptsan_count(san, "misuse") >= before + 13);
    CHECK(ptsan_access(san, 0, 0, PTSAN_READ, true, NULL) == PTSAN_FAULT_NO_ROOT);
    CHECK(ptsan_refused(san) == 0);
}

static void nothing(void *unused) { (void)unused; }

/* Calls that the library refuses. */
static void refusals(void) {
    ptsan_expected expected = {.perms = 64};
    uint64_t total = ptsan_total(san);
    CHECK(ptsan_table_allocated(san, 4096, 4096, 0, 3) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(last_error_says("ptsan_table_allocated: content 3; see enum ptsan_content"));
    CHECK(ptsan_table_allocated(san, 4096, 4096, -2, 0) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_table_allocated(san, 4096, 4096, 256, 0) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_access(san, 0, 0, 3, true, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_access(san, PTSAN_EVERY_CPU, 0, 0, true, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_flush_all(san, -3) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_expect(san, 0, 0, &expected) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_operation_ends(san, 1) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_count(san, "laek") == PTSAN_NONE && last_error_says("`laek`"));
    CHECK(ptsan_count(san, NULL) == PTSAN_NONE && ptsan_count(san, "\xff") == PTSAN_NONE);
    CHECK(ptsan_mark_harness(san, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_mark_harness(san, " ") == PTSAN_ERROR_BAD_ARGUMENT && last_error_says("the pattern is empty"));
    CHECK(ptsan_mark_harness(san, "\xff") == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(!ptsan_finding_at(san, 0, NULL));
    CHECK(ptsan_watch_base(san) == NULL && last_error_says("ptsan_watch_new"));
    CHECK(ptsan_watch_run(san, NULL, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_watch_run_on(san, 0, NULL, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_watch_run_on(san, 0, nothing, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_barrier(san, 0, 0) == PTSAN_ERROR_BAD_ARGUMENT && last_error_says("ptsan_barrier_kind"));
    CHECK(ptsan_barrier(san, PTSAN_EVERY_CPU, PTSAN_BARRIER_KIND_DATA) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_watch_unseen(san, NULL, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_watch_stores(san) == PTSAN_NONE);
    CHECK(ptsan_hash_table(san, 0, 65536, 3) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_segments(san, 0, 0, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_refused(san) == 25 && ptsan_total(san) == total);
    CHECK(ptsan_finding_text(san, 1000) == NULL && ptsan_kind_name(1000) == NULL);
    CHECK(ptsan_refused(san) == 25); /* the end of a list is no mistake */
    char *report = ptsan_report(san);
    CHECK(strstr(report, "ptsan refused 25 calls, the first:\n  ptsan_table_allocated: content 3") != NULL);
    ptsan_free_text(report);
    ptsan_free_text(NULL);
}

/* A function that reads memory, and must not call the library. */
static bool reads(void *user, uint64_t phys, uint8_t bytes, uint64_t *value) {
    (void)bytes;
    if (phys + 8 > sizeof ram)
        return false;
    if (*(bool *)user && ptsan_flush_all(san, 0) != PTSAN_ERROR_REENTERED)
        abort();
    *value = ram[phys / 8];
    return true;
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .cpus = 2};
    creation();
    nobody(NULL);
    nobody((ptsan *)(uintptr_t)0x1234);

    san = ptsan_new(&options, ram, sizeof ram, 0);
    CHECK(san != NULL);
    findings();
    refusals();
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    CHECK(ptsan_destroy(san) == PTSAN_ERROR_NO_SANITIZER);
    nobody(san);
    CHECK(ptsan_destroy(NULL) == PTSAN_OK);

    bool calls = false;
    san = ptsan_new_reading(&options, reads, &calls);
    CHECK(ptsan_table_allocated(san, 4096, 4096, 3, PTSAN_CONTENT_ZERO) == PTSAN_OK);
    CHECK(ptsan_switch(san, 0, 4096, 1) == PTSAN_OK && ptsan_total(san) == 0);
    calls = true;
    CHECK(ptsan_access(san, 0, 0, PTSAN_READ, true, NULL) == PTSAN_FAULT_NOT_PRESENT);
    CHECK(ptsan_refused(san) > 0 && last_error_says("must not call the library"));
    calls = false;
    CHECK(ptsan_access(san, 0, 0, PTSAN_READ, true, NULL) == PTSAN_FAULT_NOT_PRESENT);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    puts("all refused");
    return 0;
}
