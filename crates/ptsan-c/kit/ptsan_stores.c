/* See ptsan_stores.h. This file is not compiled with -fsanitize=thread. */
#include "ptsan_stores.h"

#include <string.h>

#if defined(__SANITIZE_THREAD__)
#error "compile ptsan_stores.c without -fsanitize=thread: only the code under test has it"
#endif

/* The sanitizer, and the memory of its tables. Set while no code under test runs. */
static ptsan *told_to;
static uintptr_t first, end;
static uint64_t physical;
static uint32_t width = 8;
static uint64_t told;

/* The store that the compiler announced and the thread has not told. */
static __thread uintptr_t pending;
static __thread size_t pending_bytes;

/* Tells of the entries that `bytes` bytes at `at` touch. */
static void tell(uintptr_t at, size_t bytes, bool exchanged) {
    uintptr_t to = at + bytes < at ? UINTPTR_MAX : at + bytes;
    at = at < first ? first : at;
    to = to > end ? end : to;
    if (!told_to || at >= to) {
        return;
    }
    __atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
    for (uintptr_t entry = (at - first) / width * width; entry < to - first; entry += width) {
        if (exchanged) {
            ptsan_entry_exchanged(told_to, physical + entry);
        } else {
            ptsan_entry_written(told_to, physical + entry);
        }
    }
}

void ptsan_stores_settle(void) {
    uintptr_t at = pending;
    pending = 0;
    if (at) {
        tell(at, pending_bytes, false);
    }
}

static void settle_first(void *unused) {
    (void)unused;
    ptsan_stores_settle();
}

int32_t ptsan_stores_begin(ptsan *san, void *base, size_t bytes, uint64_t start, uint32_t entry_bytes) {
    if (!base || (uintptr_t)base + bytes < (uintptr_t)base || (entry_bytes != 4 && entry_bytes != 8)) {
        return PTSAN_ERROR_BAD_ARGUMENT;
    }
    ptsan_stores_end();
    int32_t done = ptsan_before_calls(san, settle_first, NULL);
    if (done == PTSAN_OK) {
        PTSAN_HARNESS_FILE(san);
        first = (uintptr_t)base, end = (uintptr_t)base + bytes;
        physical = start, width = entry_bytes, told = 0, told_to = san;
    }
    return done;
}

void ptsan_stores_end(void) {
    ptsan_stores_settle();
    if (told_to) {
        ptsan_before_calls(told_to, NULL, NULL);
        told_to = NULL;
    }
}

uint64_t ptsan_stores_told(void) { return __atomic_load_n(&told, __ATOMIC_RELAXED); }

void *ptsan_stores_memset(void *to, int byte, size_t bytes) {
    ptsan_stores_settle();
    memset(to, byte, bytes);
    tell((uintptr_t)to, bytes, false);
    return to;
}

void *ptsan_stores_memcpy(void *to, const void *from, size_t bytes) {
    return ptsan_stores_memmove(to, from, bytes);
}

void *ptsan_stores_memmove(void *to, const void *from, size_t bytes) {
    ptsan_stores_settle();
    memmove(to, from, bytes);
    tell((uintptr_t)to, bytes, false);
    return to;
}

/* The functions that compilers call. Stores outside of table memory only end the last one. */
static inline void storing(const volatile void *to, size_t bytes) {
    ptsan_stores_settle();
    uintptr_t at = (uintptr_t)to;
    if (at < end && at + bytes > first) {
        pending = at, pending_bytes = bytes;
    }
}

#define LOAD(name)                                                                                           \
    void name(void *from);                                                                                   \
    void name(void *from) { (void)from, ptsan_stores_settle(); }
#define STORE(name, bytes)                                                                                   \
    void name(void *to);                                                                                     \
    void name(void *to) { storing(to, bytes); }
