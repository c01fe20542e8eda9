/* The driver, whose instructions are commands to the IOMMU: functions of the test. */
#ifndef AMD_IOMMU_H
#define AMD_IOMMU_H

#include "amd_iommu_types.h"

#define get_zeroed_page(gfp) ((unsigned long)alloc_pages_node(0, gfp, 0))
#define free_page(at) free_pages(at, 0)
#define iommu_virt_to_phys(at) virt_to_phys(at)
#define iommu_phys_to_virt(phys) __va(phys)
#define __sme_set(phys) (phys)
#define __sme_clr(phys) (phys)
int amd_iommu_flush_tlb(struct iommu_domain *domain, u32 pasid);
int amd_iommu_flush_page(struct iommu_domain *domain, u32 pasid, u64 at);
int amd_iommu_domain_set_gcr3(struct iommu_domain *domain, u32 pasid, unsigned long root);
void amd_iommu_domain_update(struct protection_domain *domain);

#endif
