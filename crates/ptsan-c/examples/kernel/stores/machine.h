/* The machine in a program on any host: the compiler tells of the kernel's stores. */
#ifndef MACHINE_H
#define MACHINE_H

#include "../host/hooks.h"
#include "ptsan_stores.h"

static inline void hw_store(volatile uint64_t *entry, uint64_t value) { *entry = value; }

static inline uint64_t hw_exchange(volatile uint64_t *entry, uint64_t value) {
    return __atomic_exchange_n(entry, value, __ATOMIC_SEQ_CST);
}

static inline void machine_run(const ptsan_options *options, void (*kernel)(void *)) {
    static _Alignas(4096) uint8_t memory[RAM_BYTES];
    ram = memset(memory, 0x5b, sizeof memory); /* it is not zero when a kernel starts */
    san = ptsan_new(options, memory, sizeof memory, 0);
    hw_begin();
    ptsan_stores_begin(san, memory, sizeof memory, 0, 8);
    kernel(NULL);
    ptsan_stores_end();
    if (ptsan_stores_told() == 0) {
        fprintf(stderr, "compile paging.c with -fsanitize=thread\n");
        exit(2);
    }
}

#endif
