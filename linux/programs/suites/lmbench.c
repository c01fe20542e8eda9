/* The suite `lmbench-like`: written anew after the descriptions of lmbench's `lat_proc`,
 * `lat_pagefault` and `lat_mmap` (McVoy and Staelin, "lmbench: portable tools for performance
 * analysis", USENIX 1996, and the tools' manual pages). The operations are those; what is counted,
 * and how, is not: no result of this suite is one of lmbench's. */
#include "suite.h"

#define FILE_SIZE (8 * MIB)

/* A process that ends at once. */
static long process_fork(void) { return forks(32); }

static long process_run(const char *program, char *const arguments[], int times) {
    if (access(program, X_OK)) {
        why_not = "there is no shell: /bin/sh is missing";
        return 0;
    }
    for (int i = 0; i < times; i++) {
        begin();
        pid_t child = fork();
        if (child == 0) {
            execv(program, arguments);
            _exit(1);
        }
        reap(child);
        end();
    }
    return times;
}

/* A process that becomes a small program. */
static long process_exec(void) {
    char *const arguments[] = {"/init", 0};
    return process_run("/init", arguments, 16);
}

/* A process that becomes a shell, which runs the small program. */
static long process_shell(void) {
    char *const arguments[] = {"sh", "-c", "/init", 0};
    return process_run("/bin/sh", arguments, 8);
}

/* Reads of pages of a file in an order without a pattern, each once; without the mapping. */
static long page_fault(void) {
    int file = file_of(FILE_SIZE);
    size_t pages = FILE_SIZE / PAGE;
    char *memory = map_at(0, FILE_SIZE, PROT_READ, MAP_SHARED, file);
    begin();
    /* Odd, and so no page comes twice: their number is a power of two. */
    for (size_t i = 0; i < pages; i++)
        (void)*(volatile char *)(memory + i * 1237 % pages * PAGE);
    end();
    most();
    munmap(memory, FILE_SIZE);
    close(file);
    return pages;
}

/* Maps a file, writes to a part of it, and unmaps it. */
static long map_file(size_t end_of_writes, size_t stride) {
    int file = file_of(FILE_SIZE);
    for (int i = 0; i < 16; i++) {
        begin();
        char *memory = map_at(0, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
        write_each(memory, end_of_writes, stride);
        most();
        munmap(memory, FILE_SIZE);
        end();
    }
    close(file);
    return 16;
}

/* Each fourth page of the first tenth; with `-r` one page in 160 KiB of the whole. */
static long map_tenth(void) { return map_file(FILE_SIZE / 10, 4 * PAGE); }
static long map_spread(void) { return map_file(FILE_SIZE, 40 * PAGE); }

static const struct suite_case cases[] = {
    {"fork", "operation", process_fork},    {"exec", "operation", process_exec}, {"shell", "operation", process_shell},
    {"pagefault", "page", page_fault},      {"mmap", "operation", map_tenth},    {"mmap-random", "operation", map_spread},
};

int main(void) {
    /* The small program: it prints nothing, so that no console is measured. */
    if (getpid() != 1)
        return 0;
    run_suite(cases, sizeof cases / sizeof *cases);
}
