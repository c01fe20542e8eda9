/*
 * Page tables of x86-64 and the allocator of their frames, in one file and without a hook. With
 * -DBUG=1 a table is freed before the flush.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef BUG
#define BUG 0
#endif
#define PAGE 4096u

/* Of other files: memory from physical address 0 on, and the hardware. */
extern uint8_t *memory;
void invlpg(uint64_t va);

uint64_t page_alloc(void);
void page_free(uint64_t page);
bool map(uint64_t root, uint64_t va, uint64_t entry);
void unmap(uint64_t root, uint64_t va);

static uint64_t free_pages[64], free_count, fresh = PAGE;

uint64_t page_alloc(void) {
    uint64_t page = free_count > 0 ? free_pages[--free_count] : fresh;
    if (page == fresh) {
        fresh += PAGE;
    }
    memset(memory + page, 0, PAGE);
    return page;
}

void page_free(uint64_t page) { free_pages[free_count++] = page; }

static volatile uint64_t *entry_of(uint64_t table, uint64_t va, int level) {
    return (volatile uint64_t *)(void *)(memory + table) + ((va >> (12 + 9 * level)) & 511);
}

bool map(uint64_t root, uint64_t va, uint64_t entry) {
    uint64_t table = root;
    for (int level = 3; level > 0; level--) {
        volatile uint64_t *at = entry_of(table, va, level);
        if (!(*at & 1)) {
            *at = page_alloc() | 7;
        }
        table = *at & ~(uint64_t)(PAGE - 1);
    }
    *entry_of(table, va, 0) = entry;
    return true;
}

/* Unmaps a page whose last table has no other. */
void unmap(uint64_t root, uint64_t va) {
    uint64_t table = root;
    for (int level = 3; level > 1; level--) {
        table = *entry_of(table, va, level) & ~(uint64_t)(PAGE - 1);
    }
    volatile uint64_t *at = entry_of(table, va, 1);
    uint64_t last = *at & ~(uint64_t)(PAGE - 1);
    *at = 0;
    if (BUG == 1) {
        page_free(last);
    }
    invlpg(va);
    if (BUG != 1) {
        page_free(last);
    }
}
