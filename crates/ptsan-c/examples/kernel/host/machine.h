/* The machine as the page-table code sees it, in a program on the host: ptsan. */
#ifndef MACHINE_H
#define MACHINE_H

#include "ptsan.h"

#define RAM_BYTES (512 * 4096)

extern ptsan *san;
extern _Alignas(4096) uint8_t ram[RAM_BYTES];

static inline int hw_cpu(void) { return ptsan_this_cpu(san); }

static inline void *hw_memory(uint64_t phys) { return ram + phys; }

static inline uint64_t hw_phys(const void *at) { return (uint64_t)((const uint8_t *)at - ram); }

static inline void hw_store(volatile uint64_t *entry, uint64_t value) {
    *entry = value;
    ptsan_entry_written(san, hw_phys((const void *)entry));
}

static inline void hw_ipi_invlpg(int cpu, uint64_t va) {
    ptsan_flush_every_space(san, cpu, va, va + 1, 4096, false);
}

static inline void hw_invlpg(uint64_t va) { hw_ipi_invlpg(PTSAN_THIS_CPU, va); }

static inline void hw_load_cr3(uint64_t root) { ptsan_switch(san, PTSAN_THIS_CPU, root, root); }

static inline void hw_ipi_reload(int cpu, uint64_t root) { ptsan_switch(san, cpu, root, root); }

static inline void hw_table_taken(uint64_t phys) {
    ptsan_table_allocated(san, phys, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
}

static inline void hw_table_returned(uint64_t phys) { ptsan_table_freed(san, phys, 4096); }

#endif
