/* Process 1: one thread maps a page anew in each round, in one place or where the kernel puts it,
 * and unmaps it, while threads on the other CPUs read it and write to it. Whatever the way in which
 * these CPUs are made to forget what was unmapped:
 *
 * 1. A page that was mapped from before a read until after it shows its round. A CPU that kept a
 *    translation reads an older one.
 * 2. Writes to a page that is gone go nowhere, or end in a signal. The frames come back in a place
 *    that no other thread knows: nothing but zeroes may be there. They also go to a child process,
 *    which looks at its own pages.
 *
 * `rounds=N` and `cpus=N` on the command line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"

enum { MOST = 8, PAGE = 4096, PAGES = 4, WORDS = PAGE / sizeof(unsigned) };
#define SIZE (PAGES * PAGE)
#define POISON 0xdeadbeefu

typedef volatile unsigned word;

static int threads = 4, rounds = 300;
static _Atomic int bad, ended;
/* The page, and its round; 0 while there is none. */
static word *_Atomic current;
static _Atomic unsigned shown;
static word *place, *secret;
static __thread sigjmp_buf *no_page;
static _Atomic unsigned long reads, faults;

static void wrong(int what) {
    int none = 0;
    atomic_compare_exchange_strong(&bad, &none, what);
}

static void no_page_there(int signal) {
    (void)signal;
    if (no_page)
        siglongjmp(*no_page, 1);
    _exit(3);
}

static word *map(word *at) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    word *memory = mmap((void *)at, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        wrong(1);
        exit(1);
    }
    return memory;
}

/* Keeps a place from being given out. */
static void reserve(word *at) {
    if (mmap((void *)at, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        wrong(7);
}

static void unmap(word *memory) { munmap((void *)memory, SIZE); }

/* Waits until each reader has gone round once more, or for a while. */
static void let_others_in(void) {
    unsigned long before = atomic_load(&reads) + atomic_load(&faults);
    for (int i = 0; i < 1000 && atomic_load(&reads) + atomic_load(&faults) < before + threads; i++)
        give_way();
}

static void *reader(void *argument) {
    long me = (long)argument;
    sigjmp_buf here;
    while (!atomic_load(&ended) && !atomic_load(&bad)) {
        if (atomic_load(&reads) % 64 == 0)
            give_way();
        if (sigsetjmp(here, 1)) {
            atomic_fetch_add(&faults, 1);
            /* The next page, without signals by the thousand. */
            no_page = 0;
            while (!atomic_load(&shown) && !atomic_load(&ended))
                give_way();
            continue;
        }
        unsigned before = atomic_load(&shown);
        word *page = atomic_load(&current);
        no_page = &here;
        unsigned found = *page;
        unsigned after = atomic_load(&shown);
        if (before && before == after && found != before)
            wrong(2);
        /* The page may be gone by now. */
        for (int i = 1; i < PAGES; i++)
            page[i * WORDS + me] = POISON;
        no_page = 0;
        atomic_fetch_add(&reads, 1);
    }
    return 0;
}

/* Whether memory that nobody else has stays zero. */
static void use_alone(word *at) {
    word *memory = map(at);
    for (int times = 0; times < 2; times++) {
        for (int i = 0; i < PAGES; i++)
            for (int w = 0; w < MOST; w++) {
                if (memory[i * WORDS + w])
                    wrong(3);
                /* The first time it gets its frame. */
                memory[i * WORDS + w] = 0;
            }
        let_others_in();
    }
    if (at)
        reserve(at);
    else
        unmap(memory);
}

/* A process that uses frames for a while. */
static pid_t another(void) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 50 && !bad; i++)
            use_alone(0);
        _exit(bad != 0);
    }
    return child;
}

int main(void) {
    const char *text = getenv("cpus");
    if (text && atoi(text) > 0 && atoi(text) <= MOST)
        threads = atoi(text);
    if ((text = getenv("rounds")))
        rounds = atoi(text);
    struct sigaction action = {.sa_handler = no_page_there, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    place = map(0);
    secret = map(0);
    current = place;
    reserve(secret);
    pthread_t thread[MOST];
    for (long i = 1; i < threads; i++)
        if (pthread_create(&thread[i], 0, reader, (void *)i))
            wrong(4);
    pid_t child = 0;
    for (unsigned round = 1; round <= (unsigned)rounds && !atomic_load(&bad); round++) {
        word *page = map(round % 2 ? place : 0);
        for (int i = 0; i < PAGES; i++)
            page[i * WORDS] = round;
        atomic_store(&current, page);
        atomic_store(&shown, round);
        let_others_in();
        atomic_store(&shown, 0);
        unmap(page);
        use_alone(secret);
        if (round % 256 == 1) {
            int status = 0;
            if (child && (waitpid(child, &status, 0) != child || status))
                wrong(5);
            child = another();
        }
    }
    atomic_store(&ended, 1);
    for (int i = 1; i < threads; i++)
        pthread_join(thread[i], 0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status)
        wrong(6);
    printf("UNMAPPED %d rounds of %d threads, %lu reads, %lu faults, %s\n", rounds, threads, reads, faults,
           bad ? "wrong" : "right");
    if (bad)
        printf("the first: %d\n", bad);
    return bad != 0;
}
