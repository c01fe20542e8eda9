/* Load: a machine of 128 MiB that is restored from a file four times, mapped privately: each
 * process reads all pages in a random order and writes every fourth. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 32768ul

static int restore(int image) {
    volatile char *guest = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, image, 0);
    unsigned long sum = 0, page = 1;
    if (guest == MAP_FAILED)
        return 1;
    for (unsigned long n = 0; n < PAGES; n++) {
        /* All pages come once: the factor is 1 modulo 4, and the summand is odd. */
        page = (page * 1664525 + 1013904223) % PAGES;
        sum += guest[page * PAGE];
        if (n % 4 == 0)
            guest[page * PAGE + 1] = 2;
    }
    return sum == 0;
}

int main(void) {
    static char page[PAGE];
    int image = fileno(tmpfile()), failed = 0, status;
    memset(page, 1, PAGE);
    for (unsigned long n = 0; n < PAGES; n++)
        if (write(image, page, PAGE) != (ssize_t)PAGE)
            return 1;
    for (int machine = 0; machine < 4; machine++) {
        if (!fork())
            _exit(restore(image));
        wait(&status);
        failed |= status;
    }
    return failed != 0;
}
