/* No CPU has an erratum. */
#include_next <asm/cpufeature.h>
#undef cpus_have_const_cap
#define cpus_have_const_cap(capability) 0
