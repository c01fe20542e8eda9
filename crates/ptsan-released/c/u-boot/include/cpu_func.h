/* Declarations for cache_v8.c on the host. Names are those of U-Boot; test.c has the functions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef uint64_t phys_addr_t;
typedef unsigned long ulong;
typedef bool (*pte_walker_cb_t)(u64 start, u64 end, int va_bits, int level, void *priv);

#define __weak __attribute__((weak))
#define CONFIG_IS_ENABLED(option) 0
#define IS_ENABLED(option) 0
#define BIT(n) (1ul << (n))
#define BIT_ULL(n) (1ull << (n))
#define GENMASK_ULL(high, low) ((~0ull >> (63 - (high))) & (~0ull << (low)))
#define UL(n) n##ul
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define debug(...) ((void)0)
#define panic(...) (printf(__VA_ARGS__), exit(2))
#define puts(text) printf(text)
#define memset clear_table

/* The code clears only tables, when it takes them. */
void *clear_table(void *to, int byte, size_t bytes);

void set_sctlr(u64 value);
u64 get_sctlr(void);
int current_el(void);
void __asm_switch_ttbr(u64 root);
void __asm_invalidate_tlb_all(void);
void __asm_invalidate_dcache_all(void);
void __asm_flush_dcache_all(void);
int __asm_flush_l3_dcache(void);
void __asm_invalidate_l3_dcache(void);
void __asm_invalidate_l3_icache(void);
void __asm_invalidate_icache_all(void);
void __asm_invalidate_dcache_range(u64 start, u64 end);
void __asm_flush_dcache_range(u64 start, u64 end);

enum dcache_option { DCACHE_OFF = 0 << 2, DCACHE_WRITEBACK = 4 << 2 };

void mmu_set_region_dcache_behaviour(phys_addr_t start, size_t size, enum dcache_option option);
void mmu_change_region_attr(phys_addr_t start, size_t size, u64 attrs);
void mmu_map_region(phys_addr_t start, u64 size, bool emergency);
void invalidate_icache_all(void);
void mmu_setup(void);
void hang(void);

#define CR_M (1 << 0)
#define CR_C (1 << 2)
#define CR_I (1 << 12)
