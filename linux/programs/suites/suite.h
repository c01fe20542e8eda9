/* Common parts of suites of cases (docs/suites.md). A suite is a static program for process 1. Its
 * cases are functions: each runs one round, brackets its operations by begin() and end(), and
 * returns their number. Each case runs once to warm up, and then ROUNDS times. The results are
 * printed at the end, when nothing is measured any more:
 *
 *   CASES NUMBER                                                          how many lines follow
 *   CASE INDEX NAME UNIT spans N operations N tables N counts N N N       counts of the time-stamp
 *                                                                         counter, for each round
 *   LEFT NAME REASON                                                      a case that could not run
 *
 * The words `cases=NAME,NAME` and `rounds=N` of the kernel's command line run a part of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARKS_OF_PROGRAM MARKS16(0) MARKS16(16) MARKS16(32) MARKS4(48) MARKS4(52) MARKS4(56) MARKS(60) MARKS(61) MARKS(62)
#include "../marks.h"

#define PAGE 4096ul
#define MIB (1ul << 20)

enum { MOST_ROUNDS = 9, MOST_CASES = REPORT };

struct suite_case {
    const char *name;
    /* The thing that a value is for. */
    const char *unit;
    /* Returns the number of operations, 0 if the case cannot run. */
    long (*round)(void);
};

/* The measurements of the round, in memory that child processes share. */
static struct measured {
    unsigned long long started, counts;
    long spans;
    /* Table pages at the most, beyond those before the case; -1 where no round has looked. */
    long tables, tables_before;
    int warms_up;
} *measured;

static int current, rounds = 3;
static const char *why_not;

static void fail(const char *what) {
    printf("FAIL %s: %s\n", what, strerror(errno));
    fflush(stdout);
    end_machine();
    reboot(RB_POWER_OFF);
    exit(1);
}

/* The operations begin. */
__attribute__((noinline)) static void begin(void) {
    measured->spans++;
    mark(current, 0);
    measured->started = counter();
}

/* The operations have ended. */
__attribute__((noinline)) static void end(void) {
    measured->counts += counter() - measured->started;
    mark(current, 1);
}

