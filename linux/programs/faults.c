/* Process 1: what page faults, fork and exec cost, in counts of the time-stamp counter. Under
 * QEMU's -icount shift=0 these are instructions. The machine ends through the exit device, as it
 * would under Linux with the same program.
 *
 * Each operation stands between two marks: instructions that do nothing, and that QEMU's plugin
 * (kernels/tools/counter) knows. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "marks.h"

enum { ROUNDS = 5, FAULTS = 32 };
/* In the order of the counter's. */
enum { NEW_TABLE, SAME_TABLE, CYCLE, FORK_EXIT, FORK_EXIT_16M, FORK_EXEC };

struct faults {
    unsigned long long fault, cycle;
};

/* Counts of a read fault in a child, `FAULTS` of them, `stride` bytes apart; and with the child's
 * fork, exit and wait. */
static struct faults read_faults(unsigned long stride, int loops) {
    int what = stride == SPAN ? NEW_TABLE : SAME_TABLE;
    size_t size = stride * FAULTS + 2 * SPAN;
    char *memory = mmap(0, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long long *sum = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || sum == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    volatile char *first = (char *)(((unsigned long)memory + SPAN - 1) & ~(SPAN - 1));
    *sum = 0;
    unsigned long long before = counter();
    for (int loop = 0; loop < loops; loop++) {
        if (what == NEW_TABLE)
            mark(CYCLE, 0);
        pid_t child = fork();
        if (child == 0) {
            /* So that the table is there. */
            if (what == SAME_TABLE)
                (void)first[FAULTS * stride];
            mark(what, 0);
            unsigned long long begin = counter();
            for (int i = 0; i < FAULTS; i++)
                (void)first[i * stride];
            unsigned long long all = counter() - begin;
            mark(what, 1);
            *sum += all;
            _exit(0);
        }
        waitpid(child, 0, 0);
        if (what == NEW_TABLE)
            mark(CYCLE, 1);
    }
    unsigned long long cycles = counter() - before;
    struct faults result = {*sum / loops / FAULTS, cycles / loops / FAULTS};
    munmap(memory, size);
    munmap(sum, 4096);
    return result;
}

/* Counts of fork, exit and wait of a program with `megabytes` of memory that it has written. */
static unsigned long long fork_exit(int what, int loops, int megabytes) {
    size_t size = (size_t)megabytes << 20;
    char *memory = size ? mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
    if (size)
        memset(memory, 1, size);
    unsigned long long begin = counter();
    for (int loop = 0; loop < loops; loop++) {
        mark(what, 0);
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, 0, 0);
        mark(what, 1);
    }
    unsigned long long all = counter() - begin;
    if (size)
        munmap(memory, size);
    return all / loops;
}

static unsigned long long fork_exec(int loops) {
    unsigned long long begin = counter();
    for (int loop = 0; loop < loops; loop++) {
        mark(FORK_EXEC, 0);
        pid_t child = fork();
        if (child == 0) {
            execl("/init", "/init", "x", (char *)0);
            _exit(1);
        }
        waitpid(child, 0, 0);
        mark(FORK_EXEC, 1);
    }
    return (counter() - begin) / loops;
}

int main(void) {
    if (getpid() != 1)
        return 0; /* the child of fork_exec */
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    read_faults(SPAN, 16);
    fork_exit(FORK_EXIT, 16, 0);
    marks = 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct faults spread = read_faults(SPAN, 128), dense = read_faults(4096, 128);
        unsigned long long forks = fork_exit(FORK_EXIT, 64, 0), large = fork_exit(FORK_EXIT_16M, 16, 16);
        unsigned long long execs = fork_exec(32);
        printf("RESULT fault-new-table %llu fault-same-table %llu fault-cycle %llu fork-exit %llu "
               "fork-exit-16m %llu fork-exec %llu\n",
               spread.fault, dense.fault, spread.cycle, forks, large, execs);
    }
    mark(REPORT, 0);
    fflush(stdout);
    end_machine();
    reboot(RB_POWER_OFF);
    return 0;
}
