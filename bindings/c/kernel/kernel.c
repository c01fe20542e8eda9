/* A small x86-64 kernel in C on the library: spaces whose pages come by page fault, lose
 * permissions, go and come back; and at the end every frame is where it was. */
#include "ptarmigan.h"

#define DIRECT_MAP UINT64_C(0xffff800000000000)
#define MAPPED (UINT64_C(4) << 30)
#define PAGE PT_PAGE_SIZE
#define VIRT UINT64_C(0x4000000000)
#define STRIDE (UINT64_C(2) << 20)
#define PAGES 32
#define SPACES 64

extern unsigned char image_end[];
extern char trap_stubs[], probe_read[], probe_write[], probe_failed[];
extern uint64_t kernel_root[512];
int probe(volatile uint64_t *at, uint64_t *value, int writes);

/* Ports, text, the end of the machine. */

static void outb(uint16_t port, uint8_t value) { __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
static uint8_t inb(uint16_t port) {
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static void put(char byte) {
    while (!(inb(0x3fd) & 0x20))
        ;
    outb(0x3f8, (uint8_t)byte);
}
static void say(const char *text) {
    while (*text)
        put(*text++);
}
static void say_number(uint64_t number, unsigned base) {
    char digits[20];
    unsigned n = 0;
    do {
        digits[n++] = "0123456789abcdef"[number % base];
    } while (number /= base);
    while (n > 0)
        put(digits[--n]);
}
static _Noreturn void leave(uint8_t code) {
    outb(0xf4, code); /* isa-debug-exit: QEMU ends with 2 * code + 1 */
    for (;;)
        __asm__ volatile("cli; hlt");
}
static _Noreturn void fail(const char *why, uint64_t number) {
    static int failing;
    if (!failing++) {
        say("FAIL "), say(why), say(" "), say_number(number, 16), say("\n");
    }
    leave(0x11);
}
#define CHECK(condition, number) ((condition) ? (void)0 : fail(#condition, (uint64_t)(number)))
static void ok(int32_t result) {
    if (result != PT_OK)
        fail(pt_error_text(result), (uint64_t)result);
}

/* What the library wants of the MMU. */

static int without_flush;
static uint64_t flushes;

static uint64_t cr3(void) {
    uint64_t root;
    __asm__ volatile("movq %%cr3, %0" : "=r"(root));
    return root;
}
static void load_root(void *context, uint32_t cpu, uint64_t root) {
    (void)context, (void)cpu;
    __asm__ volatile("movq %0, %%cr3" : : "r"(root) : "memory");
}
static void invalidate_page(void *context, uint32_t cpu, uint64_t va) {
    (void)context, (void)cpu;
    flushes++;
    if (!without_flush)
        __asm__ volatile("invlpg (%0)" : : "r"(va) : "memory");
}
static void invalidate_all(void *context, uint32_t cpu) {
    flushes++;
    if (!without_flush)
        load_root(context, cpu, cr3());
}
static void panic(void *context, const char *text, size_t length, const char *file, size_t file_length,
                  uint32_t line) {
    (void)context;
    for (size_t i = 0; i < length; i++)
        put(text[i]);
    say(" at ");
    for (size_t i = 0; i < file_length; i++)
        put(file[i]);
    fail(": panic in line", line);
}

/* Memory. */

struct start_info {
    uint32_t magic, version, flags, modules;
    uint64_t module_list, command_line, rsdp, map;
    uint32_t entries, reserved;
};
struct map_entry {
    uint64_t start, bytes;
    uint32_t kind, reserved;
};

static void *direct(uint64_t physical) { return (void *)(DIRECT_MAP + physical); }

/* The largest run of usable memory behind the image. */
static struct pt_run largest(const struct start_info *info) {
    struct pt_run best = {0, 0, 0};
    CHECK(info->magic == 0x336ec578 && info->version >= 1, info->magic);
    const struct map_entry *map = direct(info->map);
    uint64_t behind = (uint64_t)image_end - DIRECT_MAP;
    for (uint32_t i = 0; i < info->entries; i++) {
        uint64_t start = map[i].start > behind ? map[i].start : behind, end = map[i].start + map[i].bytes;
        start = (start + PAGE - 1) & ~(uint64_t)(PAGE - 1);
        end = (end < MAPPED ? end : MAPPED) & ~(uint64_t)(PAGE - 1);
        if (map[i].kind == 1 && end > start && end - start > best.bytes)
            best.start = start, best.bytes = end - start;
    }
    return best;
}

static int has_word(const char *line, const char *word) {
    for (; *line; line++) {
        unsigned n = 0;
        while (word[n] && line[n] == word[n])
            n++;
        if (!word[n])
            return 1;
    }
    return 0;
}

/* Exceptions. */

static struct pt_machine machine;
static struct pt_cpu cpu;
static struct pt_tree tree;
static int serving;
static uint64_t faults;

/* A page fault of a probe: a fresh page where none is mapped, in the test's addresses. */
static int fault(uint64_t va, uint64_t error) {
    if (!serving || error & 1 || va < VIRT || va >= VIRT + PAGES * STRIDE)
        return 0;
    uint64_t frame = pt_page_alloc(&cpu);
    CHECK(frame != 0, pt_cpu_error(&cpu));
    ok(pt_tree_map(&tree, &cpu, va & ~(uint64_t)(PAGE - 1), frame, PT_ATTR_READ | PT_ATTR_WRITE | PT_ATTR_USER));
    faults++;
    return 1;
}

void trap(uint64_t number, uint64_t error, uint64_t *frame, uint64_t va);
void trap(uint64_t number, uint64_t error, uint64_t *frame, uint64_t va) {
    int probes = frame[0] == (uint64_t)probe_read || frame[0] == (uint64_t)probe_write;
    if (number != 14 || !probes)
        fail("exception at", frame[0]);
    if (!fault(va, error))
        frame[0] = (uint64_t)probe_failed;
}

static void set_up_exceptions(void) {
    static uint64_t idt[32][2];
    static struct __attribute__((packed)) { uint16_t limit; uint64_t base; } idtr;
    for (unsigned i = 0; i < 32; i++) {
        uint64_t at = (uint64_t)trap_stubs + 16 * i;
        idt[i][0] = (at & 0xffff) | 8 << 16 | UINT64_C(0x8e00) << 32 | (at >> 16 & 0xffff) << 48;
        idt[i][1] = at >> 32;
    }
    idtr.limit = sizeof idt - 1, idtr.base = (uint64_t)idt;
    __asm__ volatile("lidt %0" : : "m"(idtr));
}

/* The test. */

static uint64_t page(unsigned space, unsigned i) {
    return VIRT + i * STRIDE + (space * 101 + i * 37 + 11) % 512 * PAGE;
}
static uint64_t read(uint64_t va) {
    uint64_t value = 0;
    CHECK(probe((uint64_t *)va, &value, 0) == 0, va);
    return value;
}
static int may_write(uint64_t va, uint64_t value) { return probe((uint64_t *)va, &value, 1) == 0; }

static void one_space(unsigned number) {
    struct pt_page found;
    uint64_t value, tag = (uint64_t)number << 32 | UINT64_C(1) << 63, before = faults;
    ok(pt_tree_init(&tree, &cpu));
    ok(pt_tree_activate(&tree, &cpu));
    CHECK(cr3() == pt_tree_root(&tree, &cpu), cr3());
    serving = 1;
    /* Every page comes by one fault, zeroed, and keeps what is written. */
    for (unsigned i = 0; i < PAGES; i++) {
        CHECK(read(page(number, i)) == 0, i);
        CHECK(may_write(page(number, i), tag | i), i);
        value = read(page(number, i) + 8); /* the rest of the page is zero, too */
        CHECK(value == 0, value);
    }
    CHECK(faults == before + PAGES, faults);
    CHECK(pt_tree_tables(&tree, &cpu, 0) == PAGES, pt_tree_tables(&tree, &cpu, 0));
    for (unsigned i = 0; i < PAGES; i++) {
        ok(pt_tree_query(&tree, &cpu, page(number, i), &found));
        CHECK(found.attr & PT_ATTR_DIRTY, found.attr); /* the MMU has noted it */
        CHECK(*(uint64_t *)direct(found.phys) == (tag | i), i);
    }
    /* Read-only, and writable again: at once. */
    ok(pt_tree_protect(&tree, &cpu, VIRT, PAGES * STRIDE, PT_ATTR_READ | PT_ATTR_USER));
    CHECK(!may_write(page(number, 3), 0) && read(page(number, 3)) == (tag | 3), number);
    ok(pt_tree_protect(&tree, &cpu, VIRT, PAGES * STRIDE, PT_ATTR_READ | PT_ATTR_WRITE | PT_ATTR_USER));
    CHECK(may_write(page(number, 3), tag | 3), number);
    /* What was unmapped is not seen any more: a fresh page comes. Its neighbour stays. */
    CHECK(read(page(number, 5)) == (tag | 5), number);
    ok(pt_tree_unmap(&tree, &cpu, page(number, 5), PAGE, NULL, NULL));
    value = read(page(number, 5));
    if (value != 0)
        fail("stale: what was unmapped is still seen:", value);
    CHECK(read(page(number, 6)) == (tag | 6), number);
    CHECK(faults == before + PAGES + 1, faults);
    /* The end: the kernel's own root is loaded, and nothing is seen. */
    serving = 0;
    ok(pt_tree_exit(&tree, &cpu));
    CHECK(cr3() == (uint64_t)kernel_root - DIRECT_MAP, cr3());
    CHECK(probe((uint64_t *)page(number, 0), &value, 0) == 1, number);
}

void kernel_main(uint64_t start_info);
void kernel_main(uint64_t start_info) {
    const struct start_info *info = direct(start_info);
    without_flush = info->command_line && has_word(direct(info->command_line), "without=flush");
    set_up_exceptions();
    struct pt_run run = largest(info);
    struct pt_config config = {
        .size = sizeof config,
        .runs = &run,
        .run_count = 1,
        .direct_map = direct(0),
        .direct_map_end = MAPPED,
        .kernel_root = (uint64_t)kernel_root - DIRECT_MAP,
        .cpus = 1,
        .verify_every = 255,
        .hooks = {.load_root = load_root, .invalidate_page = invalidate_page, .invalidate_all = invalidate_all,
                  .invalidate_global = invalidate_all, .panic = panic},
    };
    config.boot_bytes = pt_machine_bytes(&config);
    CHECK(config.boot_bytes != 0 && config.boot_bytes < run.bytes / 2, config.boot_bytes);
    config.boot_memory = direct(run.start);
    run.start += config.boot_bytes, run.bytes -= config.boot_bytes;
    /* A direct map that is elsewhere is refused: set-up walks the root as the MMU does. */
    struct pt_config lying = config;
    lying.direct_map = direct(STRIDE);
    CHECK(pt_machine_init(&machine, &lying) == PT_ERROR_WINDOW_SHOWS, lying.kernel_root);
    ok(pt_machine_init(&machine, &config));
    ok(pt_cpu_init(&cpu, &machine, 0, 0));

    struct pt_counts counts;
    uint64_t misses = 0, missing;
    for (unsigned number = 0; number < SPACES; number++) {
        one_space(number);
        ok(pt_counts(&machine, &counts));
        CHECK(counts.tables == 0, counts.tables);
        CHECK(number < 2 || counts.misses == misses, number); /* tables come from the lists */
        misses = counts.misses;
    }
    say_number(SPACES, 10), say(" spaces, "), say_number(counts.allocs, 10), say(" tables, "), say_number(misses, 10);
    say(" from the allocator, "), say_number(faults, 10), say(" page faults, "), say_number(flushes, 10);
    say(" flushes\n");
    ok(pt_cpu_exit(&cpu));
    int32_t ended = pt_machine_exit(&machine, &missing);
    CHECK(missing == 0, missing);
    ok(ended);
    say("all frames are back\nPASS\n");
    leave(0x10);
}
