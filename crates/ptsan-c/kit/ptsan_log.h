/*
 * ptsan_log: writes the log of a running kernel, which `ptsan replay` checks on another machine.
 *
 * For kernels: freestanding C99, without allocation, library functions, floating point or static
 * data. 3 to 9 KB of code for all records (gcc -Os, clang -O2). A record is put together on the
 * stack, in less than 512 bytes, and handed to a function of the kernel, such as one that writes to
 * a serial port. docs/ptsan-log.md explains the records, when each is to be written, and the
 * format, version 2.
 *
 * CPUs share one log under a lock, held across the store or the instruction and its record. With a
 * lock that is not fair, or in an interrupt, take care that the function below cannot wait for
 * itself.
 *
 *     static bool serial_write(void *port, const void *bytes, size_t length);
 *     static ptsan_log log;
 *
 *     ptsan_log_begin(&log, serial_write, &port,
 *                     &(ptsan_log_machine){PTSAN_LOG_X86_64, .cpus = 4});
 *     ptsan_log_table_allocated(&log, phys, 0, PTSAN_LOG_ANY_LEVEL, PTSAN_LOG_UNKNOWN);
 *     ...
 *     ptsan_log_end(&log, false);
 */
#ifndef PTSAN_LOG_H
#define PTSAN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes `length` bytes, at most 224: the header or one record. Returns false if they are lost. */
typedef bool (*ptsan_log_write)(void *to, const void *bytes, size_t length);

/* A log that is being written. Its members are the library's. */
typedef struct ptsan_log {
    ptsan_log_write write;
    void *to;
    uint64_t pc;
    bool has_pc;
    bool lost;
    uint8_t exception_level;
    uint16_t check;
} ptsan_log;

/* Page-table formats. */
typedef enum ptsan_log_arch {
    PTSAN_LOG_X86 = 1,
    PTSAN_LOG_X86_PAE = 2,
    PTSAN_LOG_X86_64 = 3,
    PTSAN_LOG_X86_64_LA57 = 4,
    PTSAN_LOG_SV32 = 5,
    PTSAN_LOG_SV39 = 6,
    PTSAN_LOG_SV48 = 7,
    PTSAN_LOG_SV57 = 8,
    PTSAN_LOG_AARCH64_4K = 9,
    PTSAN_LOG_AARCH64_16K = 10,
    PTSAN_LOG_AARCH64_64K = 11,
    PTSAN_LOG_STAGE2_4K = 12,
    PTSAN_LOG_STAGE2_16K = 13,
    PTSAN_LOG_STAGE2_64K = 14,
    PTSAN_LOG_EPT = 16,    /* Intel's extended page tables; addresses are guest-physical here and below */
    PTSAN_LOG_NPT = 17,    /* AMD's nested page tables */
    PTSAN_LOG_SV39X4 = 18, /* RISC-V's G-stage */
    PTSAN_LOG_SV48X4 = 19
} ptsan_log_arch;

/* Flags of a machine, combined with |. */
enum {
    PTSAN_LOG_ASIDS = 1,           /* TLB entries are tagged with their space */
    PTSAN_LOG_UPPER = 2,           /* AArch64: the upper of two trees (TTBR1) */
    PTSAN_LOG_BARRIERS = 4,        /* barriers are recorded */
    PTSAN_LOG_ACCESSED_DIRTY = 8,  /* the kernel relies on the bits that hardware sets */
    PTSAN_LOG_TWO_STAGES = 16,     /* stage 2, with a guest's tables on top */
    PTSAN_LOG_COMMON_NUMBERS = 32, /* a number of a space stands for one root on all CPUs */
    PTSAN_LOG_LOCKS = 64,          /* locks are recorded */
    PTSAN_LOG_KEEPS_INVALID = 128  /* CPUs keep entries that were not valid (RISC-V) */
};

/* The machine. Members that are 0 have their usual value, except `cpus`, which is at least 1 if
 * there are no devices. CPUs and devices are at most 65,535 together. */
typedef struct ptsan_log_machine {
    uint8_t arch;         /* a ptsan_log_arch */
    uint8_t flags;
    uint16_t cpus;        /* they are numbered from 0 */
    uint32_t table_bytes; /* of a table of usual size */
    uint8_t va_bits;      /* AArch64: address bits that are translated. Needed there */
    uint8_t start_level;  /* AArch64 stage 2: the first level that is walked */
    uint16_t devices;     /* that walk the tables too */
    uint8_t exception_level; /* AArch64: of the tables, 1 (as 0) to 3 */
} ptsan_log_machine;

