/* Names that pgtable.c of KVM for arm64 expects of the kernel, for the host. */
#ifndef TYPES_H
#define TYPES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64, phys_addr_t;

#define BIT(n) (1ull << (n))
#define GENMASK(high, low) ((~0ull >> (63 - (high))) & (~0ull << (low)))
#define FIELD_PREP(mask, value) (((u64)(value) << __builtin_ctzll(mask)) & (mask))
#define FIELD_GET(mask, value) (((value) & (mask)) >> __builtin_ctzll(mask))
#define ALIGN_DOWN(x, to) ((x) & ~((u64)(to) - 1))
#define PAGE_ALIGN(x) ALIGN_DOWN((x) + PAGE_SIZE - 1, PAGE_SIZE)
#define IS_ALIGNED(x, to) (((x) & ((u64)(to) - 1)) == 0)
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define smp_store_release(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)

/* A warning is a mistake of the test: its uses are correct. */
bool warned(bool condition, int line);
#define WARN_ON(condition) warned(!!(condition), __LINE__)
#define WARN_ON_ONCE(condition) WARN_ON(condition)

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096ull
#define PTRS_PER_PTE 512
#define CONFIG_ARM64_4K_PAGES 1
/* 4 levels, which resolve 9 bits each above 12. */
#define ARM64_HW_PGTABLE_LEVEL_SHIFT(level) (9 * (4 - (int)(level)) + 3)
#define ARM64_HW_PGTABLE_LEVELS(bits) (((bits) - 4) / 9)

#endif
