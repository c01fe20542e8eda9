/* Set-up walks the root that hardware walks: one of another number of levels, and a direct map that
 * shows other memory, are refused before anything is written. */
#include "host.h"

#define LARGE ((uint64_t)2 << 20)
#define READ_ONLY 0x61u /* present, accessed, dirty */
#define KERNEL_PAGE (READ_ONLY | 2)
#define USER_PAGE (KERNEL_PAGE | 4)
#define IS_LARGE 0x80u
/* The table that the entry of the kernel's half links, and one more. */
#define DIRECTORY (KERNEL_ENTRY & ~UINT64_C(0xfff))
#define TABLE (DIRECTORY + PAGE)
/* Where a 32-bit program can have memory at addresses of a kernel's half. */
#define IN_KERNEL_HALF ((void *)0xc8000000)

static struct pt_config config;

static uint64_t *table(uint64_t at) { return (uint64_t *)(ram + at); }

/* The error, and no write. */
static void refused(int32_t error) {
    static const struct pt_machine zero;
    RETURNS(pt_machine_init(&machine, &config), error);
    CHECK(memcmp(&machine, &zero, sizeof zero) == 0);
    for (const uint64_t *at = table(run.start); at < table(LOW_BYTES); at += PAGE / 8)
        CHECK(*at == 0);
}

static void taken(void) {
    uint64_t missing;
    OK(pt_machine_init(&machine, &config));
    OK(pt_machine_exit(&machine, &missing));
    memset(&machine, 0, sizeof machine);
    memset(ram + run.start, 0, run.bytes);
}

/* The entry that maps the memory at `at` of the direct map. */
static uint64_t *entry(uint64_t at) { return &table(DIRECTORY)[((uintptr_t)ram + at) / LARGE % 512]; }

static void map_all(unsigned flags) {
    for (uint64_t at = 0; at < LOW_BYTES; at += LARGE)
        *entry(at) = at | IS_LARGE | flags;
}

/* A direct map at addresses of a kernel's half. */
static void walks(void) {
    refused(PT_ERROR_WINDOW_SHOWS); /* the table is empty */
    map_all(KERNEL_PAGE);
    taken();
    map_all(READ_ONLY);
    refused(PT_ERROR_WINDOW_SHOWS);
    map_all(USER_PAGE);
    refused(PT_ERROR_WINDOW_SHOWS);
    map_all(KERNEL_PAGE);
    /* Each part of each run is looked for. */
    uint64_t last = LOW_BYTES - LARGE;
    *entry(last) = 0;
    refused(PT_ERROR_WINDOW_SHOWS);
    *entry(last) = (last - LARGE) | IS_LARGE | KERNEL_PAGE;
    refused(PT_ERROR_WINDOW_SHOWS);
    /* High memory has no place there. */
    struct pt_config before = config;
    config.direct_map_end = last;
    config.kmap_tables = table(KMAP_TABLE), config.kmap_base = reserve(KMAP_SLOTS * PAGE), config.kmap_slots = KMAP_SLOTS;
    config.boot_bytes = pt_machine_bytes(&config), config.boot_memory = reserve(config.boot_bytes);
    taken();
    config = before;
    *entry(last) = last | IS_LARGE | KERNEL_PAGE;
    taken();
    /* The window lies: it is 2 MiB behind the memory that the root maps there. */
    for (uint64_t at = 0; at < LOW_BYTES; at += LARGE)
        *entry(at) = (at + LARGE) | IS_LARGE | KERNEL_PAGE;
    refused(PT_ERROR_WINDOW_SHOWS);
    /* A root of one level more. */
    for (uint64_t at = 0; at < LOW_BYTES; at += LARGE)
        *entry(at) = TABLE | 1;
    for (unsigned i = 0; i < 512; i++)
        table(TABLE)[i] = (uint64_t)i << 21 | IS_LARGE | KERNEL_PAGE;
    refused(PT_ERROR_WINDOW_SHOWS);
    /* A root of one less: entries of 32 bits, each for 4 MiB. */
    map_all(KERNEL_PAGE);
    memset(table(KERNEL_ROOT), 0, PAGE);
    for (unsigned i = 0; i < 16; i++)
        ((uint32_t *)(ram + KERNEL_ROOT))[(uintptr_t)ram / (2 * LARGE) + i] = i << 22 | IS_LARGE | KERNEL_PAGE;
    refused(PT_ERROR_WINDOW_SHOWS);
}

int main(void) {
    int is_walked = HAS_KERNEL_HALF && PT_LEVELS == 3;
    ram = reserve(LOW_BYTES);
    if (is_walked) {
        CHECK(munmap(ram, LOW_BYTES) == 0);
        void *at = mmap(IN_KERNEL_HALF, LOW_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(at == IN_KERNEL_HALF);
        ram = at;
    }
    config = configured(), config.hosted = 0;
    config.boot_bytes = pt_machine_bytes(&config), config.boot_memory = reserve(config.boot_bytes);
    if (!HAS_KERNEL_HALF) {
        taken(); /* the kernel's root is in another register */
        puts("walked");
        return 0;
    }
    /* A direct map in the user's half, or one that the kernel's root does not map. */
    refused(PT_ERROR_WINDOW_SHOWS);
    CHECK(strstr(pt_error_text(PT_ERROR_WINDOW_SHOWS), "config.kernel_root does not map config.direct_map"));
    table(KERNEL_ROOT)[KERNEL_INDEX] = KERNEL_ENTRY;
    if (is_walked)
        walks();
    else
        refused(PT_ERROR_WINDOW_SHOWS);
    /* No hardware walks them. */
    config.hosted = 1;
    taken();
    table(KERNEL_ROOT)[KERNEL_INDEX] = run.start | 1;
    refused(PT_ERROR_RUNS);
    config.hosted = 0;
    refused(PT_ERROR_RUNS);
    puts("walked");
    return 0;
}