#define ACCESSES(bytes)                                                                                      \
    LOAD(__tsan_read##bytes)                                                                                 \
    LOAD(__tsan_unaligned_read##bytes)                                                                       \
    LOAD(__tsan_volatile_read##bytes)                                                                        \
    LOAD(__tsan_unaligned_volatile_read##bytes)                                                              \
    STORE(__tsan_write##bytes, bytes)                                                                        \
    STORE(__tsan_unaligned_write##bytes, bytes)                                                              \
    STORE(__tsan_volatile_write##bytes, bytes)                                                               \
    STORE(__tsan_unaligned_volatile_write##bytes, bytes)                                                     \
    STORE(__tsan_read_write##bytes, bytes)                                                                   \
    STORE(__tsan_unaligned_read_write##bytes, bytes)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
LOAD(__tsan_vptr_read)
LOAD(__tsan_func_entry)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_exit(void);
void __tsan_func_exit(void) { ptsan_stores_settle(); }
void __tsan_vptr_update(void **to, void *value);
void __tsan_vptr_update(void **to, void *value) { (void)value, storing(to, sizeof value); }
void __tsan_read_range(void *from, size_t bytes);
void __tsan_read_range(void *from, size_t bytes) { (void)from, (void)bytes, ptsan_stores_settle(); }
void __tsan_write_range(void *to, size_t bytes);
void __tsan_write_range(void *to, size_t bytes) { storing(to, bytes); }

void *__tsan_memset(void *to, int byte, size_t bytes);
void *__tsan_memset(void *to, int byte, size_t bytes) { return ptsan_stores_memset(to, byte, bytes); }
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return ptsan_stores_memmove(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return ptsan_stores_memmove(to, from, bytes); }

/* Atomic operations, always of the strongest order. Operands of 16 bytes are left out: code that
 * has them does not link. */
#define FETCH(bits, name)                                                                                    \
    uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t *, uint##bits##_t, int);       \
    uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t *at, uint##bits##_t by,        \
                                                      int order) {                                           \
        (void)order, ptsan_stores_settle();                                                                  \
        uint##bits##_t old = __atomic_fetch_##name(at, by, __ATOMIC_SEQ_CST);                                \
        tell((uintptr_t)at, sizeof *at, true);                                                               \
        return old;                                                                                          \
    }
#define COMPARE(bits, name)                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile uint##bits##_t *, uint##bits##_t *,           \
                                                      uint##bits##_t, int, int);                             \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile uint##bits##_t *at, uint##bits##_t *expected, \
                                                      uint##bits##_t value, int order, int otherwise) {      \
        (void)order, (void)otherwise, ptsan_stores_settle();                                                 \
        bool done =                                                                                          \
            __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
        if (done) {                                                                                          \
            tell((uintptr_t)at, sizeof *at, true);                                                           \
        }                                                                                                    \
        return done;                                                                                         \
    }
#define ATOMICS(bits)                                                                                        \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *, int);                         \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order) {                \
        (void)order, ptsan_stores_settle();                                                                  \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                        \
    }                                                                                                        \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *, uint##bits##_t, int);                        \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order) {         \
        (void)order, ptsan_stores_settle();                                                                  \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                       \
        tell((uintptr_t)at, sizeof *at, false);                                                              \
    }                                                                                                        \
    uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *, uint##bits##_t, int);           \
    uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *at, uint##bits##_t value,         \
                                                  int order) {                                               \
        (void)order, ptsan_stores_settle();                                                                  \
        uint##bits##_t old = __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                               \
        tell((uintptr_t)at, sizeof *at, true);                                                               \
        return old;                                                                                          \
    }                                                                                                        \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *, uint##bits##_t,     \
                                                              uint##bits##_t, int, int);                     \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                               \
        volatile uint##bits##_t *at, uint##bits##_t expected, uint##bits##_t value, int order,               \
        int otherwise) {                                                                                     \
        __tsan_atomic##bits##_compare_exchange_strong(at, &expected, value, order, otherwise);               \
        return expected;                                                                                     \
    }                                                                                                        \
    FETCH(bits, add)                                                                                         \
    FETCH(bits, sub)                                                                                         \
    FETCH(bits, and)                                                                                         \
    FETCH(bits, or)                                                                                          \
    FETCH(bits, xor)                                                                                         \
    FETCH(bits, nand)
#define SIZE(bits)                                                                                           \
    COMPARE(bits, strong)                                                                                    \
    COMPARE(bits, weak)                                                                                      \
    ATOMICS(bits)
SIZE(8)
SIZE(16)
SIZE(32)
SIZE(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order) {
    (void)order, ptsan_stores_settle();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order) { (void)order, ptsan_stores_settle(); }
