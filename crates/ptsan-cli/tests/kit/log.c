/* Writes the records that a script on standard input lists, one a line, as a log to standard
 * output: the name of the function, then its arguments. */
#include "ptsan_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char line[4096];
static char *at;

static uint64_t number(void) {
    char *end;
    uint64_t value = strtoull(at, &end, 0);
    if (end == at) {
        fprintf(stderr, "a number is missing: %s", line);
        exit(2);
    }
    at = end;
    return value;
}

static int32_t cpu(void) { return (int32_t)(int64_t)number(); }

/* The bytes at the end of a line, in hexadecimal. */
static size_t bytes(uint8_t *to) {
    size_t length = 0;
    unsigned byte;
    int used;
    while (sscanf(at, " %2x%n", &byte, &used) == 1) {
        to[length++] = (uint8_t)byte;
        at += used;
    }
    return length;
}

static bool put(void *to, const void *what, size_t length) {
    return fwrite(what, 1, length, (FILE *)to) == length;
}

static bool record(ptsan_log *log, const char *name) {
    static uint8_t content[2048];
    uint64_t a, b, c, d, e;
#define IS(text) (strcmp(name, text) == 0)
    if (IS("at")) {
        return ptsan_log_at(log, number()), true;
    }
    if (IS("of")) {
        return ptsan_log_of(log, (unsigned)number()), true;
    }
    if (IS("table-allocated")) {
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_table_allocated(log, a, b, (int)(int64_t)c, (ptsan_log_content)d);
    }
    if (IS("table-freed")) {
        return a = number(), b = number(), ptsan_log_table_freed(log, a, b);
    }
    if (IS("store")) {
        return a = number(), b = number(), c = number(), ptsan_log_store(log, a, (unsigned)b, c);
    }
    if (IS("exchange")) {
        return a = number(), b = number(), c = number(), ptsan_log_exchange(log, a, (unsigned)b, c);
    }
    if (IS("fill")) {
        return a = number(), b = number(), c = number(), ptsan_log_fill(log, a, b, c);
    }
    if (IS("memory")) {
        return a = number(), ptsan_log_memory(log, a, content, bytes(content));
    }
    if (IS("root-loaded")) {
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_root_loaded(log, (unsigned)a, b, c, d != 0);
    }
    if (IS("lazy")) {
        return ptsan_log_lazy(log, (unsigned)number());
    }
    if (IS("resume")) {
        return ptsan_log_resume(log, (unsigned)number());
    }
    if (IS("leave")) {
        return ptsan_log_leave(log, (unsigned)number());
    }
    if (IS("page")) {
        int32_t on = cpu();
        return a = number(), b = number(), c = number(), ptsan_log_flush_page(log, on, a, b, c != 0);
    }
    if (IS("range")) {
        int32_t on = cpu();
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_flush_range(log, on, a, b, c, d, number() != 0);
    }
    if (IS("every-space")) {
        int32_t on = cpu();
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_flush_every_space(log, on, a, b, c, d != 0);
    }
    if (IS("level")) {
        int32_t on = cpu();
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_flush_level(log, on, a, b, c, d, (unsigned)number());
    }
    if (IS("every-space-level")) {
        int32_t on = cpu();
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_flush_every_space_level(log, on, a, b, c, (unsigned)d);
    }
    if (IS("space")) {
        int32_t on = cpu();
        return ptsan_log_flush_space(log, on, number());
    }
    if (IS("all")) {
        return ptsan_log_flush_all(log, cpu());
    }
    if (IS("space-created")) {
        return ptsan_log_space_created(log, number());
    }
    if (IS("space-destroyed")) {
        return ptsan_log_space_destroyed(log, number());
    }
    if (IS("data-freed")) {
        return a = number(), b = number(), ptsan_log_data_freed(log, a, b);
    }
    if (IS("data-reused")) {
        return a = number(), b = number(), ptsan_log_data_reused(log, a, b);
    }
    if (IS("data-mapped")) {
        return a = number(), b = number(), ptsan_log_data_mapped(log, a, b);
    }
    if (IS("operation-begins")) {
        return ptsan_log_operation_begins(log, number());
    }
    if (IS("operation-ends")) {
        return ptsan_log_operation_ends(log, number());
    }
    if (IS("access")) {
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_access(log, (unsigned)a, b, (ptsan_log_access_kind)c, d != 0);
    }
    if (IS("mark")) {
        content[bytes(content)] = 0;
        return ptsan_log_mark(log, (const char *)content);
    }
    if (IS("barrier")) {
        return a = number(), b = number(), ptsan_log_barrier(log, (unsigned)a, (ptsan_log_barrier_kind)b);
    }
    if (IS("flushes-done")) {
        return ptsan_log_flushes_done(log);
    }
    if (IS("running")) {
        return ptsan_log_running(log, (unsigned)number());
    }
    if (IS("stage1-flushed")) {
        return ptsan_log_stage1_flushed(log, (unsigned)number());
    }
    if (IS("queue-page")) {
        a = number(), b = number(), c = number();
        return ptsan_log_queue_page(log, (unsigned)a, b, c, number() != 0);
    }
    if (IS("queue-range")) {
        a = number(), b = number(), c = number(), d = number(), e = number();
        return ptsan_log_queue_range(log, (unsigned)a, b, c, d, e, number() != 0);
    }
    if (IS("queue-every-space")) {
        a = number(), b = number(), c = number(), d = number();
        return ptsan_log_queue_every_space(log, (unsigned)a, b, c, d, number() != 0);
    }
    if (IS("queue-level")) {
        a = number(), b = number(), c = number(), d = number(), e = number();
        return ptsan_log_queue_level(log, (unsigned)a, b, c, d, e, (unsigned)number());
    }
    if (IS("queue-space")) {
        return a = number(), b = number(), ptsan_log_queue_space(log, (unsigned)a, b);
    }
    if (IS("queue-all")) {
        return ptsan_log_queue_all(log, (unsigned)number());
    }
    if (IS("queue-completed")) {
        return ptsan_log_queue_completed(log, (unsigned)number());
    }
    if (IS("device-entry")) {
        a = number(), b = number(), c = number(), d = number(), e = number();
        return ptsan_log_device_entry(log, (unsigned)a, b, (unsigned)c, (unsigned)d, e);
    }
    if (IS("device-entry-written")) {
        return a = number(), ptsan_log_device_entry_written(log, a, content, (unsigned)bytes(content));
    }
    if (IS("device-entries-flushed")) {
        return a = number(), b = number(), ptsan_log_device_entries_flushed(log, (unsigned)a, b);
    }
    if (IS("reader-begins")) {
        return a = number(), b = number(), ptsan_log_reader_begins(log, a, b);
    }
    if (IS("reader-reads")) {
        return a = number(), b = number(), ptsan_log_reader_reads(log, a, b);
    }
    if (IS("reader-ends")) {
        return ptsan_log_reader_ends(log, number());
    }
    if (IS("lock-guards")) {
        return a = number(), b = number(), c = number(), ptsan_log_lock_guards(log, a, b, c != 0);
    }
    if (IS("lock-taken")) {
        return a = number(), b = number(), c = number(), ptsan_log_lock_taken(log, (unsigned)a, b, c != 0);
    }
    if (IS("lock-released")) {
        return a = number(), b = number(), ptsan_log_lock_released(log, (unsigned)a, b);
    }
    if (IS("number-given")) {
        return a = number(), b = number(), ptsan_log_number_given(log, a, b);
    }
    if (IS("numbers-taken-back")) {
        return ptsan_log_numbers_taken_back(log);
    }
    if (IS("stage1-part-flushed")) {
        a = number(), b = number(), c = number();
        return ptsan_log_stage1_part_flushed(log, (unsigned)a, b, c);
    }
    if (IS("access-combined")) {
        a = number(), b = number(), c = number(), d = number(), e = number();
        return ptsan_log_access_combined(log, (unsigned)a, b, c, d, (ptsan_log_access_kind)e);
    }
    if (IS("end")) {
        return ptsan_log_end(log, number() != 0);
    }
    fprintf(stderr, "no record has the name %s\n", name);
    exit(2);
}

