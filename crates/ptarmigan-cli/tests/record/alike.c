/* Calls on mappings, forks, vforks and threads, as many as it says; and page faults.
   alike calls SAID   makes the calls, those that fail among them
   alike reads SAID   reads memory, and forks
   alike faults SAID ROUNDS   touches 16,384 pages in each round
   SAID gets the CPU time of this process in nanoseconds, and its page faults. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, CALLS = 400, THREADS = 4, FORKS = 12 };

static char *map(size_t pages) {
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(9);
    madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
    return at;
}

static void change(void) {
    for (int n = 0; n < CALLS; n++) {
        char *at = map(16);
        memset(at, 1, 16 * PAGE);
        mprotect(at, 8 * PAGE, PROT_READ);
        at = mremap(at + 8 * PAGE, 8 * PAGE, 4 * PAGE, 0) - 8 * PAGE;
        munmap(at, 16 * PAGE);
        /* These fail. */
        munmap(at + 1, PAGE);
        madvise(at, PAGE, 12345);
    }
}

static pthread_barrier_t all;

static void *work(void *none) {
    pthread_barrier_wait(&all);
    change();
    usleep(1000);
    pthread_barrier_wait(&all);
    return none;
}

static void handle(int signal) { (void)signal; }

static void make_calls(void) {
    change();
    /* Signals interrupt forks, which the kernel makes again. */
    struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = { { 0, 3000 }, { 0, 3000 } }, never = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &often, NULL);
    for (int n = 0; n < FORKS; n++) {
        if (fork() == 0) {
            char *wrong[] = { "none", NULL };
            execv("/does/not/exist", wrong);
            /* A look that is not timed, after a call that has made no program. */
            struct rlimit limit;
            getrlimit(RLIMIT_STACK, &limit);
            setrlimit(RLIMIT_STACK, &limit);
            execl("/bin/true", "true", (char *)NULL);
            _exit(8);
        }
        wait(NULL);
        if (vfork() == 0) _exit(0);
        wait(NULL);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, work, NULL);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
}

/* Memory that is only read, that is written, and that is given up in between; then a fork of a
 * fork. */
static void read_and_fork(void) {
    enum { SPAN = 512, SPANS = 32 };
    /* Far from each other, the areas are not joined. */
    char *areas[2];
    for (int n = 0; n < 2; n++) {
        void *at = (void *)(0x1000000000 + n * 0x1000000000);
        areas[n] = mmap(at, (size_t)SPAN * SPANS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (areas[n] == MAP_FAILED) _exit(9);
        madvise(areas[n], (size_t)SPAN * SPANS * PAGE, MADV_NOHUGEPAGE);
    }
    char *read = areas[0], *given_up = areas[1];
    int sum = 0;
    for (int n = 0; n < SPANS; n++) sum += ((volatile char *)read)[n * (size_t)SPAN * PAGE];
    for (int n = 0; n < SPANS; n++) given_up[n * (size_t)SPAN * PAGE] = 1;
    madvise(given_up, (size_t)SPAN * SPANS * PAGE, MADV_DONTNEED);
    for (int n = 0; n < SPANS; n++) sum += ((volatile char *)given_up)[n * (size_t)SPAN * PAGE];
    if (fork() == 0) {
        if (fork() == 0) _exit(sum);
        wait(NULL);
        _exit(0);
    }
    wait(NULL);
}

int main(int arguments, char **argv) {
    int rounds = arguments > 3 ? atoi(argv[3]) : 0;
    if (strcmp(argv[1], "calls") == 0) make_calls();
    if (strcmp(argv[1], "reads") == 0) read_and_fork();
    for (int n = 0; n < rounds; n++) {
        char *at = map(16384);
        for (int page = 0; page < 16384; page++) at[page * PAGE] = 1;
        munmap(at, 16384 * PAGE);
    }
    struct timespec t;
    struct rusage own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    getrusage(RUSAGE_SELF, &own);
    FILE *out = fopen(argv[2], "w");
    fprintf(out, "%.0f %ld\n", t.tv_sec * 1e9 + t.tv_nsec, own.ru_minflt + own.ru_majflt);
    return fclose(out);
}
