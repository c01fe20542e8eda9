/* One thread of the host stands for all CPUs: interrupts are off. */
#ifndef ARM64_SYSTEM_H
#define ARM64_SYSTEM_H

#include <asm/arm64/cmpxchg.h>

#undef isb
#undef dsb
#undef dmb
#define isb() ((void)0)
#define dsb(scope) __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define dmb(scope) dsb(scope)
#define local_irq_disable() ((void)0)
#define local_irq_enable() ((void)0)
#define local_save_flags(x) ((x) = 0)
#define local_irq_save(x) local_save_flags(x)
#define local_irq_restore(x) ((void)(x))
static inline int local_irq_is_enabled(void) { return 1; }

#endif
