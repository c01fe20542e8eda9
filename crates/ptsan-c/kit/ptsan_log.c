/* See ptsan_log.h. */
#include "ptsan_log.h"

#define MOST_TEXT 200
#define MOST_NUMBER 10
#define MOST_ENTRY 64
#define VERSION 2

/* Kinds of records. */
enum {
    TABLE_ALLOCATED = 0x01,
    TABLE_FREED,
    STORE,
    FILL,
    MEMORY,
    ROOT_LOADED,
    LAZY,
    RESUME,
    LEAVE,
    INVALIDATE,
    SPACE_CREATED,
    SPACE_DESTROYED,
    DATA_FREED,
    DATA_REUSED,
    OPERATION_BEGINS,
    OPERATION_ENDS,
    ACCESS,
    MARK,
    END,
    FLUSH_QUEUED,
    QUEUE_COMPLETED,
    DEVICE_ENTRY,
    DEVICE_ENTRY_WRITTEN,
    DEVICE_ENTRIES_FLUSHED,
    READER_BEGINS,
    READER_READS,
    READER_ENDS,
    LOCK_GUARDS,
    LOCK_TAKEN,
    LOCK_RELEASED,
    NUMBER_GIVEN,
    NUMBERS_TAKEN_BACK,
    STAGE1_PART_FLUSHED,
    ACCESS_COMBINED,
    BARRIER = 0x40,
    FLUSHES_DONE,
    DATA_MAPPED,
    RUNNING,
    STAGE1_FLUSHED,
    WITH_PC = 0x80
};

/* Scopes of an invalidation. */
enum { PAGE, RANGE, EVERY_SPACE, SPACE, ALL, LEAF_ONLY = 0x80 };

/* A record that is being put together: kind, length, payload, check. The longest payload is an
 * address of an instruction, another number, and a text or bytes. */
typedef struct record {
    uint8_t bytes[2 + 2 * MOST_NUMBER + MOST_TEXT + 2];
    unsigned length;
} record;

static uint16_t check_of(uint16_t check, const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        check = (uint16_t)(check ^ (unsigned)bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++) {
            check = (uint16_t)((unsigned)check << 1 ^ (check & 0x8000u ? 0x1021u : 0));
        }
    }
    return check;
}

static void put_byte(record *r, unsigned byte) { r->bytes[r->length++] = (uint8_t)byte; }

static void put(record *r, uint64_t number) {
    for (; number >= 0x80; number >>= 7) {
        put_byte(r, (unsigned)(number & 0x7f) | 0x80);
    }
    put_byte(r, (unsigned)number);
}

static void put_bytes(record *r, const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        put_byte(r, bytes[i]);
    }
}

static record begin(ptsan_log *log, unsigned kind) {
    record r;
    r.length = 2;
    r.bytes[0] = (uint8_t)kind;
    if (log->has_pc) {
        r.bytes[0] |= WITH_PC;
        put(&r, log->pc);
        log->has_pc = false;
    }
    return r;
}

static bool hand_over(ptsan_log *log, const void *bytes, size_t length) {
    log->lost = log->lost || !log->write(log->to, bytes, length);
    return !log->lost;
}

static bool end(ptsan_log *log, record *r) {
    r->bytes[1] = (uint8_t)(r->length - 2);
    log->check = check_of(log->check, r->bytes, r->length);
    put_byte(r, log->check & 0xff);
    put_byte(r, log->check >> 8);
    return hand_over(log, r->bytes, r->length);
}

/* A record whose fields are numbers. */
static bool numbers(ptsan_log *log, unsigned kind, unsigned count, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t all[4];
    all[0] = a, all[1] = b, all[2] = c, all[3] = d;
    record r = begin(log, kind);
    for (unsigned i = 0; i < count; i++) {
        put(&r, all[i]);
    }
    return end(log, &r);
}

