/*
 * ptsan_stores: every store to table memory, told to the sanitizer, on any host and without a
 * change to the code under test.
 *
 * 1. Compile the code under test with
 *
 *        -fsanitize=thread -fno-builtin -O1
 *        -Dmemset=ptsan_stores_memset -Dmemcpy=ptsan_stores_memcpy -Dmemmove=ptsan_stores_memmove
 *
 * 2. Compile ptsan_stores.c and the test without them, and link everything without
 *    -fsanitize=thread. gcc and clang then call a function before each load and store, and
 *    ptsan_stores.c has these functions in place of the runtime of ThreadSanitizer.
 * 3. Call ptsan_stores_begin when the sanitizer exists, and ptsan_stores_end before it goes.
 *
 * The compiler's call comes before the store. So a store is told at the next such call on the same
 * thread, or when the thread calls any function of ptsan: a flush never overtakes it. An atomic
 * operation is carried out and told in one call.
 *
 * Not told: stores of assembler code, atomic operations of 16 bytes (which do not link), and with
 * clang before 16 copies of whole structures. Loops that fill memory are stores like others at -O1;
 * at -O2 and above gcc needs -fno-tree-loop-distribute-patterns.
 *
 * C99. It needs __atomic built-ins and thread-local variables, which gcc and clang have.
 */
#ifndef PTSAN_STORES_H
#define PTSAN_STORES_H

#include "ptsan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tells `san` of each store to the `bytes` bytes at `base`, whose first has physical address
 * `start`. Entries have `entry_bytes` bytes, 4 or 8. Stores elsewhere are not told. One sanitizer
 * at a time; a later call replaces the former. Returns PTSAN_OK or a negative ptsan_error. */
int32_t ptsan_stores_begin(ptsan *san, void *base, size_t bytes, uint64_t start, uint32_t entry_bytes);

/* Tells of the last store, and of no further one. */
void ptsan_stores_end(void);

/* Tells of the last store of this thread. Needed where a thread ends with a store, or where another
 * thread acts on it without a call of ptsan in between. */
void ptsan_stores_settle(void);

/* The stores to table memory so far, of all threads. 0 says that the code under test was compiled
 * without -fsanitize=thread. */
uint64_t ptsan_stores_told(void);

/* The functions of the C library of these names, which the compiler does not look into. */
void *ptsan_stores_memset(void *to, int byte, size_t bytes);
void *ptsan_stores_memcpy(void *to, const void *from, size_t bytes);
void *ptsan_stores_memmove(void *to, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
