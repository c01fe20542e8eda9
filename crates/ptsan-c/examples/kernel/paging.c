/*
 * Page tables of x86-64 with four levels, as a small kernel has them. The hardware is in machine.h,
 * which is another file in a program on the host.
 *
 * Compiled with -DBUG=n, it has bug number n: AS_IT_IS(n) leaves a statement out, IN_BUG(n) puts
 * one in.
 */
#include "paging.h"
#include "machine.h"
#include <string.h>

#ifndef BUG
#define BUG 0
#endif
#define AS_IT_IS(n) if (BUG != (n))
#define IN_BUG(n) if (BUG == (n))

#define PAGE 4096ull
#define FRAME_OF(entry) ((entry) & 0x000ffffffffff000ull)
#define CPUS 32
#define MOST_FRAMES 512

/* Frames: a list through the free ones, and how many entries map each. */

static uint64_t free_list;
static uint8_t users[MOST_FRAMES];
static bool dirty[MOST_FRAMES];

uint64_t frame_alloc(void) {
    uint64_t frame = free_list;
    if (frame != 0) {
        memcpy(&free_list, hw_memory(frame), sizeof free_list);
        users[frame / PAGE] = 1;
        dirty[frame / PAGE] = false;
    }
    return frame;
}

static bool was_last_user(uint64_t frame) { return --users[frame / PAGE] == 0; }

static void push(uint64_t frame) {
    memcpy(hw_memory(frame), &free_list, sizeof free_list);
    free_list = frame;
}

void frame_free(uint64_t frame) {
    if (was_last_user(frame)) {
        hw_frame_freed(frame);
        push(frame);
    }
}

bool frame_is_dirty(uint64_t frame) { return dirty[frame / PAGE]; }

void frames_init(uint64_t first, uint64_t end) {
    for (uint64_t frame = end - PAGE; frame >= first; frame -= PAGE)
        push(frame);
}

/* Tables. */

static uint64_t spare; /* of bug 14: the last frame that was unmapped */

static uint64_t table_alloc(void) {
    uint64_t table = spare != 0 ? spare : frame_alloc();
    spare = 0;
    if (table != 0) {
        hw_table_taken(table);
        AS_IT_IS(3) memset(hw_memory(table), 0, PAGE);
    }
    return table;
}

static void table_free(uint64_t table) {
    hw_table_returned(table);
    if (was_last_user(table))
        push(table);
}

static bool table_is_empty(uint64_t table) {
    const uint64_t *entries = hw_memory(table);
    for (int i = 0; i < 512; i++)
        if (entries[i] != 0)
            return false;
    return true;
}

static volatile uint64_t *entry_at(uint64_t table, int level, uint64_t va) {
    return (volatile uint64_t *)hw_memory(table) + ((va >> (12 + 9 * level)) & 511);
}

/* Finds the entries for `va`, path[3] in the root to path[0] in the last table. */
static bool walk(struct space *space, uint64_t va, bool make, volatile uint64_t *path[4]) {
    uint64_t table = space->root;
    for (int level = 3;; level--) {
        path[level] = entry_at(table, level, va);
        if (level == 0)
            return true;
        if (!(*path[level] & PRESENT)) {
            uint64_t below = make ? table_alloc() : 0;
            if (below == 0)
                return false;
            hw_store(path[level], below | PRESENT | WRITABLE | USER);
            IN_BUG(3) memset(hw_memory(below), 0, PAGE);
            IN_BUG(17) if (level == 1) /* the kernel's way to the last table, which is not its own */
                users[below / PAGE]++, hw_store(entry_at(below, 0, 0x1ff000), below | PRESENT | WRITABLE | USER);
        }
        table = FRAME_OF(*path[level]);
    }
}

/* Replaces the entry of a page. The bits that hardware set in the old one are kept. */
static void replace(volatile uint64_t *entry, uint64_t value) {
    uint64_t old = hw_exchange(entry, value);
    if (old & DIRTY)
        dirty[FRAME_OF(old) / PAGE] = true;
}

/* Drops translations of the page, on this CPU and on all that run in the space. */
static void shoot_down(struct space *space, uint64_t va) {
    for (int cpu = 0; cpu < CPUS; cpu++) {
        if (!(space->cpus >> cpu & 1))
            continue;
        if (cpu == hw_cpu())
            hw_invlpg(va);
        else
            AS_IT_IS(8) hw_ipi_invlpg(cpu, va);
    }
}

/* Spaces. */

bool space_create(struct space *space) {
    space->root = table_alloc();
    space->cpus = 0;
    IN_BUG(3) memset(hw_memory(space->root), 0, PAGE);
    return space->root != 0;
}

static struct space *loaded[CPUS];

/* Notes that a CPU leaves the space it runs in for another. */
static void enter(int cpu, struct space *space) {
    if (loaded[cpu] != NULL)
        loaded[cpu]->cpus &= ~(1u << cpu);
    loaded[cpu] = space;
    space->cpus |= 1u << cpu;
}

void space_load(struct space *space) {
    enter(hw_cpu(), space);
    hw_load_cr3(space->root);
}

