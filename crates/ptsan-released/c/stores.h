/*
 * The shared parts of the tests. Stores of the code under test are told by ptsan_stores.c, of the
 * kit of ptsan-c.
 *
 * Memory is mapped where physical addresses and pointers are equal.
 */
#ifndef STORES_H
#define STORES_H

#include "ptsan_stores.h"

#define RAM_START 0x100000000ull
#define RAM_BYTES (4ull << 20)
#define CPUS 4
#define SPACE 1

extern ptsan *san;

/* Maps the memory, full of old entries, and creates the sanitizer with CPUS processors. Each test
 * of a run has a number, which is the adversary's seed. */
void begin(ptsan_arch arch, uint32_t va_bits, uint64_t seed);

/* The same with other options; the number of CPUs is CPUS. */
void begin_as(ptsan_options options);

/* Tells the last store: before a test itself reads or writes tables. */
void settle(void);

/* Clears or fills memory and tells the stores. */
void *told_memset(void *to, int byte, size_t bytes);

/* Loads the root on every CPU. */
void load_everywhere(uint64_t root);

/* An invalidation by address or of everything on every CPU, complete at once. */
void flush_page_everywhere(uint64_t va);
void flush_everything(void);

/* AArch64: the same, but it takes effect at the next DSB of full strength. */
void tlbi_page_everywhere(uint64_t va);
void dsb(void);

/* Compares the mapping that the code under test should have at `va` with its tables: frame (or
 * PTSAN_NONE for no page), size of the page (or 0), permissions (or 0). */
void expect(uint64_t va, uint64_t phys, uint64_t size, uint32_t perms);

/* Accesses `va` on a CPU, in supervisor mode. Returns whether it did not fault. */
bool may(int cpu, uint64_t va, uint32_t kind);

/* The next number of a sequence that the seed of `begin` chooses, below `n`. */
uint64_t below(uint64_t n);

/* Ends a test: prints the report, and fails the run unless the kinds found are exactly `must`, and
 * perhaps `may_follow` (names separated by spaces). */
void verdict(const char *title, const char *must, const char *may_follow);

#endif
