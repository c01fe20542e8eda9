/* No CPU has an erratum: the first of two alternatives stays. */
#ifndef ALTERNATIVE_H
#define ALTERNATIVE_H

#include <asm/cpufeature.h>
#include <asm/insn.h>
#include <xen/stringify.h>
#include <xen/types.h>

#define ALTERNATIVE(instruction, ...) instruction

#endif
