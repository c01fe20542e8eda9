/* A process of 12,000 areas whose thread changes its mappings all the time. Answers each line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { AREAS = 12000, KEPT = 16 };

static char *map(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *work(void *unused) {
    char *kept[KEPT] = {0};
    for (unsigned n = 0;; n++) {
        char **at = &kept[n % KEPT];
        if (*at) munmap(*at, 4096 * (n % 7 + 1));
        *at = map(4096 * ((n + KEPT) % 7 + 1));
        **at = 1;
        usleep(50);
    }
    return unused;
}

int main(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *base = map((size_t)AREAS << 12);
    for (long n = 0; n < AREAS; n++) {
        base[n << 12] = 1;
        if (n % 2) mprotect(base + (n << 12), 4096, PROT_READ);
    }
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("ready");
    char line[16];
    while (fgets(line, sizeof line, stdin)) puts("on");
    return 0;
}
