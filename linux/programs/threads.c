/* Process 1: what programs do with threads and with children that share their memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int bad;

static void check(int right, const char *what) {
    if (!right) {
        printf("wrong: %s\n", what);
        bad = 1;
    }
}

/* Counting under a mutex, thread-local memory, a barrier. */
enum { COUNTERS = 6, TIMES = 20000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static __thread long own;
static long counter, sum;

static void *count(void *argument) {
    own = (long)argument;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TIMES; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    sum += own;
    pthread_mutex_unlock(&mutex);
    return (void *)(own * 2);
}

static void counting(void) {
    pthread_t thread[COUNTERS];
    pthread_barrier_init(&barrier, 0, COUNTERS);
    for (long i = 0; i < COUNTERS; i++)
        check(pthread_create(&thread[i], 0, count, (void *)(i + 1)) == 0, "pthread_create");
    for (long i = 0; i < COUNTERS; i++) {
        void *result = 0;
        check(pthread_join(thread[i], &result) == 0 && result == (void *)((i + 1) * 2), "pthread_join");
    }
    check(counter == COUNTERS * TIMES && sum == COUNTERS * (COUNTERS + 1) / 2, "counting under a mutex");
}

/* A queue with a condition; a wait that times out. */
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int queue, taken;

static void *consume(void *argument) {
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (queue == 0)
            pthread_cond_wait(&filled, &mutex);
        if (queue < 0) {
            pthread_mutex_unlock(&mutex);
            return 0;
        }
        queue--;
        taken++;
        pthread_mutex_unlock(&mutex);
    }
}

static void conditions(void) {
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], 0, consume, 0);
    for (int i = 0; i < 3000; i++) {
        pthread_mutex_lock(&mutex);
        queue++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&mutex);
    }
    for (;;) {
        pthread_mutex_lock(&mutex);
        int rest = queue;
        if (rest == 0)
            queue = -1;
        pthread_mutex_unlock(&mutex);
        if (rest == 0)
            break;
        sched_yield();
    }
    pthread_cond_broadcast(&filled);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], 0);
    check(taken == 3000, "a queue with a condition");
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 20000000;
    if (time.tv_nsec >= 1000000000)
        time.tv_nsec -= 1000000000, time.tv_sec++;
    pthread_mutex_lock(&mutex);
    check(pthread_cond_timedwait(&filled, &mutex, &time) == ETIMEDOUT, "a wait that ends");
    pthread_mutex_unlock(&mutex);
}

/* A mutex that two processes share. */
static void between_processes(void) {
    struct shared {
        pthread_mutex_t mutex;
        long count;
    } *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &kind);
    pid_t child = fork();
    for (int i = 0; i < TIMES; i++) {
        pthread_mutex_lock(&shared->mutex);
        shared->count++;
        pthread_mutex_unlock(&shared->mutex);
    }
    if (child == 0)
        _exit(0);
    int status = 1;
    waitpid(child, &status, 0);
    check(status == 0 && shared->count == 2 * TIMES, "a mutex between processes");
    munmap(shared, 4096);
}

/* Signals to a thread and to the process. */
static _Atomic long caught_by;

static void catch(int signal) {
    (void)signal;
    caught_by = syscall(SYS_gettid);
}

static _Atomic long waiting;

static void *wait_for_signal(void *argument) {
    (void)argument;
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, 0);
    waiting = syscall(SYS_gettid);
    while (!caught_by)
        usleep(1000);
    return 0;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = catch};
    sigaction(SIGUSR1, &action, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    for (int directed = 0; directed < 2; directed++) {
        pthread_t thread;
        caught_by = waiting = 0;
        pthread_create(&thread, 0, wait_for_signal, 0);
        while (!waiting)
            sched_yield();
        if (directed)
            pthread_kill(thread, SIGUSR1);
        else
            kill(getpid(), SIGUSR1);
        pthread_join(thread, 0);
        check(caught_by == waiting, directed ? "a signal to a thread" : "a signal to the process");
    }
    check(getpid() == 1 && syscall(SYS_gettid) == 1, "numbers of the first thread");
}

