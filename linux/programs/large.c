/* Process 1: what memory costs that the kernel may map by large pages, in counts of the time-stamp
 * counter. As faults.c, it marks its operations, and ends the machine. Where a case says so, the
 * program asks for large pages (MADV_HUGEPAGE). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include "marks.h"

#define PAGE 4096ul

enum { ROUNDS = 5, FORKS = 4 };
/* In the order of the counter's. */
enum { TOUCH, TOUCH_ADVISED, TOUCH_SPARSE, FORK_EXIT, FORK_EXIT_ADVISED, FORK_WRITE };

/* Memory that begins at a multiple of SPAN. */
struct memory {
    char *whole, *first;
    size_t size;
};

static struct memory map(size_t size, int advised) {
    struct memory memory = {.size = size};
    memory.whole = mmap(0, size + SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory.whole == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    memory.first = (char *)(((unsigned long)memory.whole + SPAN - 1) & ~(SPAN - 1));
    /* Fails if the kernel has no large pages: then there are none. */
    if (advised)
        madvise(memory.whole, size + SPAN, MADV_HUGEPAGE);
    return memory;
}

static void touch(struct memory memory, size_t stride) {
    for (size_t at = 0; at < memory.size; at += stride)
        *(volatile char *)(memory.first + at) = 1;
}

static void unmap(struct memory memory) { munmap(memory.whole, memory.size + SPAN); }

/* Counts of a page that is touched in 128 MiB, mapping and unmapping included. */
static unsigned long long touched(int what, size_t stride) {
    size_t size = 128ul << 20;
    mark(what, 0);
    unsigned long long begin = counter();
    struct memory memory = map(size, what == TOUCH_ADVISED);
    touch(memory, stride);
    unmap(memory);
    unsigned long long all = counter() - begin;
    mark(what, 1);
    return all / (size / stride);
}

/* Counts of fork, exit and wait with 64 MiB that were written. With FORK_WRITE the child writes a
 * byte of every SPAN. */
static unsigned long long forked(int what) {
    struct memory memory = map(64ul << 20, what == FORK_EXIT_ADVISED);
    touch(memory, PAGE);
    unsigned long long begin = counter();
    for (int loop = 0; loop < FORKS; loop++) {
        mark(what, 0);
        pid_t child = fork();
        if (child == 0) {
            if (what == FORK_WRITE)
                touch(memory, SPAN);
            _exit(0);
        }
        waitpid(child, 0, 0);
        mark(what, 1);
    }
    unsigned long long all = counter() - begin;
    unmap(memory);
    return all / FORKS;
}

int main(void) {
    touched(TOUCH, PAGE);
    forked(FORK_WRITE);
    marks = 1;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned long long all = touched(TOUCH, PAGE), advised = touched(TOUCH_ADVISED, PAGE);
        unsigned long long sparse = touched(TOUCH_SPARSE, SPAN), fork = forked(FORK_EXIT);
        unsigned long long fork_advised = forked(FORK_EXIT_ADVISED), writes = forked(FORK_WRITE);
        printf("RESULT touch-128m %llu touch-128m-advised %llu touch-128m-sparse %llu fork-exit-64m %llu "
               "fork-exit-64m-advised %llu fork-write-64m %llu\n",
               all, advised, sparse, fork, fork_advised, writes);
    }
    mark(REPORT, 0);
    fflush(stdout);
    end_machine();
    reboot(RB_POWER_OFF);
    return 0;
}
