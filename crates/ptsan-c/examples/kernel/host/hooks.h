/* Hardware and frames as calls of ptsan, for both machines of the host. */
#ifndef HOOKS_H
#define HOOKS_H

#include "ptsan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAM_BYTES (512 * 4096)
#define HW_CPUS 2

extern ptsan *san;
extern uint8_t *ram; /* RAM_BYTES from physical address 0 on */

/* To be called when there should be a sanitizer. Reports name lines of the kernel, not of these
 * files. */
static inline void hw_begin(void) {
    if (!san) {
        fprintf(stderr, "%s\n", ptsan_last_error());
        exit(2);
    }
    PTSAN_HARNESS_FILE(san);
    ptsan_mark_harness(san, "machine.h"), ptsan_mark_harness(san, "main.c");
}

static inline int hw_cpu(void) { return ptsan_this_cpu(san); }

static inline void *hw_memory(uint64_t phys) { return ram + phys; }

static inline uint64_t hw_phys(const void *at) { return (uint64_t)((const uint8_t *)at - ram); }

static inline void hw_ipi_invlpg(int cpu, uint64_t va) {
    ptsan_flush_every_space(san, cpu, va, va + 1, 4096, false);
}

static inline void hw_invlpg(uint64_t va) { hw_ipi_invlpg(PTSAN_THIS_CPU, va); }

static inline void hw_ipi_reload(int cpu, uint64_t root) { ptsan_switch(san, cpu, root, root); }

static inline void hw_load_cr3(uint64_t root) { hw_ipi_reload(PTSAN_THIS_CPU, root); }

static inline void hw_table_taken(uint64_t phys) {
    ptsan_table_allocated(san, phys, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
}

static inline void hw_table_returned(uint64_t phys) { ptsan_table_freed(san, phys, 4096); }

static inline void hw_frame_freed(uint64_t phys) { ptsan_frame_freed(san, phys, 4096); }

static inline void hw_flushed(void) { ptsan_flushes_done(san); }

/* A program on each CPU uses an address, in user mode. Faults are legal. */
static inline void use(uint64_t va, uint32_t kind) {
    for (int cpu = 0; cpu < HW_CPUS; cpu++)
        ptsan_access(san, cpu, va, kind, true, NULL);
}

#endif
