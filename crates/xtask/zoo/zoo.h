/* Awkward cases of memory management: each is a function that a process runs and ends with. */
#ifndef ZOO_H
#define ZOO_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
/* What one leaf table maps. */
#define TABLE (512 * PAGE)
/* What one table above the leaves maps. */
#define GIB (512 * TABLE)
#define MIB (256 * PAGE)

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)

/* Newer than some C libraries. */
#define ADVICE_COLD 20
#define ADVICE_PAGEOUT 21
#define ADVICE_POPULATE_READ 22
#define ADVICE_POPULATE_WRITE 23
#define ADVICE_DONTNEED_LOCKED 24
#define ADVICE_COLLAPSE 25
#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE 103
#define DONTUNMAP 4

/* Adds a case to the list. `reason` says why a recording cannot tell all, if so. */
void add_case(const char *name, void (*run)(void), const char *reason);

#define CASE_BUT(name, reason)                                                         \
    static void name(void);                                                            \
    __attribute__((constructor)) static void add_##name(void) {                        \
        add_case(#name, name, reason);                                                 \
    }                                                                                  \
    static void name(void)
#define CASE(name) CASE_BUT(name, NULL)

/* Says that something failed; the process ends with status 1. The case goes on. */
void complain(const char *where, int line, const char *what);
#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            complain(__func__, __LINE__, #condition);                                  \
        }                                                                              \
    } while (0)

/* Maps anonymous memory anywhere. */
char *map(size_t bytes, int prot, int flags);
/* The same at a multiple of what a leaf table maps, with room for neither neighbour below it. */
char *aligned(size_t bytes);
/* Maps over `at`. */
char *map_over(char *at, size_t bytes, int prot, int flags, int file);
/* A place where nothing lies. */
char *nowhere(size_t bytes);
/* Opens a memory file, or an ordinary one. */
int memory_file(size_t bytes);
int plain_file(const char *name, size_t bytes);
/* Writes or reads a byte each `step` bytes. */
void write_each(volatile char *at, size_t bytes, size_t step);
void read_each(volatile char *at, size_t bytes, size_t step);
void write_pages(char *at, size_t bytes);
void read_pages(char *at, size_t bytes);
char *move(char *from, size_t old, size_t new, int flags, char *to);
/* Forks a child that ends at once: its end counts the tables that fork has copied. */
void fork_once(void);
/* Ends the process at a signal. */
void end_at(int signal_number);

#endif
