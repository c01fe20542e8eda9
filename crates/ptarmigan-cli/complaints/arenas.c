/* Symptom: virtual memory and page tables of a server grow by an arena for each thread.
 * Cure: MALLOC_ARENA_MAX. Stacks are small, so that they share their tables.
 * Threads: odoo/odoo#42306, youtube/cobalt#508, toyota-connected/ivi-homescreen#610 */
#include "complaint.h"

#define THREADS 48

static pthread_barrier_t all;

static void *serve(void *unused) {
    char *request = checked(malloc(20000), "malloc");
    pthread_barrier_wait(&all);
    touch(request, 20000);
    /* Each thread still has its memory when the last one begins. */
    pthread_barrier_wait(&all);
    free(request);
    return unused;
}

int main(void) {
    pthread_t thread[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64ul << 10);
    pthread_barrier_init(&all, 0, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], &attributes, serve, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], 0);
    return 0;
}