/* Children: each ends in another way, with other threads about. */
static void *sleep_for_ever(void *argument) {
    (void)argument;
    for (;;)
        pause();
}

static void *wait_on_futex(void *argument) {
    (void)argument;
    static int word;
    for (;;)
        syscall(SYS_futex, &word, 0, 0, 0);
}

static void *spin(void *argument) {
    (void)argument;
    for (volatile int i = 0;; i++)
        ;
}

static pthread_t first;

static void *exit_all(void *argument) {
    (void)argument;
    exit(3);
}

static void *exit_after_first(void *argument) {
    (void)argument;
    pthread_join(first, 0);
    exit(4);
}

static void *execute(void *argument) {
    char *list[] = {"/init", "child", 0};
    (void)argument;
    execv("/init", list);
    _exit(99);
}

static void *fault(void *argument) {
    (void)argument;
    *(volatile int *)8 = 1;
    return 0;
}

static int child_with(void *(*end)(void *), int leave) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        first = pthread_self();
        pthread_create(&thread, 0, sleep_for_ever, 0);
        pthread_create(&thread, 0, wait_on_futex, 0);
        pthread_create(&thread, 0, spin, 0);
        pthread_create(&thread, 0, end, 0);
        if (leave)
            pthread_exit(0);
        for (;;)
            pause();
    }
    int status = -1;
    check(waitpid(child, &status, 0) == child, "the end of a child with threads");
    return status;
}

static void ends(void) {
    check(child_with(exit_all, 0) == 3 << 8, "exit of a thread");
    check(child_with(exit_after_first, 1) == 4 << 8, "exit after the first thread");
    check(child_with(execute, 0) == 5 << 8, "exec of a thread");
    check(child_with(execute, 1) == 5 << 8, "exec of a thread after the first");
    check(child_with(fault, 0) == SIGSEGV, "a fault in a thread");
}

/* vfork and posix_spawn: the child has the parent's memory until its exec. */
static void sharing(void) {
    static volatile int shared;
    pid_t child = vfork();
    if (child == 0) {
        shared = 17;
        _exit(6);
    }
    int status = 0;
    check(shared == 17 && waitpid(child, &status, 0) == child && status == 6 << 8, "vfork");
    char *list[] = {"/init", "child", 0};
    child = vfork();
    if (child == 0) {
        execv("/init", list);
        _exit(99);
    }
    check(waitpid(child, &status, 0) == child && status == 5 << 8, "vfork and exec");
    check(posix_spawn(&child, "/init", 0, 0, list, environ) == 0, "posix_spawn");
    check(waitpid(child, &status, 0) == child && status == 5 << 8, "the child of posix_spawn");
    check(posix_spawn(&child, "/nowhere", 0, 0, list, environ) == ENOENT, "posix_spawn of nothing");
}

/* More than there is room for: an error, and all that were made end. */
static void *pass(void *argument) {
    pthread_mutex_lock(&mutex);
    ++*(long *)argument;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void many(void) {
    enum { MANY = 5000 };
    static pthread_t thread[MANY];
    long passed = 0, all = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int round = 0; round < 3; round++) {
        int made = 0, error = 0;
        pthread_mutex_lock(&mutex);
        while (made < MANY && !(error = pthread_create(&thread[made], &small, pass, &passed)))
            made++;
        pthread_mutex_unlock(&mutex);
        check(error == EAGAIN && made > 1000, "more threads than there is room for");
        for (int i = 0; i < made; i++)
            pthread_join(thread[i], 0);
        all += made;
    }
    check(passed == all, "all threads that were made have run");
}

int main(int count, char **list) {
    if (count > 1 && !strcmp(list[1], "child"))
        _exit(getpid() == syscall(SYS_gettid) ? 5 : 98);
    counting();
    conditions();
    between_processes();
    signals();
    ends();
    sharing();
    many();
    printf("THREADS %s\n", bad ? "wrong" : "right");
    return bad;
}
