/* Shared by programs of complaints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define TABLE (512 * PAGE)
#define MIB (1ul << 20)

/* Whether the program runs cured: with an argument. */
static int is_cured(int count, char **arguments) {
    (void)arguments;
    return count > 1;
}

/* Stops a program that cannot show its complaint here. */
static void *checked(void *memory, const char *what) {
    if (memory == MAP_FAILED || !memory) {
        perror(what);
        exit(1);
    }
    return memory;
}

/* Maps private memory. */
static char *map(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    return checked(mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0), "mmap");
}

/* Maps private memory with its pages, as a process has it that runs for long. */
static char *filled(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    return checked(mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0), "mmap");
}

/* Writes a byte of each page. */
static void touch(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        memory[at] = 1;
}
