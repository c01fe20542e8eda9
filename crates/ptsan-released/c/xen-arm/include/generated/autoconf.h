/* The configuration: arm64, 4 CPUs, memory mapped page by page. */
#define CONFIG_ARM 1
#define CONFIG_ARM_64 1
#define CONFIG_64BIT 1
#define CONFIG_NR_CPUS 4
#define CONFIG_HAS_PASSTHROUGH 1
#define CONFIG_HAS_PDX 1
#define CONFIG_ARCH_MAP_DOMAIN_PAGE 1
#define CONFIG_CC_IS_GCC 1
#define CONFIG_GCC_VERSION 120200
