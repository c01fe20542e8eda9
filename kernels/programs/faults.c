/* Process 1: what page faults, fork and exec cost, in counts of the time-stamp counter. Under QEMU's
 * -icount shift=0 these are instructions. The machine ends through the exit device, as it would
 * under Linux with the same program. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

/* What one table of x86-64 and of PAE maps. */
#define SPAN (2ul << 20)

/* Counts of a read fault in a child: `faults` of them, `stride` bytes apart. */
static unsigned long long read_faults(unsigned long stride, int loops, int faults) {
    size_t size = stride * faults + 2 * SPAN;
    char *memory = mmap(0, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long long *sum = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || sum == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    volatile char *first = (char *)(((unsigned long)memory + SPAN - 1) & ~(SPAN - 1));
    for (int loop = 0; loop < loops; loop++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned long long begin = __rdtsc();
            for (int i = 0; i < faults; i++)
                (void)first[i * stride];
            *sum += __rdtsc() - begin;
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
    unsigned long long result = *sum / loops / faults;
    munmap(memory, size);
    munmap(sum, 4096);
    return result;
}

/* Counts of fork, exit and wait of a program with `megabytes` of memory that it has written. */
static unsigned long long fork_exit(int loops, int megabytes) {
    size_t size = (size_t)megabytes << 20;
    char *memory = size ? mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
    if (size)
        memset(memory, 1, size);
    unsigned long long begin = __rdtsc();
    for (int loop = 0; loop < loops; loop++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, 0, 0);
    }
    unsigned long long all = __rdtsc() - begin;
    if (size)
        munmap(memory, size);
    return all / loops;
}

static unsigned long long fork_exec(int loops) {
    unsigned long long begin = __rdtsc();
    for (int loop = 0; loop < loops; loop++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/init", "/init", "x", (char *)0);
            _exit(1);
        }
        waitpid(child, 0, 0);
    }
    return (__rdtsc() - begin) / loops;
}

int main(void) {
    if (getpid() != 1)
        return 0; /* the child of fork_exec */
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    read_faults(SPAN, 16, 32);
    fork_exit(16, 0);
    unsigned long long spread = read_faults(SPAN, 128, 32), dense = read_faults(4096, 128, 32);
    unsigned long long forks = fork_exit(64, 0), large = fork_exit(16, 16), execs = fork_exec(32);
    printf("RESULT stride %llu same-table %llu forkexit %llu forkexit16M %llu forkexec %llu\n", spread, dense,
           forks, large, execs);
    fflush(stdout);
    iopl(3);
    outb(0x10, 0xf4);
    reboot(RB_POWER_OFF);
    return 0;
}
