/* A machine in a program: memory from mmap that stands for physical memory, and hooks that
 * count. */
#ifndef HOST_H
#define HOST_H
#define _GNU_SOURCE
#include "ptarmigan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE PT_PAGE_SIZE
#define LOW_BYTES ((size_t)64 << 20)
#define KERNEL_ROOT PAGE
#define KMAP_TABLE (2 * PAGE)
#define KMAP_SLOTS 64
/* A frame that is not the library's. */
#define DEVICE ((uint64_t)0xe0000000)

static unsigned char *ram; /* physical address 0 */
static struct pt_machine machine;
static struct pt_cpu cpu;
static struct { unsigned roots, pages, alls, globals, ipis; uint64_t root, va; } hooks;

#if defined(__x86_64__) || defined(__i386__)
#define IS_X86 1
#else
#define IS_X86 0
#endif
/* What is in an entry besides what was asked for. */
#define NOTED (IS_X86 ? 0u : (unsigned)(PT_ATTR_ACCESSED | PT_ATTR_DIRTY))
/* Entries of a root that are the user's: AArch64's kernel has another root. */
#if defined(__aarch64__)
#define USER_ENTRIES 512
#else
#define USER_ENTRIES (PT_LEVELS == 4 ? 256 : 3)
#endif
#define HAS_KERNEL_HALF (USER_ENTRIES < 512)

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

/* What a call returned has to be this. */
#define RETURNS(call, want) \
    do { \
        long long got_ = (call), want_ = (want); \
        if (got_ != want_) { \
            fprintf(stderr, "%s:%d: %s: %lld (%s), not %lld\n", __FILE__, __LINE__, #call, got_, \
                    pt_error_text((int32_t)got_), want_); \
            exit(1); \
        } \
    } while (0)
#define OK(call) RETURNS(call, PT_OK)

static void load_root(void *context, uint32_t number, uint64_t root) {
    (void)context, (void)number;
    hooks.roots++, hooks.root = root;
}
static void invalidate_page(void *context, uint32_t number, uint64_t va) {
    (void)context, (void)number;
    hooks.pages++, hooks.va = va;
}
static void invalidate_all(void *context, uint32_t number) { (void)context, (void)number, hooks.alls++; }
static void invalidate_global(void *context, uint32_t number) { (void)context, (void)number, hooks.globals++; }
static void send_ipi(void *context, uint32_t number, uint32_t to) { (void)context, (void)number, (void)to, hooks.ipis++; }
static void before_executable(void *context, uint32_t number, uint64_t phys, uint64_t pages) {
    (void)context, (void)number, (void)phys, (void)pages;
}
static void panicked(void *context, const char *text, size_t length, const char *file, size_t file_length,
                     uint32_t line) {
    (void)context;
    fprintf(stderr, "panic: %.*s at %.*s:%u\n", (int)length, text, (int)file_length, file, line);
    abort();
}

static struct pt_run run = {16 * PAGE, LOW_BYTES - 16 * PAGE, 0};

/* The configuration, without boot memory. */
static inline struct pt_config configured(void) {
    struct pt_config config = {
        .size = sizeof config,
        .runs = &run,
        .run_count = 1,
        .direct_map = ram,
        .direct_map_end = LOW_BYTES,
        .kernel_root = KERNEL_ROOT,
        .hosted = 1,
        .cpus = 1,
        .verify_every = 1,
        .hooks = {.load_root = load_root, .invalidate_page = invalidate_page, .invalidate_all = invalidate_all,
                  .invalidate_global = invalidate_global, .send_ipi = send_ipi, .before_executable = before_executable, .panic = panicked},
    };
    return config;
}

static inline void *reserve(size_t bytes) {
    alarm(300); /* a deadlock ends the test */
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* An entry of the kernel's half, which every root has: it links the table at 0x7000. */
#define KERNEL_INDEX (PT_LEVELS == 4 ? 300 : 3)
#ifdef __riscv
#define KERNEL_ENTRY ((uint64_t)0x7000 >> 2 | 1)
#else
#define KERNEL_ENTRY ((uint64_t)0x7000 | 1)
#endif

static inline void begin(struct pt_config config) {
    if (HAS_KERNEL_HALF)
        ((uint64_t *)(ram + KERNEL_ROOT))[KERNEL_INDEX] = KERNEL_ENTRY;
    config.boot_bytes = pt_machine_bytes(&config);
    CHECK(config.boot_bytes != 0);
    config.boot_memory = reserve(config.boot_bytes);
    OK(pt_machine_init(&machine, &config));
    OK(pt_cpu_init(&cpu, &machine, 0, 0));
}

/* Every frame is in one of the counts. */
static inline struct pt_counts added_up(void) {
    struct pt_counts c;
    OK(pt_counts(&machine, &c));
    RETURNS((long long)(c.free_frames + c.tables + c.cached_tables + c.pages + c.cached_pages + c.own_frames),
            (long long)c.frames);
    return c;
}

static inline void finish(void) {
    uint64_t missing = 1;
    OK(pt_cpu_exit(&cpu));
    RETURNS(pt_machine_exit(&machine, &missing), PT_OK);
    CHECK(missing == 0);
}

/* Dumps the user's half of a tree: each entry that is not 0, with frames named in the order of
 * their first appearance; those of devices by their address. */
static uint32_t names[LOW_BYTES / PAGE], named;

static inline void dump(unsigned level, uint64_t table) {
    const uint64_t address = UINT64_C(0x000ffffffffff000), *entries = (const uint64_t *)(ram + table);
    unsigned n = level + 1 == PT_LEVELS ? USER_ENTRIES : 512;
    for (unsigned i = 0; i < n; i++) {
        uint64_t entry = entries[i], frame = entry & address;
        if (entry == 0)
            continue;
        printf("%u %u %016llx ", level, i, (unsigned long long)(entry & ~address));
        if (frame >= LOW_BYTES) {
            printf("device %llx\n", (unsigned long long)frame);
        } else {
            uint32_t *name = &names[frame / PAGE];
            if (*name == 0)
                *name = ++named;
            printf("frame %u\n", *name);
        }
        if (level > 0)
            dump(level - 1, frame);
    }
}

static uint64_t seed = 1;
static inline uint32_t below(uint32_t limit) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % limit;
}
#endif
