/* Kernel code with its privileged instructions: loads of the root and flushes need no hook. */
#include "check.h"

static ptsan *san;
static uint64_t ram; /* the address of the memory is its physical address */
enum { TABLES = 4, FRAME = 5 };

static void store(uint64_t phys, uint64_t value) { *(volatile uint64_t *)(uintptr_t)phys = value; }

static void load_cr3(uint64_t root) { __asm__ volatile("mov %0, %%cr3" : : "r"(root) : "memory"); }

static void invlpg(uint64_t va) { __asm__ volatile("invlpg (%0)" : : "r"(va) : "memory"); }

static void boot(void *unused) {
    (void)unused;
    CHECK(ptsan_this_cpu(san) == 0);
    load_cr3(ram);
    for (uint64_t n = 0; n < TABLES; n++)
        store(ram + n * 4096, (ram + (n == TABLES - 1 ? FRAME : n + 1) * 4096) | 7);
}

static void other(void *flush) {
    CHECK(ptsan_this_cpu(san) == 1);
    if (*(bool *)flush)
        invlpg(0);
    else
        load_cr3(ram);
    __asm__ volatile("hlt");
    CHECK(!"it goes on after hlt");
}

static void unmap(void *flush) {
    store(ram + 3 * 4096, 0);
    if (*(bool *)flush)
        invlpg(0);
    /* An interrupt on the other CPU, which halts. */
    CHECK(ptsan_watch_run_on(san, 1, other, flush) == PTSAN_HALTED && ptsan_this_cpu(san) == 0);
    ptsan_frame_freed(san, ram + FRAME * 4096, 4096);
}

static void refused(void *unused) {
    (void)unused;
    __asm__ volatile("ud2");
    CHECK(!"it goes on after ud2");
}

static uint64_t run(bool flush) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .cpus = 2};
    san = ptsan_watch_new_identity(&options, 16 * 4096, 0);
    CHECK(san != NULL);
    ram = (uint64_t)(uintptr_t)ptsan_watch_base(san);
    CHECK(ram != 0 && ram % (1ull << 32) == 0);
    for (uint64_t n = 0; n < TABLES; n++)
        ptsan_table_allocated(san, ram + n * 4096, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    CHECK(ptsan_watch_run_on(san, 0, boot, NULL) == PTSAN_OK && ptsan_watch_stores(san) == TABLES);
    uint64_t phys;
    CHECK(ptsan_access(san, 0, 0x123, PTSAN_READ, true, &phys) == PTSAN_OK && phys == ram + FRAME * 4096 + 0x123);
    bool no = false;
    CHECK(ptsan_watch_run_on(san, 1, other, &no) == PTSAN_HALTED); /* loads the root */
    CHECK(ptsan_watch_run_on(san, 0, unmap, &flush) == PTSAN_OK && ptsan_refused(san) == 0);
    CHECK(ptsan_watch_run_on(san, 0, refused, NULL) == PTSAN_ERROR_SYSTEM);
    CHECK(strstr(ptsan_last_error(), "0f 0b") != NULL);
    CHECK(ptsan_watch_run_on(san, 2, boot, NULL) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_refused(san) == 2);
    void *taken = ptsan_watch_new_identity(&options, 4096, ram);
    CHECK(taken == NULL && strstr(ptsan_last_error(), "ptsan_watch_new_identity: ") != NULL);
    return ptsan_total(san);
}

int main(void) {
    CHECK(run(true) == 0);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    CHECK(run(false) == 1);
    COUNT("data-freed-before-flush", 1);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    return 0;
}
