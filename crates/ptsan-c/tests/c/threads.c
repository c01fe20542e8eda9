#define _POSIX_C_SOURCE 200809L
/* Threads that stand for CPUs, each with pages of its own in one space. */
#include "check.h"
#include <pthread.h>

enum { CPUS = 4, ROUNDS = 500 };

static _Alignas(4096) _Atomic uint64_t ram[8 * 512];
static ptsan *san, *other;
static _Atomic uint32_t taken; /* a bit for each CPU that a thread got without asking */
static pthread_barrier_t started;

static void *work(void *cpu) {
    taken |= 1u << ptsan_this_cpu(other);
    CHECK(ptsan_run_on(san, (int32_t)(intptr_t)cpu) == PTSAN_OK);
    CHECK(ptsan_this_cpu(san) == (int32_t)(intptr_t)cpu);
    ptsan_switch(san, PTSAN_THIS_CPU, 4096, 1);
    pthread_barrier_wait(&started);
    uint64_t index = (uint64_t)(intptr_t)cpu * 8, va = index * 4096, entry = 4 * 4096 + index * 8, phys;
    for (int round = 0; round < ROUNDS; round++) {
        ram[entry / 8] = 0x80007;
        ptsan_entry_written(san, entry);
        CHECK(ptsan_access(san, PTSAN_THIS_CPU, va, PTSAN_READ, true, &phys) == PTSAN_OK && phys == 0x80000);
        uint64_t unmap = ptsan_operation_begins(san);
        ram[entry / 8] = 0;
        ptsan_entry_written(san, entry);
        for (int32_t other = 0; other < CPUS; other++)
            ptsan_flush_page(san, other, 1, va, false);
        ptsan_operation_ends(san, unmap);
        CHECK(ptsan_access(san, PTSAN_THIS_CPU, va, PTSAN_READ, true, NULL) == PTSAN_FAULT_NOT_PRESENT);
    }
    pthread_barrier_wait(&started);
    ptsan_leave(san, PTSAN_THIS_CPU);
    return NULL;
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .cpus = CPUS, .adversary_rate = 500, .seed = 3};
    pthread_t threads[CPUS];
    san = ptsan_new(&options, (const void *)ram, sizeof ram, 0);
    for (uint64_t table = 4; table > 0; table--) {
        ptsan_table_allocated(san, table * 4096, 4096, 4 - (int32_t)table, PTSAN_CONTENT_ZERO);
        if (table < 4)
            ram[table * 512] = (table + 1) * 4096 | 7;
        ptsan_entry_written(san, table * 4096);
    }
    other = ptsan_new(&options, (const void *)ram, sizeof ram, 0);
    pthread_barrier_init(&started, NULL, CPUS);
    for (intptr_t cpu = 0; cpu < CPUS; cpu++)
        pthread_create(&threads[cpu], NULL, work, (void *)cpu);
    for (int cpu = 0; cpu < CPUS; cpu++)
        pthread_join(threads[cpu], NULL);
    CHECK(taken == (1u << CPUS) - 1 && ptsan_end(other) == 0);
    for (uint64_t table = 1; table <= 4; table++)
        ptsan_table_freed(san, table * 4096, 4096);
    return ptsan_end(san);
}
