/* Kernel code under an identity map, with its instructions as they are: no hook of stores or of the
 * processor. With -DBUG=1 the page is not flushed. For Linux on x86-64. */
#include "ptsan.h"

#include <stdio.h>

#ifndef BUG
#define BUG 0
#endif

static ptsan *san;
static uint64_t ram; /* physical addresses are pointers */
enum { PAGE = 4096, TABLES = 4 };

/* The kernel. */

static void unmap(void *unused) {
    (void)unused;
    volatile uint64_t *entry = (volatile uint64_t *)(uintptr_t)(ram + 3 * PAGE);
    *entry = 0;
    if (BUG != 1)
        __asm__ volatile("invlpg (%0)" : : "r"((void *)0) : "memory");
}

static void boot(void *unused) {
    (void)unused;
    for (uint64_t n = 0; n < TABLES; n++) /* page 0 to the frame behind the tables */
        *(volatile uint64_t *)(uintptr_t)(ram + n * PAGE) = (ram + (n + 1) * PAGE) | 7;
    __asm__ volatile("mov %0, %%cr3" : : "r"(ram) : "memory");
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
    /* 64 KiB at the lowest multiple of 4 GiB that is free; a third argument chooses an address. */
    san = ptsan_watch_new_identity(&options, 16 * PAGE, 0);
    if (san == NULL) {
        fprintf(stderr, "%s\n", ptsan_last_error());
        return 1;
    }
    ram = (uint64_t)(uintptr_t)ptsan_watch_base(san);
    for (uint64_t n = 0; n < TABLES; n++)
        ptsan_table_allocated(san, ram + n * PAGE, PAGE, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    ptsan_watch_run_on(san, 0, boot, NULL);
    ptsan_access(san, 0, 0x123, PTSAN_READ, true, NULL);
    ptsan_watch_run_on(san, 0, unmap, NULL);
    ptsan_frame_freed(san, ram + TABLES * PAGE, PAGE);
    ptsan_leave(san, 0);
    for (uint64_t n = 0; n < TABLES; n++)
        ptsan_table_freed(san, ram + n * PAGE, PAGE);
    return ptsan_end(san);
}
