/* The machine as the page-table code sees it, on real hardware: x86-64 in kernel mode. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

#define DIRECT_MAP 0xffff800000000000ull

int hw_cpu(void);                             /* from the CPU's own data */
void hw_ipi_invlpg(int cpu, uint64_t va);     /* the other CPU flushes, then answers */
void hw_ipi_reload(int cpu, uint64_t root);

static inline void *hw_memory(uint64_t phys) { return (void *)(DIRECT_MAP + phys); }

static inline uint64_t hw_phys(const void *at) { return (uint64_t)at - DIRECT_MAP; }

static inline void hw_store(volatile uint64_t *entry, uint64_t value) { *entry = value; }

static inline uint64_t hw_exchange(volatile uint64_t *entry, uint64_t value) {
    return __atomic_exchange_n(entry, value, __ATOMIC_SEQ_CST);
}

static inline void hw_invlpg(uint64_t va) { __asm__ volatile("invlpg (%0)" : : "r"(va) : "memory"); }

static inline void hw_load_cr3(uint64_t root) { __asm__ volatile("mov %0, %%cr3" : : "r"(root) : "memory"); }

/* For tools that watch: a frame becomes a table, and is one no more. */
static inline void hw_table_taken(uint64_t phys) { (void)phys; }

static inline void hw_table_returned(uint64_t phys) { (void)phys; }

/* The same: the last user of a data frame is gone; all changes so far have been flushed. */
static inline void hw_frame_freed(uint64_t phys) { (void)phys; }

static inline void hw_flushed(void) {}

#endif
