/* Symptom: a thread for each request; mmap, munmap and faults of stacks take the time.
 * Cure: threads that stay, smaller stacks, or a larger cache of stacks in glibc.
 * Threads: pika-org/pika#1019, https://rkoucha.fr/tech_corner/stack_consumption.html */
#include "complaint.h"

static void *serve(void *unused) {
    char buffer[3 * PAGE];
    touch(buffer, sizeof buffer);
    return unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16 * MIB);
    for (int batch = 0; batch < 100; batch++) {
        pthread_t thread[8];
        for (int i = 0; i < 8; i++)
            pthread_create(&thread[i], &attributes, serve, 0);
        for (int i = 0; i < 8; i++)
            pthread_join(thread[i], 0);
    }
    return 0;
}
