/* The parts of the IOMMU layer that its page tables use. */
#ifndef IOMMU_H
#define IOMMU_H

#include <linux/types.h>

#define IOMMU_READ 1
#define IOMMU_WRITE 2
#define IOMMU_CACHE 4
#define IOMMU_NOEXEC 8
#define IOMMU_MMIO 16
#define IOMMU_PRIV 32

/* The addresses that the driver collects before it waits. */
struct iommu_iotlb_gather {
    bool queued;
};

static inline bool iommu_iotlb_gather_queued(struct iommu_iotlb_gather *gather) {
    return gather && gather->queued;
}

#endif
