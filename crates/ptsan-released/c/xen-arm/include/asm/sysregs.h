/* System registers are functions of the test. */
#ifndef SYSREGS_H
#define SYSREGS_H

#include <xen/types.h>
#include <asm/arm64/sysregs.h>

uint64_t read_register(const char *name);
void write_register(const char *name, uint64_t value);

#undef READ_SYSREG64
#undef WRITE_SYSREG64
#undef READ_SYSREG
#undef WRITE_SYSREG
#define READ_SYSREG64(name) read_register(#name)
#define WRITE_SYSREG64(value, name) write_register(#name, value)
#define READ_SYSREG(name) READ_SYSREG64(name)
#define WRITE_SYSREG(value, name) WRITE_SYSREG64(value, name)
#define read_sysreg_par() READ_SYSREG64(PAR_EL1)

#endif
