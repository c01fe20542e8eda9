/* Names that io_pgtable_v2.c expects of its driver: tables in the format of x86-64. */
#ifndef AMD_IOMMU_TYPES_H
#define AMD_IOMMU_TYPES_H

#include <linux/io-pgtable.h>

#define BIT_ULL(n) (1ull << (n))
enum { PAGE_MODE_1_LEVEL = 1, PAGE_MODE_2_LEVEL, PAGE_MODE_3_LEVEL, PAGE_MODE_4_LEVEL };
#define IOMMU_PTE_PRESENT(entry) ((entry)&1)
#define IOMMU_PROT_MASK 3
#define IOMMU_PROT_IW 2
#define PM_ADDR_MASK 0xffffffffff000ull
#define PM_LEVEL_INDEX(level, at) ((at) >> (12 + 9 * (level)) & 511)
#define PAGE_SIZE_ALIGN(at, size) ((at) & ~((size)-1))
#define AMD_IOMMU_PGSIZES_V2 (SZ_4K | SZ_2M | SZ_1G)
#define IOMMU_IN_ADDR_BIT_SIZE 48
#define IOMMU_OUT_ADDR_BIT_SIZE 48
#define PD_IOMMUV2_MASK 1
#define cmpxchg64(at, old, new) cmpxchg64_relaxed(at, old, new)

struct iommu_domain {
    int unused;
};

struct amd_io_pgtable {
    struct io_pgtable_cfg pgtbl_cfg;
    struct io_pgtable iop;
    u64 *pgd;
};

struct protection_domain {
    struct iommu_domain domain;
    struct amd_io_pgtable iop;
    unsigned long flags;
};

#define io_pgtable_ops_to_data(at) container_of(io_pgtable_ops_to_pgtable(at), struct amd_io_pgtable, iop)
#define io_pgtable_ops_to_domain(at) container_of(io_pgtable_ops_to_data(at), struct protection_domain, iop)
#define io_pgtable_cfg_to_data(at) container_of(at, struct amd_io_pgtable, pgtbl_cfg)

#endif