/* In place of a table's level: not known. In place of a CPU: all at once. */
#define PTSAN_LOG_ANY_LEVEL (-1)
#define PTSAN_LOG_EVERY_CPU (-1)
/* In place of an address in an entry of a device: all of its entries. */
#define PTSAN_LOG_ALL_ENTRIES UINT64_MAX
/* In place of a guest's number of a space, and of an address: all of them. */
#define PTSAN_LOG_ALL UINT64_MAX

/* The content of a table when it is announced. */
typedef enum ptsan_log_content {
    PTSAN_LOG_ZERO = 0,     /* promised to be zero */
    PTSAN_LOG_UNKNOWN = 1,  /* to be cleared before it is linked */
    PTSAN_LOG_UNCHECKED = 2 /* anything */
} ptsan_log_content;

typedef enum ptsan_log_barrier_kind {
    PTSAN_LOG_DSB = 0,
    PTSAN_LOG_ISB = 1,
    PTSAN_LOG_FENCE = 2,    /* RISC-V FENCE RW, RW */
    PTSAN_LOG_DSB_ISHST = 3 /* orders stores and completes no invalidation */
} ptsan_log_barrier_kind;

typedef enum ptsan_log_access_kind {
    PTSAN_LOG_READ = 0,
    PTSAN_LOG_WRITE = 1,
    PTSAN_LOG_EXEC = 2
} ptsan_log_access_kind;

/* Begins a log: writes its header. Each function returns whether the bytes were taken. Once they
 * were not, the log is of no use, and later calls return false without a call of `write`. */
bool ptsan_log_begin(ptsan_log *log, ptsan_log_write write, void *to, const ptsan_log_machine *machine);

/* Gives the next record the virtual address of an instruction: the report names its function. */
void ptsan_log_at(ptsan_log *log, uint64_t pc);

/* Gives the next record of an invalidation the exception level that the instruction names, 1 to 3
 * (AArch64): `TLBI VAE2` drops nothing of EL1. */
void ptsan_log_of(ptsan_log *log, unsigned exception_level);

/* One function for each record, in the order of the table in docs/ptsan-log.md. Addresses and sizes
 * are bytes, physical but for `va`. A size of 0 is the usual one of a table. */
bool ptsan_log_table_allocated(ptsan_log *log, uint64_t phys, uint64_t size, int level, ptsan_log_content content);
bool ptsan_log_table_freed(ptsan_log *log, uint64_t phys, uint64_t size);
bool ptsan_log_store(ptsan_log *log, uint64_t phys, unsigned bytes, uint64_t value);
bool ptsan_log_exchange(ptsan_log *log, uint64_t phys, unsigned bytes, uint64_t value);
bool ptsan_log_fill(ptsan_log *log, uint64_t phys, uint64_t bytes, uint64_t value);
/* The content of memory without a store. More than 200 bytes take several records. */
bool ptsan_log_memory(ptsan_log *log, uint64_t phys, const void *content, size_t bytes);
bool ptsan_log_root_loaded(ptsan_log *log, unsigned cpu, uint64_t root, uint64_t space, bool flushes);
bool ptsan_log_lazy(ptsan_log *log, unsigned cpu);
bool ptsan_log_resume(ptsan_log *log, unsigned cpu);
bool ptsan_log_leave(ptsan_log *log, unsigned cpu);
bool ptsan_log_flush_page(ptsan_log *log, int cpu, uint64_t space, uint64_t va, bool leaf_only);
bool ptsan_log_flush_range(ptsan_log *log, int cpu, uint64_t space, uint64_t start, uint64_t end, uint64_t stride,
                           bool leaf_only);
bool ptsan_log_flush_every_space(ptsan_log *log, int cpu, uint64_t start, uint64_t end, uint64_t stride,
                                 bool leaf_only);
/* With the level of the pages that the instruction names, counted from the leaves (AArch64 with
 * FEAT_TTL): no other pages and no tables are dropped. */
bool ptsan_log_flush_level(ptsan_log *log, int cpu, uint64_t space, uint64_t start, uint64_t end, uint64_t stride,
                           unsigned level);
bool ptsan_log_flush_every_space_level(ptsan_log *log, int cpu, uint64_t start, uint64_t end, uint64_t stride,
                                       unsigned level);
