/* A platform with 40-bit addresses that maps regions while it runs. */
#define PLAT_XLAT_TABLES_DYNAMIC 1
#define PLAT_PHY_ADDR_SPACE_SIZE (1ull << 40)
#define PLAT_VIRT_ADDR_SPACE_SIZE (1ull << 39)
#define MAX_XLAT_TABLES 8
#define MAX_MMAP_REGIONS 16
#define HW_ASSISTED_COHERENCY 1
#define WARMBOOT_ENABLE_DCACHE_EARLY 1
#define ENABLE_ASSERTIONS 1
#define ENABLE_RME 0
#define ENABLE_BTI 0
#define CACHE_WRITEBACK_GRANULE 64
#define CACHE_WRITEBACK_SHIFT 6
