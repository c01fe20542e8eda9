/* The suite `cortenmm-like`: the five operations that the paper on CortenMM measures (SOSP 2025): a
 * mapping that is made, made and touched, touched, removed with its pages, and removed untouched.
 * Four threads on one CPU take turns after each request of four pages. With low contention the
 * requests of each thread have tables of their own, 2 MiB and more from those of others; with high
 * contention requests of all threads lie side by side, and share tables and areas. There is one
 * CPU, so that no lock is waited for: no result of this suite is one of the paper's. */
#include "suite.h"

#include <sched.h>

enum { THREADS = 4, REQUESTS = 64, PAGES = 4 };
#define REQUEST (PAGES * PAGE)

enum operation { MAP, MAP_TOUCH, TOUCH, UNMAP, UNMAP_UNTOUCHED };

static struct {
    enum operation operation;
    int high;
    char *memory;
    pthread_barrier_t barrier;
} shared;

static char *request(long thread, long number) {
    long place = shared.high ? number * THREADS + thread : thread * (long)(2 * SPAN / REQUEST) + number;
    return shared.memory + place * REQUEST;
}

static void *work(void *argument) {
    long thread = (long)argument;
    pthread_barrier_wait(&shared.barrier);
    for (long i = 0; i < REQUESTS; i++) {
        char *at = request(thread, i);
        if (shared.operation == MAP || shared.operation == MAP_TOUCH)
            anonymous(at, REQUEST);
        if (shared.operation == MAP_TOUCH || shared.operation == TOUCH)
            write_each(at, REQUEST, PAGE);
        if (shared.operation == UNMAP || shared.operation == UNMAP_UNTOUCHED)
            munmap(at, REQUEST);
        sched_yield();
    }
    pthread_barrier_wait(&shared.barrier);
    return 0;
}

static long run(enum operation operation, int high) {
    size_t size = THREADS * 2 * SPAN;
    shared.operation = operation;
    shared.high = high;
    if (pthread_barrier_init(&shared.barrier, 0, THREADS + 1))
        fail("pthread_barrier_init");
    pthread_t threads[THREADS];
    for (long thread = 0; thread < THREADS; thread++)
        if (pthread_create(&threads[thread], 0, work, (void *)thread))
            fail("pthread_create");
    /* Behind the stacks of the threads, which would take the place otherwise. */
    shared.memory = place(size);
    if (operation == TOUCH || operation == UNMAP || operation == UNMAP_UNTOUCHED)
        anonymous(shared.memory, size);
    if (operation == UNMAP)
        for (long thread = 0; thread < THREADS; thread++)
            for (long i = 0; i < REQUESTS; i++)
                write_each(request(thread, i), REQUEST, PAGE);
    begin();
    pthread_barrier_wait(&shared.barrier);
    pthread_barrier_wait(&shared.barrier);
    end();
    most();
    for (int thread = 0; thread < THREADS; thread++)
        pthread_join(threads[thread], 0);
    pthread_barrier_destroy(&shared.barrier);
    munmap(shared.memory, size);
    return THREADS * REQUESTS;
}

static long map_low(void) { return run(MAP, 0); }
static long map_high(void) { return run(MAP, 1); }
static long map_touch_low(void) { return run(MAP_TOUCH, 0); }
static long map_touch_high(void) { return run(MAP_TOUCH, 1); }
static long touch_low(void) { return run(TOUCH, 0); }
static long touch_high(void) { return run(TOUCH, 1); }
static long unmap_low(void) { return run(UNMAP, 0); }
static long unmap_high(void) { return run(UNMAP, 1); }
static long unmap_untouched_low(void) { return run(UNMAP_UNTOUCHED, 0); }
static long unmap_untouched_high(void) { return run(UNMAP_UNTOUCHED, 1); }

static const struct suite_case cases[] = {
    {"mmap-low", "request", map_low},
    {"mmap-high", "request", map_high},
    {"mmap_pf-low", "request", map_touch_low},
    {"mmap_pf-high", "request", map_touch_high},
    {"pf-low", "request", touch_low},
    {"pf-high", "request", touch_high},
    {"munmap-low", "request", unmap_low},
    {"munmap-high", "request", unmap_high},
    {"munmap_virt-low", "request", unmap_untouched_low},
    {"munmap_virt-high", "request", unmap_untouched_high},
};

int main(void) { run_suite(cases, sizeof cases / sizeof *cases); }