static void little_endian(uint8_t *to, uint32_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

bool ptsan_log_begin(ptsan_log *log, ptsan_log_write write, void *to, const ptsan_log_machine *machine) {
    uint8_t header[27] = {0x89, 'P', 'T', 'L', '\r', '\n', 0x1a, '\n', VERSION, 0, 12, 0};
    unsigned length = 24;
    header[12] = machine->arch;
    header[13] = machine->flags;
    little_endian(header + 14, machine->cpus, 2);
    little_endian(header + 16, machine->table_bytes, 4);
    header[20] = machine->va_bits;
    header[21] = machine->start_level;
    little_endian(header + 22, machine->devices, 2);
    if (machine->exception_level > 1) {
        header[10]++;
        header[length++] = machine->exception_level;
    }
    log->write = write, log->to = to, log->pc = 0, log->has_pc = false, log->lost = false;
    log->exception_level = 0;
    log->check = check_of(0xffff, header, length);
    little_endian(header + length, log->check, 2);
    return hand_over(log, header, length + 2);
}

void ptsan_log_of(ptsan_log *log, unsigned exception_level) { log->exception_level = (uint8_t)exception_level; }

void ptsan_log_at(ptsan_log *log, uint64_t pc) { log->pc = pc, log->has_pc = true; }

bool ptsan_log_table_allocated(ptsan_log *log, uint64_t phys, uint64_t size, int level, ptsan_log_content content) {
    return numbers(log, TABLE_ALLOCATED, 4, phys, size, (uint64_t)(level + 1), (uint64_t)content);
}

bool ptsan_log_table_freed(ptsan_log *log, uint64_t phys, uint64_t size) {
    return numbers(log, TABLE_FREED, 2, phys, size, 0, 0);
}

bool ptsan_log_store(ptsan_log *log, uint64_t phys, unsigned bytes, uint64_t value) {
    return numbers(log, STORE, 3, phys, bytes, value, 0);
}

bool ptsan_log_exchange(ptsan_log *log, uint64_t phys, unsigned bytes, uint64_t value) {
    return numbers(log, STORE, 4, phys, bytes, value, 1);
}

bool ptsan_log_fill(ptsan_log *log, uint64_t phys, uint64_t bytes, uint64_t value) {
    return numbers(log, FILL, 3, phys, bytes, value, 0);
}

bool ptsan_log_memory(ptsan_log *log, uint64_t phys, const void *content, size_t bytes) {
    const uint8_t *from = (const uint8_t *)content;
    while (bytes > 0) {
        size_t part = bytes < MOST_TEXT ? bytes : MOST_TEXT;
        record r = begin(log, MEMORY);
        put(&r, phys);
        put_bytes(&r, from, part);
        if (!end(log, &r)) {
            break;
        }
        phys += part, from += part, bytes -= part;
    }
    return !log->lost;
}

bool ptsan_log_root_loaded(ptsan_log *log, unsigned cpu, uint64_t root, uint64_t space, bool flushes) {
    return numbers(log, ROOT_LOADED, 4, cpu, root, space, flushes);
}

bool ptsan_log_lazy(ptsan_log *log, unsigned cpu) { return numbers(log, LAZY, 1, cpu, 0, 0, 0); }

bool ptsan_log_resume(ptsan_log *log, unsigned cpu) { return numbers(log, RESUME, 1, cpu, 0, 0, 0); }

bool ptsan_log_leave(ptsan_log *log, unsigned cpu) { return numbers(log, LEAVE, 1, cpu, 0, 0, 0); }

/* The number of fields of a scope. */
static unsigned fields_of(unsigned scope) {
    switch (scope) {
    case PAGE:
        return 2;
    case RANGE:
        return 4;
    case EVERY_SPACE:
        return 3;
    case SPACE:
        return 1;
    default:
        return 0;
    }
}

/* An invalidation, by a reader of the tables: a CPU + 1 or 0, or a device. A level of its pages is
 * the last of the fields, plus 1. The exception level comes behind it. */
static bool extent(ptsan_log *log, unsigned kind, uint64_t reader, unsigned scope, bool leaf_only,
                   const uint64_t *fields, unsigned count) {
    record r = begin(log, kind);
    put(&r, reader);
    put_byte(&r, scope | (leaf_only ? LEAF_ONLY : 0));
    for (unsigned i = 0; i < count; i++) {
        put(&r, fields[i]);
    }
    if (log->exception_level != 0) {
        if (count == fields_of(scope)) {
            put(&r, 0);
        }
        put(&r, log->exception_level);
        log->exception_level = 0;
    }
    return end(log, &r);
}

static bool invalidate(ptsan_log *log, int cpu, unsigned scope, bool leaf_only, const uint64_t *fields,
                       unsigned count) {
    return extent(log, INVALIDATE, (uint64_t)(cpu + 1), scope, leaf_only, fields, count);
}

static bool queue(ptsan_log *log, unsigned device, unsigned scope, bool leaf_only, const uint64_t *fields,
                  unsigned count) {
    return extent(log, FLUSH_QUEUED, device, scope, leaf_only, fields, count);
}

bool ptsan_log_flush_page(ptsan_log *log, int cpu, uint64_t space, uint64_t va, bool leaf_only) {
    uint64_t fields[2];
    fields[0] = space, fields[1] = va;
    return invalidate(log, cpu, PAGE, leaf_only, fields, 2);
}

bool ptsan_log_flush_range(ptsan_log *log, int cpu, uint64_t space, uint64_t start, uint64_t behind, uint64_t stride,
                           bool leaf_only) {
    uint64_t fields[4];
    fields[0] = space, fields[1] = start, fields[2] = behind, fields[3] = stride;
    return invalidate(log, cpu, RANGE, leaf_only, fields, 4);
}

bool ptsan_log_flush_every_space(ptsan_log *log, int cpu, uint64_t start, uint64_t behind, uint64_t stride,
                                 bool leaf_only) {
    uint64_t fields[3];
    fields[0] = start, fields[1] = behind, fields[2] = stride;
    return invalidate(log, cpu, EVERY_SPACE, leaf_only, fields, 3);
}

bool ptsan_log_flush_level(ptsan_log *log, int cpu, uint64_t space, uint64_t start, uint64_t behind, uint64_t stride,
                           unsigned level) {
    uint64_t fields[5];
    fields[0] = space, fields[1] = start, fields[2] = behind, fields[3] = stride, fields[4] = (uint64_t)level + 1;
    return invalidate(log, cpu, RANGE, false, fields, 5);
}

bool ptsan_log_flush_every_space_level(ptsan_log *log, int cpu, uint64_t start, uint64_t behind, uint64_t stride,
                                       unsigned level) {
    uint64_t fields[4];
    fields[0] = start, fields[1] = behind, fields[2] = stride, fields[3] = (uint64_t)level + 1;
    return invalidate(log, cpu, EVERY_SPACE, false, fields, 4);
}

bool ptsan_log_flush_space(ptsan_log *log, int cpu, uint64_t space) {
    return invalidate(log, cpu, SPACE, false, &space, 1);
}

bool ptsan_log_flush_all(ptsan_log *log, int cpu) {
    uint64_t none = 0;
    return invalidate(log, cpu, ALL, false, &none, 0);
}

bool ptsan_log_space_created(ptsan_log *log, uint64_t space) {
    return numbers(log, SPACE_CREATED, 1, space, 0, 0, 0);
}

bool ptsan_log_space_destroyed(ptsan_log *log, uint64_t space) {
    return numbers(log, SPACE_DESTROYED, 1, space, 0, 0, 0);
}

bool ptsan_log_data_freed(ptsan_log *log, uint64_t phys, uint64_t bytes) {
    return numbers(log, DATA_FREED, 2, phys, bytes, 0, 0);
}

bool ptsan_log_data_reused(ptsan_log *log, uint64_t phys, uint64_t bytes) {
    return numbers(log, DATA_REUSED, 2, phys, bytes, 0, 0);
}

bool ptsan_log_operation_begins(ptsan_log *log, uint64_t number) {
    return numbers(log, OPERATION_BEGINS, 1, number, 0, 0, 0);
}

bool ptsan_log_operation_ends(ptsan_log *log, uint64_t number) {
    return numbers(log, OPERATION_ENDS, 1, number, 0, 0, 0);
}

bool ptsan_log_access(ptsan_log *log, unsigned cpu, uint64_t va, ptsan_log_access_kind kind, bool user) {
    return numbers(log, ACCESS, 3, cpu, va, (uint64_t)kind | (user ? 4 : 0), 0);
}

bool ptsan_log_mark(ptsan_log *log, const char *text) {
    const uint8_t *bytes = (const uint8_t *)text;
    size_t length = 0;
    while (length <= MOST_TEXT && bytes[length]) {
        length++;
    }
    if (length > MOST_TEXT) {
        /* Back to the first byte of the character that does not fit. */
        for (length = MOST_TEXT; length > 0 && (bytes[length] & 0xc0) == 0x80;) {
            length--;
        }
    }
    record r = begin(log, MARK);
    put_bytes(&r, bytes, length);
    return end(log, &r);
}

bool ptsan_log_end(ptsan_log *log, bool all_freed) { return numbers(log, END, 1, all_freed, 0, 0, 0); }

bool ptsan_log_barrier(ptsan_log *log, unsigned cpu, ptsan_log_barrier_kind kind) {
    return numbers(log, BARRIER, 2, cpu, (uint64_t)kind, 0, 0);
}

bool ptsan_log_flushes_done(ptsan_log *log) { return numbers(log, FLUSHES_DONE, 0, 0, 0, 0, 0); }

bool ptsan_log_data_mapped(ptsan_log *log, uint64_t space, uint64_t va) {
    return numbers(log, DATA_MAPPED, 2, space, va, 0, 0);
}

bool ptsan_log_running(ptsan_log *log, unsigned cpu) { return numbers(log, RUNNING, 1, cpu, 0, 0, 0); }

bool ptsan_log_stage1_flushed(ptsan_log *log, unsigned cpu) {
    return numbers(log, STAGE1_FLUSHED, 1, cpu, 0, 0, 0);
}

bool ptsan_log_queue_page(ptsan_log *log, unsigned device, uint64_t space, uint64_t va, bool leaf_only) {
    uint64_t fields[2];
    fields[0] = space, fields[1] = va;
    return queue(log, device, PAGE, leaf_only, fields, 2);
}

bool ptsan_log_queue_range(ptsan_log *log, unsigned device, uint64_t space, uint64_t start, uint64_t behind,
                           uint64_t stride, bool leaf_only) {
    uint64_t fields[4];
    fields[0] = space, fields[1] = start, fields[2] = behind, fields[3] = stride;
    return queue(log, device, RANGE, leaf_only, fields, 4);
}

bool ptsan_log_queue_every_space(ptsan_log *log, unsigned device, uint64_t start, uint64_t behind, uint64_t stride,
                                 bool leaf_only) {
    uint64_t fields[3];
    fields[0] = start, fields[1] = behind, fields[2] = stride;
    return queue(log, device, EVERY_SPACE, leaf_only, fields, 3);
}

bool ptsan_log_queue_level(ptsan_log *log, unsigned device, uint64_t space, uint64_t start, uint64_t behind,
                           uint64_t stride, unsigned level) {
    uint64_t fields[5];
    fields[0] = space, fields[1] = start, fields[2] = behind, fields[3] = stride, fields[4] = (uint64_t)level + 1;
    return queue(log, device, RANGE, false, fields, 5);
}

bool ptsan_log_queue_space(ptsan_log *log, unsigned device, uint64_t space) {
    return queue(log, device, SPACE, false, &space, 1);
}

bool ptsan_log_queue_all(ptsan_log *log, unsigned device) {
    uint64_t none = 0;
    return queue(log, device, ALL, false, &none, 0);
}

bool ptsan_log_queue_completed(ptsan_log *log, unsigned device) {
    return numbers(log, QUEUE_COMPLETED, 1, device, 0, 0, 0);
}

bool ptsan_log_device_entry(ptsan_log *log, unsigned device, uint64_t phys, unsigned bytes, unsigned valid_word,
                            uint64_t valid_bits) {
    record r = begin(log, DEVICE_ENTRY);
    put(&r, device), put(&r, phys), put(&r, bytes), put(&r, valid_word), put(&r, valid_bits);
    return end(log, &r);
}

bool ptsan_log_device_entry_written(ptsan_log *log, uint64_t phys, const void *content, unsigned bytes) {
    record r = begin(log, DEVICE_ENTRY_WRITTEN);
    if (bytes > MOST_ENTRY) {
        bytes = MOST_ENTRY;
    }
    put(&r, phys), put(&r, bytes), put_bytes(&r, (const uint8_t *)content, bytes);
    return end(log, &r);
}

/* 0, or 1 and a number. All ones stands for none. */
static void put_optional(record *r, uint64_t number) {
    put(r, number != UINT64_MAX);
    if (number != UINT64_MAX) {
        put(r, number);
    }
}

bool ptsan_log_device_entries_flushed(ptsan_log *log, unsigned device, uint64_t phys) {
    record r = begin(log, DEVICE_ENTRIES_FLUSHED);
    put(&r, device), put_optional(&r, phys);
    return end(log, &r);
}

bool ptsan_log_reader_begins(ptsan_log *log, uint64_t number, uint64_t root) {
    return numbers(log, READER_BEGINS, 2, number, root, 0, 0);
}

bool ptsan_log_reader_reads(ptsan_log *log, uint64_t number, uint64_t table) {
    return numbers(log, READER_READS, 2, number, table, 0, 0);
}

bool ptsan_log_reader_ends(ptsan_log *log, uint64_t number) {
    return numbers(log, READER_ENDS, 1, number, 0, 0, 0);
}

bool ptsan_log_lock_guards(ptsan_log *log, uint64_t table, uint64_t lock, bool flush_first) {
    return numbers(log, LOCK_GUARDS, 3, table, lock, flush_first, 0);
}

bool ptsan_log_lock_taken(ptsan_log *log, unsigned cpu, uint64_t lock, bool shared) {
    return numbers(log, LOCK_TAKEN, 3, cpu, lock, shared, 0);
}

bool ptsan_log_lock_released(ptsan_log *log, unsigned cpu, uint64_t lock) {
    return numbers(log, LOCK_RELEASED, 2, cpu, lock, 0, 0);
}

bool ptsan_log_number_given(ptsan_log *log, uint64_t root, uint64_t space) {
    return numbers(log, NUMBER_GIVEN, 2, root, space, 0, 0);
}

bool ptsan_log_numbers_taken_back(ptsan_log *log) { return numbers(log, NUMBERS_TAKEN_BACK, 0, 0, 0, 0, 0); }

bool ptsan_log_stage1_part_flushed(ptsan_log *log, unsigned cpu, uint64_t number, uint64_t va) {
    record r = begin(log, STAGE1_PART_FLUSHED);
    put(&r, cpu), put_optional(&r, number), put_optional(&r, va);
    return end(log, &r);
}

bool ptsan_log_access_combined(ptsan_log *log, unsigned cpu, uint64_t number, uint64_t va, uint64_t gpa,
                               ptsan_log_access_kind kind) {
    record r = begin(log, ACCESS_COMBINED);
    put(&r, cpu), put(&r, number), put(&r, va), put(&r, gpa), put(&r, (uint64_t)kind);
    return end(log, &r);
}
