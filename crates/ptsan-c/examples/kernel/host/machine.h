/* The machine in a program on any host: the kernel's stores to entries tell the sanitizer. */
#ifndef MACHINE_H
#define MACHINE_H

#include "hooks.h"

static inline void hw_store(volatile uint64_t *entry, uint64_t value) {
    *entry = value;
    ptsan_entry_written(san, hw_phys((const void *)entry));
}

static inline uint64_t hw_exchange(volatile uint64_t *entry, uint64_t value) {
    uint64_t old = *entry;
    *entry = value;
    ptsan_entry_exchanged(san, hw_phys((const void *)entry));
    return old;
}

static inline void machine_run(const ptsan_options *options, void (*kernel)(void *)) {
    static _Alignas(4096) uint8_t memory[RAM_BYTES];
    ram = memset(memory, 0x5b, sizeof memory); /* it is not zero when a kernel starts */
    san = ptsan_new(options, memory, sizeof memory, 0);
    hw_begin();
    kernel(NULL);
}

#endif