bool space_map(struct space *space, uint64_t va, uint64_t frame, uint64_t flags) {
    volatile uint64_t *path[4];
    if (!walk(space, va, true, path))
        return false;
    hw_store(path[0], frame | PRESENT | ACCESSED | flags);
    return true;
}

void space_unmap(struct space *space, uint64_t va) {
    volatile uint64_t *path[4];
    if (!walk(space, va, false, path) || !(*path[0] & PRESENT))
        return;
    uint64_t frame = FRAME_OF(*path[0]), empty[3];
    int count = 0;
    IN_BUG(15) shoot_down(space, va);
    replace(path[0], 0);
    /* Tables that became empty go too, from the last one up. */
    for (int level = 1; level < 4; level++) {
        uint64_t table = FRAME_OF(*path[level]);
        if (!table_is_empty(table))
            break;
        AS_IT_IS(7) hw_store(path[level], 0);
        AS_IT_IS(2) empty[count++] = table;
        IN_BUG(2) table_free(table);
        IN_BUG(7) break;
    }
    IN_BUG(13) frame_free(frame);
    IN_BUG(14) if (count == 0) { /* the flush is left to the next switch */
        spare = frame;
        return;
    }
    AS_IT_IS(1) AS_IT_IS(15) shoot_down(space, BUG == 6 ? va + PAGE : va);
    AS_IT_IS(13) frame_free(frame);
    while (count > 0)
        table_free(empty[--count]);
}

void space_protect(struct space *space, uint64_t va, uint64_t flags) {
    volatile uint64_t *path[4];
    if (!walk(space, va, false, path) || !(*path[0] & PRESENT))
        return;
    AS_IT_IS(18) replace(path[0], FRAME_OF(*path[0]) | PRESENT | ACCESSED | flags);
    IN_BUG(18) hw_store(path[0], FRAME_OF(*path[0]) | PRESENT | ACCESSED | flags | (*path[0] & DIRTY));
    AS_IT_IS(9) shoot_down(space, va);
    hw_flushed();
}

/* Copies the tables; both spaces share the frames until one of them writes. */
static bool copy_level(struct space *parent, uint64_t from, struct space *child, uint64_t to, int level,
                       uint64_t va) {
    for (uint64_t i = 0; i < (level == 3 ? 256 : 512); i++, va += PAGE << (9 * level)) {
        volatile uint64_t *entry = entry_at(from, level, va);
        if (!(*entry & PRESENT))
            continue;
        if (level == 0) {
            if (*entry & WRITABLE) {
                replace(entry, (*entry & ~(uint64_t)WRITABLE) | COPY_ON_WRITE);
                AS_IT_IS(10) shoot_down(parent, va);
            }
            users[FRAME_OF(*entry) / PAGE]++;
            hw_store(entry_at(to, 0, va), *entry);
        } else {
            IN_BUG(11) if (level == 1) {
                hw_store(entry_at(to, level, va), *entry);
                continue;
            }
            uint64_t below = table_alloc();
            if (below == 0)
                return false;
            hw_store(entry_at(to, level, va), below | PRESENT | WRITABLE | USER);
            IN_BUG(3) memset(hw_memory(below), 0, PAGE);
            if (!copy_level(parent, FRAME_OF(*entry), child, below, level - 1, va))
                return false;
        }
    }
    return true;
}

bool space_fork(struct space *parent, struct space *child) {
    if (!space_create(child))
        return false;
    bool done = copy_level(parent, parent->root, child, child->root, 3, 0);
    hw_flushed();
    if (!done)
        space_destroy(child);
    return done;
}

bool space_write_fault(struct space *space, uint64_t va) {
    volatile uint64_t *path[4];
    if (!walk(space, va, false, path) || !(*path[0] & COPY_ON_WRITE))
        return false;
    uint64_t old = FRAME_OF(*path[0]);
    uint64_t copy = frame_alloc();
    if (copy == 0)
        return false;
    memcpy(hw_memory(copy), hw_memory(old), PAGE);
    replace(path[0], copy | PRESENT | ACCESSED | WRITABLE | USER);
    AS_IT_IS(16) shoot_down(space, va);
    frame_free(old);
    hw_flushed();
    return true;
}

static void free_level(uint64_t table, int level) {
    volatile uint64_t *entries = hw_memory(table);
    for (int i = 0; i < (level == 3 ? 256 : 512); i++) {
        if (!(entries[i] & PRESENT))
            continue;
        if (level == 0)
            frame_free(FRAME_OF(entries[i]));
        else
            free_level(FRAME_OF(entries[i]), level - 1);
    }
    if (BUG == 5 && level == 0)
        return;
    table_free(table);
}

void space_leave(struct space *space, struct space *next) {
    for (int cpu = 0; cpu < CPUS; cpu++) {
        if (!(space->cpus >> cpu & 1))
            continue;
        enter(cpu, next);
        if (cpu == hw_cpu())
            hw_load_cr3(next->root);
        else
            AS_IT_IS(12) hw_ipi_reload(cpu, next->root);
    }
}

void space_destroy(struct space *space) {
    uint64_t root = space->root;
    free_level(root, 3);
    IN_BUG(4) table_free(root);
    space->root = 0;
}