/* A port that fails after some records, for the test that later calls do not write. */
static unsigned calls, most;

static bool fail_later(void *to, const void *what, size_t length) {
    (void)to, (void)what, (void)length;
    return ++calls < most;
}

static int lost(void) {
    ptsan_log log;
    ptsan_log_machine machine = {PTSAN_LOG_X86_64, 0, 1, 0, 0, 0, 0, 0};
    static const uint8_t page[1000];
    most = 3;
    bool began = ptsan_log_begin(&log, fail_later, NULL, &machine);
    bool first = ptsan_log_lazy(&log, 0), memory = ptsan_log_memory(&log, 0, page, sizeof page);
    bool later = ptsan_log_lazy(&log, 0);
    return began && first && !memory && !later && calls == 3 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "lost") == 0) {
        return lost();
    }
    ptsan_log log;
    ptsan_log_machine machine;
    if (!fgets(line, sizeof line, stdin)) {
        return 2;
    }
    at = line;
    machine.arch = (uint8_t)number(), machine.flags = (uint8_t)number(), machine.cpus = (uint16_t)number();
    machine.table_bytes = (uint32_t)number(), machine.va_bits = (uint8_t)number();
    machine.start_level = (uint8_t)number(), machine.devices = (uint16_t)number();
    machine.exception_level = (uint8_t)number();
    if (!ptsan_log_begin(&log, put, stdout, &machine)) {
        return 3;
    }
    while (fgets(line, sizeof line, stdin)) {
        static char name[32];
        int used;
        if (sscanf(line, "%31s%n", name, &used) != 1) {
            return 2;
        }
        at = line + used;
        if (!record(&log, name)) {
            return 3;
        }
    }
    return 0;
}
