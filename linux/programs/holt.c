/* Process 1: Robin Holt's test of 2004. 128 children of a fork each read one page in each of 32
 * places that are one table's span apart, and end. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"

enum { CHILDREN = 128, FAULTS = 32 };

int main(void) {
    const size_t span = 2ul << 20;
    volatile char *memory = mmap(0, span * FAULTS, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    unsigned long long begin = counter();
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child < 0)
            return 2;
        if (child == 0) {
            for (int fault = 0; fault < FAULTS; fault++)
                if (memory[fault * span])
                    _exit(1);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 3;
    }
    printf("HOLT %d children, %llu counts each\n", CHILDREN, (counter() - begin) / CHILDREN);
    return 0;
}
