/* The marks of a program's operations for QEMU's plugin (kernels/counter): an instruction without effect says which case
 * begins, and another one which ends. A program has six cases at the most, numbered from 0; those of a program, and its
 * operations, are also listed in kernels/comparison/src/cases.rs. */
#include "arch.h"

/* What one table of x86-64 and of PAE maps. */
#define SPAN (2ul << 20)

/* The mark after which the plugin writes its counts. */
enum { REPORT = 15 };

/* An instruction that says which case begins (0) or ends (1). */
#define MARK(what, ends)                                                                                      \
    case (what)*2 + (ends):                                                                                   \
        __asm__ volatile(MARKS_WITH : : "i"((what)*2 + (ends)));                                              \
        break;
#define MARKS(what) MARK(what, 0) MARK(what, 1)

static int marks;

static inline void mark(int what, int ends) {
    if (!marks)
        return;
    switch (what * 2 + ends) {
        MARKS(0)
        MARKS(1)
        MARKS(2)
        MARKS(3)
        MARKS(4)
        MARKS(5)
        MARKS(REPORT)
    }
}
