/* Process 1: threads of one space on all CPUs. Each has a region that it maps anew again and again,
 * so that its tables and pages go to others, while all read each other's; makes pages read-only
 * while others write to them; and forks while others write. Whatever a CPU's TLB has kept shows as
 * a value of an earlier round, or of another region, or as one that changes where nobody may write.
 * `tables=N` on the command line says how many leaf tables are made in all. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, TABLES = 16, PAGE = 4096, ROUND_BITS = 26 };
/* What one table of x86-64 and of PAE maps. */
#define SPAN (2ul << 20)

typedef volatile unsigned word;

static unsigned long tables = 20000;
static char *region[THREADS];
/* No page of a region holds an older round than this. */
static _Atomic unsigned oldest[THREADS];
static _Atomic int bad, running;
static word *written, *counted;

static void read_command_line(void) {
    static char text[1024];
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    int file = open("/proc/cmdline", O_RDONLY);
    if (file >= 0 && read(file, text, sizeof text - 1) > 0) {
        char *found = strstr(text, "tables=");
        if (found)
            tables = strtoul(found + 7, 0, 10);
    }
}

static void wrong(int what) {
    int none = 0;
    atomic_compare_exchange_strong(&bad, &none, what);
}

/* The page of a region under table i; its place in the table is the same in all rounds. */
static word *page(int of, int i) {
    return (word *)(region[of] + i * SPAN + (of * 37 + i) % 512 * PAGE);
}

/* Reads a region, which others may be mapping anew. */
static void look(unsigned of) {
    for (int i = 0; i < TABLES; i++) {
        unsigned least = atomic_load(&oldest[of]);
        unsigned value = *page(of, i);
        if (value && (value >> ROUND_BITS != of || (value & ((1u << ROUND_BITS) - 1)) < least))
            wrong(1);
    }
}

static void *walker(void *argument) {
    int me = (int)(long)argument;
    unsigned rounds = tables / TABLES / THREADS;
    for (unsigned round = 1; round <= rounds && !atomic_load(&bad); round++) {
        /* Takes tables and pages away from all CPUs, and leaves the addresses usable. */
        char *at = mmap(region[me], SPAN * TABLES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (at != region[me])
            wrong(2);
        atomic_store(&oldest[me], round);
        for (int i = 0; i < TABLES; i++) {
            /* Mostly nobody has looked, and the page comes with the write. */
            if (i == (int)(round % TABLES) && *page(me, i))
                wrong(3);
            *page(me, i) = (unsigned)me << ROUND_BITS | round;
        }
        look((me + round) % THREADS);
    }
    atomic_fetch_sub(&running, 1);
    return 0;
}

/* Writes as long as the others work. A write that is not allowed is made again. */
static void again(int signal) { (void)signal; }

static void *writer(void *argument) {
    (void)argument;
    while (atomic_load(&running)) {
        ++*written;
        ++*counted;
    }
    return 0;
}

static void pause_a_little(void) {
    for (volatile int i = 0; i < 2000; i++)
        ;
}

/* Nobody writes to what is read-only, and nobody but a child itself to its memory. */
static void *changer(void *argument) {
    (void)argument;
    for (int round = 0; atomic_load(&running) && !atomic_load(&bad); round++) {
        if (mprotect((void *)written, PAGE, PROT_READ))
            wrong(4);
        unsigned before = *written;
        pause_a_little();
        if (*written != before)
            wrong(5);
        if (mprotect((void *)written, PAGE, PROT_READ | PROT_WRITE))
            wrong(6);
        if (round % 8 == 0) {
            pid_t child = fork();
            if (child == 0) {
                before = *counted;
                for (int i = 0; i < 20; i++) {
                    pause_a_little();
                    if (*counted != before)
                        _exit(1);
                }
                _exit(0);
            }
            int status = 0;
            if (child < 0 || waitpid(child, &status, 0) != child || status)
                wrong(7);
        }
        usleep(20000);
    }
    return 0;
}

int main(void) {
    read_command_line();
    signal(SIGSEGV, again);
    written = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    counted = written + PAGE / sizeof *written;
    running = THREADS;
    pthread_t thread[THREADS + 2];
    for (int i = 0; i < THREADS; i++) {
        region[i] = mmap(0, SPAN * TABLES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (region[i] == MAP_FAILED)
            wrong(8);
    }
    for (int i = 0; i < THREADS + 2; i++)
        if (pthread_create(&thread[i], 0, i < THREADS ? walker : i == THREADS ? writer : changer, (void *)(long)i))
            wrong(9);
    for (int i = 0; i < THREADS + 2; i++)
        pthread_join(thread[i], 0);
    printf("WALKED %lu tables, %s\n", tables, bad ? "wrong" : "right");
    if (bad)
        printf("the first: %d\n", bad);
    return bad != 0;
}