/* Table pages of all processes, as the kernel says. */
static long table_pages(void) {
    char text[4096], *line;
    /* Linux counts by CPU, and sums up when asked to. */
    int refresh = open("/proc/sys/vm/stat_refresh", O_RDONLY);
    if (refresh >= 0) {
        (void)!read(refresh, text, 1);
        close(refresh);
    }
    int file = open("/proc/meminfo", O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    text[bytes > 0 ? bytes : 0] = 0;
    line = strstr(text, "PageTables:");
    return line ? atol(line + strlen("PageTables:")) / 4 : 0;
}

/* Here a case has the most memory mapped. Only a round that warms up looks. */
static inline void most(void) {
    if (!measured->warms_up)
        return;
    long tables = table_pages() - measured->tables_before;
    if (tables > measured->tables)
        measured->tables = tables;
}

static inline void *map_at(void *at, size_t size, int rights, int flags, int file) {
    void *memory = mmap(at, size, rights, flags | (at ? MAP_FIXED : 0), file, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

/* Maps memory, writes each page, drops it by itself and reads it again, and unmaps the memory. */
static inline void drop_pages(size_t size, int flags, int file, char after) {
    char *memory = map_at(0, size, PROT_READ | PROT_WRITE, flags, file);
    for (size_t at = 0; at < size; at += PAGE) {
        volatile char *page = memory + at;
        *page = 7;
        madvise((void *)page, PAGE, MADV_DONTNEED);
        if (*page != after)
            fail("a page has changed");
    }
    munmap(memory, size);
}

/* Private memory without a file, where the kernel puts it or at a place. */
static inline char *anonymous(void *at, size_t size) {
    return map_at(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* A free place that begins at a multiple of SPAN: Linux 6.1 chooses none by itself, and has no
 * large pages at its ends. */
static inline char *place(size_t size) {
    char *memory = map_at(0, size + SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    munmap(memory, size + SPAN);
    return (char *)(((unsigned long)memory + SPAN - 1) & ~(SPAN - 1));
}

static inline void write_each(char *memory, size_t size, size_t stride) {
    for (size_t at = 0; at < size; at += stride)
        *(volatile char *)(memory + at) = 1;
}

static inline void read_each(const char *memory, size_t size, size_t stride) {
    for (size_t at = 0; at < size; at += stride)
        (void)*(const volatile char *)(memory + at);
}

/* Waits for a child's end. */
static inline void reap(pid_t child) {
    if (child < 0)
        fail("fork");
    if (waitpid(child, 0, 0) != child)
        fail("waitpid");
}

/* Children that end at once, one after the other; the number of operations. */
static inline long forks(int times) {
    for (int i = 0; i < times; i++) {
        begin();
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        reap(child);
        end();
    }
    return times;
}

static inline void *end_at_once(void *argument) { return argument; }

/* Threads that end at once, one after the other; the number of operations. */
static inline long threads(int times) {
    for (int i = 0; i < times; i++) {
        pthread_t thread;
        begin();
        if (pthread_create(&thread, 0, end_at_once, 0))
            fail("pthread_create");
        pthread_join(thread, 0);
        end();
    }
    return times;
}

/* A file of so many bytes in memory; all pages are written. */
static inline int file_of(size_t size) {
    static const char page[PAGE] = {1};
    int file = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        fail("/tmp/file");
    unlink("/tmp/file");
    for (size_t at = 0; at < size; at += PAGE)
        if (write(file, page, PAGE) != PAGE)
            fail("write");
    return file;
}

/* Whether a list of names, separated by commas and ended by a space, has a name. */
static int is_in(const char *list, const char *name) {
    size_t length = strlen(name);
    for (;; list = strchr(list, ',') + 1) {
        if (strncmp(list, name, length) == 0 && (list[length] == 0 || strchr(", \n", list[length])))
            return 1;
        size_t word = strcspn(list, ", \n");
        if (list[word] != ',')
            return 0;
    }
}

/* Runs the cases, prints the results and ends the machine. */
static void run_suite(const struct suite_case *cases, int number) {
    static struct result {
        long spans, operations, tables;
        unsigned long long counts[MOST_ROUNDS];
        const char *left;
    } results[MOST_CASES];
    static char line[4096];
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    mkdir("/tmp", 0755);
    mount("tmpfs", "/tmp", "tmpfs", 0, 0);
    measured = map_at(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    int file = open("/proc/cmdline", O_RDONLY);
    if (file < 0 || read(file, line, sizeof line - 1) < 0)
        fail("/proc/cmdline");
    close(file);
    const char *list = strstr(line, "cases="), *words = strstr(line, "rounds=");
    if (words && atoi(words + strlen("rounds=")) > 0)
        rounds = atoi(words + strlen("rounds="));
    if (rounds > MOST_ROUNDS)
        rounds = MOST_ROUNDS;
    int chosen = 0;
    for (int c = 0; c < number && c < MOST_CASES; c++) {
        if (list && !is_in(list + strlen("cases="), cases[c].name))
            continue;
        chosen++;
        current = c;
        for (int round = -1; round < rounds; round++) {
            *measured = (struct measured){.warms_up = round < 0, .tables = -1};
            if (round < 0)
                measured->tables_before = table_pages();
            marks = round >= 0;
            long operations = cases[c].round();
            marks = 0;
            if (operations == 0) {
                results[c].left = why_not;
                break;
            }
            if (round < 0) {
                results[c].tables = measured->tables;
                continue;
            }
            results[c].counts[round] = measured->counts;
            results[c].spans = measured->spans;
            results[c].operations = operations;
        }
    }
    /* A line of its own, whatever the firmware has left on the serial port. */
    printf("\nCASES %d\n", chosen);
    for (int c = 0; c < number && c < MOST_CASES; c++) {
        struct result *result = &results[c];
        if (result->left)
            printf("LEFT %s %s\n", cases[c].name, result->left);
        if (result->operations == 0)
            continue;
        printf("CASE %d %s %s spans %ld operations %ld tables %ld counts", c, cases[c].name, cases[c].unit, result->spans,
               result->operations, result->tables);
        for (int round = 0; round < rounds; round++)
            printf(" %llu", result->counts[round]);
        printf("\n");
    }
    marks = 1;
    mark(REPORT, 0);
    fflush(stdout);
#ifdef BEFORE_END
    BEFORE_END;
#endif
    end_machine();
    reboot(RB_POWER_OFF);
}
