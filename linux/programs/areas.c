/* Process 1, or any process of Linux: what calls about one page cost in a space with many areas,
 * and what rights that come back cost, in counts of the time-stamp counter. Under QEMU's -icount
 * shift=0 these are instructions. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch.h"

enum { LOOPS = 200, PAGE = 4096, PAGES = 1024 };
static const int numbers[] = {10, 100, 1000, 8000};

static void *map(void *at, size_t size, int rights) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    void *memory = mmap(at, size, rights, flags, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

/* munmap, mmap at the same place and a write, in the middle of so many areas. */
static unsigned long long one_page(int areas) {
    size_t size = (size_t)areas * 2 * PAGE;
    char *memory = map(0, size, PROT_NONE);
    /* Every second page has other rights: an area each, and one between two of them. */
    for (int i = 0; i < areas; i += 2)
        map(memory + (size_t)i * PAGE, PAGE, PROT_READ | PROT_WRITE);
    munmap(memory + (size_t)areas * PAGE, size - (size_t)areas * PAGE);
    volatile char *page = memory + (size_t)(areas / 4 * 2) * PAGE;
    unsigned long long begin = 0;
    for (int i = 0; i <= LOOPS; i++) {
        /* The first turn makes the tables. */
        if (i == 1)
            begin = counter();
        munmap((void *)page, PAGE);
        map((void *)page, PAGE, PROT_READ | PROT_WRITE);
        *page = 1;
    }
    unsigned long long all = counter() - begin;
    munmap(memory, size);
    return all / LOOPS;
}

/* Takes the right to write from pages and gives it back; then writes each. Counts for a page: the
 * calls, the writes. */
static void rights(void) {
    size_t size = (size_t)PAGES * PAGE;
    volatile char *memory = map(0, size, PROT_READ | PROT_WRITE);
    unsigned long long calls = 0, writes = 0;
    for (int i = 0; i <= LOOPS / 10; i++) {
        unsigned long long before = counter();
        mprotect((void *)memory, size, PROT_READ);
        mprotect((void *)memory, size, PROT_READ | PROT_WRITE);
        unsigned long long between = counter();
        for (int page = 0; page < PAGES; page++)
            memory[(size_t)page * PAGE] = 1;
        if (i > 0) {
            calls += between - before;
            writes += counter() - between;
        }
    }
    int n = LOOPS / 10 * PAGES;
    printf("RIGHTS calls %llu writes %llu\n", calls / n, writes / n);
}

int main(void) {
    /* A line of its own, whatever the firmware has left on the serial port. */
    putchar('\n');
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        printf("AREAS %d: %llu\n", numbers[i], one_page(numbers[i]));
    rights();
    fflush(stdout);
    /* Process 1 of Linux must not end: the machine does. */
    if (getpid() == 1)
        end_machine();
    return 0;
}
