/* The machine in a program on Linux on x86-64: the sanitizer sees stores by itself. */
#ifndef MACHINE_H
#define MACHINE_H

#include "../host/hooks.h"

static inline void hw_store(volatile uint64_t *entry, uint64_t value) { *entry = value; }

static inline uint64_t hw_exchange(volatile uint64_t *entry, uint64_t value) {
    return __atomic_exchange_n(entry, value, __ATOMIC_SEQ_CST);
}

static inline void machine_run(const ptsan_options *options, void (*kernel)(void *)) {
    san = ptsan_watch_new(options, RAM_BYTES, 0);
    hw_begin();
    ram = memset(ptsan_watch_base(san), 0x5b, RAM_BYTES); /* it is not zero when a kernel starts */
    ptsan_watch_run(san, kernel, NULL);
}

#endif
