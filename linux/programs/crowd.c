/* Many tasks at once: processes up to the limit, threads up to it, and a thousand of each. All of
   them are there while they wait, are found by their numbers, and are gone afterwards. Arguments:
   the most of each kind (as many as there can be), and how many of both at once (1000). */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 100000

static pid_t pids[MOST];
static pthread_t threads[MOST];
static pid_t tids[MOST];
static int gate[2];
static unsigned long sum;

static void check(int is_right, const char *what, long value) {
    if (!is_right) {
        printf("CROWD wrong: %s: %ld (%s)\n", what, value, strerror(errno));
        exit(1);
    }
}

static void open_gate(void) {
    check(pipe(gate) == 0, "pipe", 0);
}

/* Waits until the gate is open: until its last writer has closed it. */
static void wait_at_gate(void) {
    char c;
    while (read(gate[0], &c, 1) < 0 && errno == EINTR)
        ;
}

/* Makes children that wait; returns how many, and sets errno if there are fewer than wanted. */
static int make_processes(int wanted) {
    for (int i = 0; i < wanted; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            return i;
        if (pids[i] == 0) {
            close(gate[1]);
            wait_at_gate();
            _exit(i % 127);
        }
    }
    return wanted;
}

static void end_processes(int count) {
    int status;
    for (int i = 0; i < count; i++) {
        check(kill(pids[i], 0) == 0, "a child that waits is not found", i);
        if (i % 64 == 0)
            check(waitpid(pids[i], &status, WNOHANG) == 0, "a child that waits has ended", i);
    }
    close(gate[1]);
    /* In another order than they came in. */
    for (int step = 0; step < 7; step++)
        for (int i = step; i < count; i += 7) {
            check(waitpid(pids[i], &status, 0) == pids[i], "wait", i);
            check(WIFEXITED(status) && WEXITSTATUS(status) == i % 127, "status", status);
            check(kill(pids[i], 0) < 0 && errno == ESRCH, "a child that is gone is found", i);
        }
    check(wait(&status) < 0 && errno == ECHILD, "one more child", status);
    close(gate[0]);
}

static void *thread(void *at) {
    *(pid_t *)at = syscall(SYS_gettid);
    wait_at_gate();
    __atomic_fetch_add(&sum, (pid_t *)at - tids, __ATOMIC_SEQ_CST);
    return 0;
}

/* Makes threads that wait; returns how many, and sets errno. */
static int make_threads(int wanted) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    sum = 0;
    for (int i = 0; i < wanted; i++) {
        tids[i] = 0;
        int error = pthread_create(&threads[i], &attributes, thread, &tids[i]);
        if (error) {
            errno = error;
            return i;
        }
    }
    return wanted;
}

static void end_threads(int count) {
    pid_t own = getpid();
    for (int i = 0; i < count; i++) {
        while (!__atomic_load_n(&tids[i], __ATOMIC_SEQ_CST))
            sched_yield();
        check(syscall(SYS_tgkill, own, tids[i], 0) == 0, "a thread that waits is not found", i);
    }
    close(gate[1]);
    for (int i = 0; i < count; i++)
        check(pthread_join(threads[i], 0) == 0, "join", i);
    check(sum == (unsigned long)count * (count - 1) / 2, "threads that ran", sum);
    for (int i = 0; i < count; i++)
        check(syscall(SYS_tgkill, own, tids[i], 0) < 0 && errno == ESRCH, "a thread that is gone is found", i);
}

static void *begin_anew(void *unused) {
    execl("/proc/self/exe", "crowd", "number", (char *)0);
    check(0, "exec", 0);
    return 0;
}

/* A thread that begins another program gets the number of its process, and the other threads
 * end. */
static void number_of_process(void) {
    int status;
    open_gate();
    pid_t child = fork();
    check(child >= 0, "fork", 0);
    if (child == 0) {
        pthread_t last;
        int made = make_threads(20);
        check(made == 20, "threads", made);
        pthread_create(&last, 0, begin_anew, 0);
        pthread_join(last, 0);
        _exit(1);
    }
    close(gate[1]);
    close(gate[0]);
    check(waitpid(child, &status, 0) == child && status == 0, "a thread that begins a program", status);
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "number")) {
        pid_t own = getpid();
        check(syscall(SYS_gettid) == own, "the number of a task that began a program", syscall(SYS_gettid));
        check(syscall(SYS_tgkill, own, own, 0) == 0, "it is not found", own);
        return 0;
    }
    int most = count > 1 ? atoi(words[1]) : MOST, both = count > 2 ? atoi(words[2]) : 1000;
    open_gate();
    int processes = make_processes(most);
    check(processes == most || errno == EAGAIN, "no more processes", processes);
    if (processes < most)
        check(fork() < 0 && errno == EAGAIN, "a process beyond the limit", 0);
    end_processes(processes);

    open_gate();
    int made = make_threads(most);
    check(made == most || errno == EAGAIN, "no more threads", made);
    end_threads(made);
    close(gate[0]);

    /* Processes first: in a child of many threads, the C library writes to all their stacks. */
    open_gate();
    int first = make_processes(both), second = make_threads(both);
    check(first == both && second == both, "of both kinds", first + second);
    for (int i = 0; i < both; i++)
        check(kill(pids[i], 0) == 0, "a child beside threads is not found", i);
    end_threads(both);
    for (int i = 0; i < both; i++) {
        int status;
        check(waitpid(-1, &status, 0) > 0 && WIFEXITED(status), "wait", i);
    }
    number_of_process();
    printf("CROWD right: %d processes, %d threads, %d of both at once\n", processes, made, both);
    return 0;
}
