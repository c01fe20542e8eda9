/* Names that io-pgtable-arm.c expects of the kernel, for the host. */
#ifndef TYPES_H
#define TYPES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint32_t u32;
typedef uint64_t u64, phys_addr_t, dma_addr_t;
typedef int64_t s64;
typedef unsigned gfp_t;

#define BIT(n) (1ul << (n))
#define GENMASK_ULL(high, low) ((~0ull >> (63 - (high))) & (~0ull << (low)))
#define SZ_4K 0x1000ul
#define SZ_16K 0x4000ul
#define SZ_64K 0x10000ul
#define SZ_2M 0x200000ul
#define SZ_32M 0x2000000ul
#define SZ_512M 0x20000000ul
#define SZ_1G 0x40000000ul
#define PAGE_SIZE SZ_4K
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define DIV_ROUND_UP(n, by) (((n) + (by) - 1) / (by))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define min_t(type, a, b) min((type)(a), (type)(b))
#define ilog2(n) (63 - __builtin_clzll(n))
#define __ffs(n) ((unsigned long)__builtin_ctzll(n))
#define __fls(n) ((unsigned long)ilog2(n))
#define container_of(at, type, member) ((type *)((char *)(at)-offsetof(type, member)))
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define __maybe_unused __attribute__((unused))

/* A warning is a mistake of the test: its uses are correct. */
bool warned(bool condition, int line);
#define WARN_ON(condition) warned(!!(condition), __LINE__)
#define VM_BUG_ON(condition) ((void)WARN_ON(condition))
#define pr_err(...) ((void)0)
#define dev_err(device, ...) ((void)(device))

/* Tables: pages of the test's memory, where pointers are physical addresses. */
#define GFP_KERNEL 0
#define GFP_ATOMIC 0
#define __GFP_ZERO 0
#define __GFP_HIGHMEM 0
struct device;
struct page;
struct page *alloc_pages_node(int node, gfp_t gfp, int order);
void free_pages(unsigned long at, int order);
#define __free_pages(page, order) free_pages((unsigned long)(page), order)
#define dev_to_node(device) ((void)(device), 0)
#define page_address(page) ((void *)(page))
#define get_order(bytes) ((bytes) <= PAGE_SIZE ? 0 : ilog2((bytes)-1) - 11)
#define virt_to_phys(at) ((phys_addr_t)(at))
#define __pa(at) ((phys_addr_t)(at))
#define __va(at) ((void *)(at))
#define kmalloc(bytes, gfp) malloc(bytes)
#define kfree(at) free(at)

/* The walker is coherent, so nothing is cleaned for it. */
enum { DMA_TO_DEVICE };
#define dma_map_single(device, at, bytes, direction) ((void)(device), virt_to_phys(at))
#define dma_unmap_single(device, at, bytes, direction) ((void)(device))
#define dma_mapping_error(device, at) 0
#define dma_sync_single_for_device(device, at, bytes, direction) ((void)(device), (void)(at))
#define wmb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define dma_wmb() wmb()
#define cmpxchg64_relaxed(at, old, new)                                                        \
    ({                                                                                         \
        __typeof__(*(at)) was = (old);                                                         \
        __atomic_compare_exchange_n(at, &was, new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        was;                                                                                   \
    })

#endif
