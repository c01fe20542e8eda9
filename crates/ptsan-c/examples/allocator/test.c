/*
 * Tests kernel.c as it is. Its allocator and the callers are in one file, so that a linker's --wrap
 * does not come between them. But in a shared library each call of a function that others see is
 * one that the program may answer: page_alloc and page_free below, which call the kernel's own.
 */
#define _GNU_SOURCE
#include "ptsan_stores.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t page_alloc(void);
void page_free(uint64_t page);
bool map(uint64_t root, uint64_t va, uint64_t entry);
void unmap(uint64_t root, uint64_t va);
void invlpg(uint64_t va);

static ptsan *san;
static uint64_t ram[32 * 512];
uint8_t *memory = (uint8_t *)ram;

/* The function of this name in the kernel: the next one behind the program's. */
#define KERNELS(function, copy)                                                                                \
    do {                                                                                                     \
        void *found = dlsym(RTLD_NEXT, #function);                                                           \
        if (!found) {                                                                                        \
            fprintf(stderr, "the kernel has no " #function "\n");                                            \
            exit(2);                                                                                         \
        }                                                                                                    \
        memcpy(&(copy), &found, sizeof found);                                                               \
    } while (0)

uint64_t page_alloc(void) {
    uint64_t (*kernels)(void);
    PTSAN_HARNESS(san);
    KERNELS(page_alloc, kernels);
    uint64_t page = kernels();
    ptsan_table_allocated(san, page, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
    return page;
}

void page_free(uint64_t page) {
    void (*kernels)(uint64_t);
    PTSAN_HARNESS(san);
    KERNELS(page_free, kernels);
    ptsan_table_freed(san, page, 4096); /* before it can be taken again */
    kernels(page);
}

void invlpg(uint64_t va) {
    PTSAN_HARNESS(san);
    ptsan_flush_page(san, 0, 1, va, false);
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
    san = ptsan_new(&options, ram, sizeof ram, 0);
    if (!san || ptsan_stores_begin(san, ram, sizeof ram, 0, 8) != PTSAN_OK) {
        fprintf(stderr, "%s\n", ptsan_last_error());
        return 2;
    }
    uint64_t root = page_alloc();
    map(root, 0x400000, 0x10000 | 7);
    ptsan_switch(san, 0, root, 1);
    ptsan_access(san, 0, 0x400123, PTSAN_READ, true, NULL);
    unmap(root, 0x400000);
    map(root, 0x400000, 0x11000 | 7);
    if (ptsan_live_tables(san) != 4) {
        fprintf(stderr, "the kernel's allocator was not heard\n");
        return 2;
    }
    int findings = (int)ptsan_total(san);
    char *report = ptsan_report(san);
    fputs(findings ? report : "", stderr);
    ptsan_free_text(report);
    ptsan_stores_end();
    ptsan_destroy(san);
    return findings;
}
