/* The marks of a program's operations for QEMU's plugin (kernels/tools/counter): an instruction
 * without effect says which case begins, and another one which ends. A program has 63 cases at the
 * most, numbered from 0, and six unless it says so. Those of faults.c and large.c, and their
 * operations, are also listed in linux/comparison/src/cases.rs; suites (suites/suite.h) print
 * their own. */
#include "arch.h"

/* What one table of x86-64 and of PAE maps. */
#define SPAN (2ul << 20)

/* The mark after which the plugin writes its counts. */
enum { REPORT = 63 };

/* An instruction that says which case begins (0) or ends (1). */
#define MARK(what, ends)                                                                                      \
    case (what)*2 + (ends):                                                                                   \
        __asm__ volatile(MARKS_WITH : : "i"((what)*2 + (ends)));                                              \
        break;
#define MARKS(what) MARK(what, 0) MARK(what, 1)
#define MARKS4(from) MARKS(from) MARKS((from) + 1) MARKS((from) + 2) MARKS((from) + 3)
#define MARKS16(from) MARKS4(from) MARKS4((from) + 4) MARKS4((from) + 8) MARKS4((from) + 12)

/* The cases of a program: code for more of them would change what its fork costs. */
#ifndef MARKS_OF_PROGRAM
#define MARKS_OF_PROGRAM MARKS4(0) MARKS(4) MARKS(5)
#endif

static int marks;

static inline void mark(int what, int ends) {
    if (!marks)
        return;
    switch (what * 2 + ends) {
        MARKS_OF_PROGRAM
        MARKS(REPORT)
    }
}
