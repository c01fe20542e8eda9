/* Symptom: incremental collection by mprotect and SIGSEGV costs more than it saves.
 * Cure: another barrier (in the compiler, or soft-dirty bits). Huge pages make it worse: the first
 * mprotect of a page splits them.
 * Threads: bdwgc/bdwgc#265, bdwgc/bdwgc#433 */
#include "complaint.h"

#define HEAP (16 * MIB)

static void written(int signal, siginfo_t *where, void *unused) {
    (void)signal, (void)unused;
    char *page = (char *)((uintptr_t)where->si_addr & -PAGE);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_sigaction = written, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    volatile char *heap = map(HEAP);
    touch(heap, HEAP);
    for (unsigned cycle = 0; cycle < 10; cycle++) {
        if (!is_cured(count, arguments))
            mprotect((void *)heap, HEAP, PROT_READ);
        for (unsigned object = 0; object < 500; object++)
            heap[(object * 7919ul + cycle) % (HEAP / PAGE) * PAGE] = 2;
    }
    return 0;
}
