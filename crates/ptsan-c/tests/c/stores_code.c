/* Code under test, compiled with -fsanitize=thread: a store of each kind to `at`. */
#include <stdint.h>
#include <string.h>

struct page {
    uint64_t entries[512];
};

int stores(volatile uint64_t *at, int kind);

int stores(volatile uint64_t *at, int kind) {
    uint64_t expected = 0;
    switch (kind) {
    case 0:
        *at = 7;
        return 1;
    case 1: /* a byte of the entry */
        *((volatile uint8_t *)at + 3) = 7;
        return 1;
    case 2:
        *((volatile uint16_t *)at + 1) = 7;
        return 1;
    case 3:
        *((volatile uint32_t *)at + 1) = 7;
        return 1;
    case 4: /* a load and a store */
        *at |= 2;
        return 1;
    case 5:
        __atomic_store_n(at, 9, __ATOMIC_RELEASE);
        return 1;
    case 6:
        return __atomic_exchange_n(at, 11, __ATOMIC_SEQ_CST) == 9 ? 1 : -1;
    case 7:
        return __atomic_fetch_or(at, 4, __ATOMIC_RELAXED) == 11 ? 1 : -1;
    case 8: /* it fails, and stores nothing */
        return __atomic_compare_exchange_n(at, &expected, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? -1 : 0;
    case 9:
        expected = 15;
        return __atomic_compare_exchange_n(at, &expected, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? 1 : -1;
    case 10: {
        uint64_t value = 21;
        memcpy((void *)(uintptr_t)at, &value, sizeof value);
        return 1;
    }
    case 11:
        memset((void *)(uintptr_t)at, 0, 4096);
        return 1;
    case 12: { /* the compiler copies; clang calls a function that tells of it from version 16 on */
#if defined(__clang__) && __clang_major__ < 16
        return 0;
#endif
        static struct page page;
        *(struct page *)(uintptr_t)at = page;
        return 1;
    }
    case 13: /* 32-bit atomic, on half of an entry */
        return __atomic_fetch_add((volatile uint32_t *)at, 5, __ATOMIC_SEQ_CST) == 0 ? 1 : -1;
    case 14: { /* a load is no store */
        return *at == 5 ? 0 : -1;
    }
    default:
        return -2;
    }
}