bool ptsan_log_flush_space(ptsan_log *log, int cpu, uint64_t space);
bool ptsan_log_flush_all(ptsan_log *log, int cpu);
bool ptsan_log_space_created(ptsan_log *log, uint64_t space);
bool ptsan_log_space_destroyed(ptsan_log *log, uint64_t space);
bool ptsan_log_data_freed(ptsan_log *log, uint64_t phys, uint64_t bytes);
bool ptsan_log_data_reused(ptsan_log *log, uint64_t phys, uint64_t bytes);
bool ptsan_log_operation_begins(ptsan_log *log, uint64_t number);
bool ptsan_log_operation_ends(ptsan_log *log, uint64_t number);
bool ptsan_log_access(ptsan_log *log, unsigned cpu, uint64_t va, ptsan_log_access_kind kind, bool user);
/* A text in UTF-8 for readers of a dump. Cut at a character so that it has at most 200 bytes. */
bool ptsan_log_mark(ptsan_log *log, const char *text);
/* The last record. `all_freed`: tables that are still allocated are leaks, all has been flushed. */
bool ptsan_log_end(ptsan_log *log, bool all_freed);
bool ptsan_log_barrier(ptsan_log *log, unsigned cpu, ptsan_log_barrier_kind kind);
bool ptsan_log_flushes_done(ptsan_log *log);
bool ptsan_log_data_mapped(ptsan_log *log, uint64_t space, uint64_t va);
bool ptsan_log_running(ptsan_log *log, unsigned cpu);
bool ptsan_log_stage1_flushed(ptsan_log *log, unsigned cpu);

/* Devices: IOMMUs, and devices in the address space of a process. Each function above that takes a
 * CPU for a root, a flush or an access takes a device as well, by this number. The functions below
 * take the same number. */
static inline uint16_t ptsan_log_device(const ptsan_log_machine *machine, unsigned device) {
    return (uint16_t)(machine->cpus + device);
}
/* An invalidation was put into the queue of a device. */
bool ptsan_log_queue_page(ptsan_log *log, unsigned device, uint64_t space, uint64_t va, bool leaf_only);
bool ptsan_log_queue_range(ptsan_log *log, unsigned device, uint64_t space, uint64_t start, uint64_t end,
                           uint64_t stride, bool leaf_only);
bool ptsan_log_queue_every_space(ptsan_log *log, unsigned device, uint64_t start, uint64_t end, uint64_t stride,
                                 bool leaf_only);
bool ptsan_log_queue_level(ptsan_log *log, unsigned device, uint64_t space, uint64_t start, uint64_t end,
                           uint64_t stride, unsigned level);
bool ptsan_log_queue_space(ptsan_log *log, unsigned device, uint64_t space);
bool ptsan_log_queue_all(ptsan_log *log, unsigned device);
/* The kernel has waited until all of the queue was carried out. */
bool ptsan_log_queue_completed(ptsan_log *log, unsigned device);
/* The device reads an entry of 8, 16, 32 or 64 bytes, valid if any of these bits is set in that
 * word of 8 bytes. Its content before is told by ptsan_log_memory. */
bool ptsan_log_device_entry(ptsan_log *log, unsigned device, uint64_t phys, unsigned bytes, unsigned valid_word,
                            uint64_t valid_bits);
/* One store to such an entry: 1, 2, 4, 8, 16, 32 or 64 bytes, at a multiple of their number. */
bool ptsan_log_device_entry_written(ptsan_log *log, uint64_t phys, const void *content, unsigned bytes);
/* The device forgot the entry at an address, or PTSAN_LOG_ALL_ENTRIES. */
bool ptsan_log_device_entries_flushed(ptsan_log *log, unsigned device, uint64_t phys);

/* Software that walks tables without their lock, by a number that no other one under way has. */
bool ptsan_log_reader_begins(ptsan_log *log, uint64_t number, uint64_t root);
bool ptsan_log_reader_reads(ptsan_log *log, uint64_t number, uint64_t table);
bool ptsan_log_reader_ends(ptsan_log *log, uint64_t number);

bool ptsan_log_lock_guards(ptsan_log *log, uint64_t table, uint64_t lock, bool flush_first);
bool ptsan_log_lock_taken(ptsan_log *log, unsigned cpu, uint64_t lock, bool shared);
/* Right before the lock is released. */
bool ptsan_log_lock_released(ptsan_log *log, unsigned cpu, uint64_t lock);

/* The tables at a root were given the number of a space; all numbers were taken back. */
bool ptsan_log_number_given(ptsan_log *log, uint64_t root, uint64_t space);
bool ptsan_log_numbers_taken_back(ptsan_log *log);

/* A CPU invalidated the guest's own translations: those of a number or PTSAN_LOG_ALL, at an address
 * or PTSAN_LOG_ALL. */
bool ptsan_log_stage1_part_flushed(ptsan_log *log, unsigned cpu, uint64_t number, uint64_t va);
/* A guest accessed an address in its space `number`, which stage 1 translates to `gpa`. */
bool ptsan_log_access_combined(ptsan_log *log, unsigned cpu, uint64_t number, uint64_t va, uint64_t gpa,
                               ptsan_log_access_kind kind);

#ifdef __cplusplus
}
#endif

#endif
