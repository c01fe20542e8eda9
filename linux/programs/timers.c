/* Process 1, or any process of Linux: clocks by number, timers that send signals, policies by which
 * tasks take turns, limits that the superuser may exceed. Every answer here is Linux's: the program
 * ends with status 0 there, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

#define MILLI 1000000l
#define SECOND 1000000000ll

static volatile sig_atomic_t signals, last_code, last_value, last_id, last_overrun;

static void note(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    signals++;
    last_code = info->si_code;
    last_value = info->si_value.sival_int;
    last_id = info->si_timerid;
    last_overrun = info->si_overrun;
}

static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, 0);
    signals = 0;
}

static long long now(clockid_t clock) {
    struct timespec at = {0, 0};
    if (clock_gettime(clock, &at))
        return -1;
    return at.tv_sec * SECOND + at.tv_nsec;
}

/* Waits, whatever signals come. */
static void rest(long nanos) {
    long long end = now(CLOCK_MONOTONIC) + nanos;
    while (now(CLOCK_MONOTONIC) < end) {
        struct timespec while_it_lasts = {0, MILLI};
        nanosleep(&while_it_lasts, 0);
    }
}

/* Whether so many signals come, in ten seconds: the machine may be slow. */
static int come(int count) {
    for (int i = 0; i < 10000 && signals < count; i++)
        rest(MILLI);
    return signals >= count;
}

/* Computes for so long a time of this process's. */
static void compute(long nanos) {
    long long end = now(CLOCK_PROCESS_CPUTIME_ID) + nanos;
    while (now(CLOCK_PROCESS_CPUTIME_ID) < end)
        for (volatile int i = 0; i < 1000; i++)
            ;
}

static void clocks(void) {
    struct timespec at;
    clockid_t own;
    /* Clocks 8 and 9 need a clock that keeps running when the machine is off. */
    for (int clock = 0; clock < 8; clock++)
        ANSWERS(0, clock_gettime(clock, &at));
    ANSWERS(EINVAL, clock_gettime(10, &at));
    ANSWERS(0, clock_gettime(CLOCK_TAI, &at));
    ANSWERS(EINVAL, clock_gettime(12, &at));
    ANSWERS(EINVAL, clock_gettime(1 << 30, &at));
    ANSWERS(EINVAL, clock_gettime(-1, &at));
    ANSWERS(EINVAL, clock_gettime((clockid_t)(~(1u << 28) << 3 | 2), &at));
    ANSWERS(EINVAL, syscall(SYS_clock_gettime, 12, (void *)8));
    ANSWERS(EFAULT, syscall(SYS_clock_gettime, 0, (void *)8));
    ANSWERS(EINVAL, clock_getres(12, &at));
    ANSWERS(0, clock_getres(CLOCK_MONOTONIC, 0));
    compute(30 * MILLI);
    long long process = now(CLOCK_PROCESS_CPUTIME_ID), real = now(CLOCK_MONOTONIC);
    check("its own time", process >= 30 * MILLI && process <= real + MILLI);
    check("its thread's", now(CLOCK_THREAD_CPUTIME_ID) > 0);
    check("its clock", clock_getcpuclockid(0, &own) == 0 && now(own) >= process);
    check("its clock by number", clock_getcpuclockid(getpid(), &own) == 0 && now(own) >= process);
    check("its thread's clock", pthread_getcpuclockid(pthread_self(), &own) == 0 && now(own) > 0);
    rest(50 * MILLI);
    check("a wait costs no time of its own", now(CLOCK_PROCESS_CPUTIME_ID) - process < 45 * MILLI);
    pid_t child = fork();
    if (child == 0)
        _exit(now(CLOCK_PROCESS_CPUTIME_ID) < 20 * MILLI ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    check("a child begins at 0", status == 0);
    struct timespec moment = {0, 1000};
    check("to sleep by a coarse clock", clock_nanosleep(CLOCK_MONOTONIC_COARSE, 0, &moment, 0) == EOPNOTSUPP);
    check("to sleep by the thread's clock", clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &moment, 0) == EINVAL);
    check("to sleep by no clock", clock_nanosleep(12, 0, &moment, 0) == EINVAL);
    check("to sleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, 0) == 0);
}

static void intervals(void) {
    struct itimerval set = {{0, 20000}, {0, 20000}}, none = {{0, 0}, {0, 0}}, left;
    handle(SIGALRM);
    ANSWERS(EINVAL, setitimer(3, &set, 0));
    ANSWERS(EINVAL, getitimer(3, &left));
    set.it_value.tv_usec = 1000000;
    ANSWERS(EINVAL, setitimer(ITIMER_REAL, &set, 0));
    set.it_value.tv_usec = 20000;
    ANSWERS(0, setitimer(ITIMER_REAL, &set, 0));
    ANSWERS(0, getitimer(ITIMER_REAL, &left));
    check("what is left", left.it_interval.tv_usec == 20000 && left.it_value.tv_sec == 0 && left.it_value.tv_usec > 0 && left.it_value.tv_usec <= 20000);
    check("again and again", come(3) && last_code == SI_KERNEL);
    pid_t child = fork();
    if (child == 0)
        _exit(getitimer(ITIMER_REAL, &left) || left.it_value.tv_sec || left.it_value.tv_usec || left.it_interval.tv_usec);
    int status = -1;
    while (waitpid(child, &status, 0) < 0)
        ;
    check("a child has none", status == 0);
    ANSWERS(0, setitimer(ITIMER_REAL, &none, &left));
    check("the interval was", left.it_interval.tv_usec == 20000);
    signals = 0;
    rest(40 * MILLI);
    check("no more", signals == 0);
    check("no alarm", alarm(100) == 0);
    check("an alarm is one", alarm(0) == 100);
    check("none again", alarm(0) == 0);
    handle(SIGALRM);
    alarm(1);
    check("it ends a wait", pause() == -1 && errno == EINTR && signals == 1);
    handle(SIGPROF);
    set.it_interval.tv_usec = 0;
    ANSWERS(0, setitimer(ITIMER_PROF, &set, 0));
    rest(10 * MILLI);
    check("not while it waits", signals == 0);
    compute(60 * MILLI);
    check("once it has computed", signals == 1);
    handle(SIGVTALRM);
    ANSWERS(0, setitimer(ITIMER_VIRTUAL, &set, 0));
    for (volatile long long i = 0; signals == 0 && i < 3000000000l; i++)
        ;
    check("in user mode", signals == 1);
    /* One that ends a process. */
    child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        set.it_value.tv_usec = 1;
        setitimer(ITIMER_REAL, &set, 0);
        for (;;)
            pause();
    }
    waitpid(child, &status, 0);
    check("an alarm that is not handled", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

static void made(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value = {.sival_int = 77}};
    struct itimerspec set = {{0, 10 * MILLI}, {0, 10 * MILLI}}, none = {{0, 0}, {0, 0}}, left;
    timer_t timer, other;
    handle(SIGUSR1);
    ANSWERS(EINVAL, timer_create(12, &event, &timer));
    ANSWERS(EOPNOTSUPP, timer_create(CLOCK_MONOTONIC_COARSE, &event, &timer));
    event.sigev_signo = 65;
    ANSWERS(EINVAL, timer_create(CLOCK_REALTIME, &event, &timer));
    event.sigev_signo = SIGUSR1;
    ANSWERS(0, timer_create(CLOCK_MONOTONIC, &event, &timer));
    ANSWERS(0, timer_gettime(timer, &left));
    check("it is not set", left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
    ANSWERS(EINVAL, timer_gettime((timer_t)99, &left));
    set.it_value.tv_nsec = SECOND;
    ANSWERS(EINVAL, timer_settime(timer, 0, &set, 0));
    set.it_value.tv_nsec = 10 * MILLI;
    ANSWERS(0, timer_settime(timer, 0, &set, 0));
    check("again and again", come(2) && last_code == SI_TIMER && last_value == 77);
    check("by its number", last_id == (int)(intptr_t)timer);
    sigset_t mask, before;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, &before);
    signals = 0;
    rest(80 * MILLI);
    check("one waits", signals == 0);
    sigprocmask(SIG_SETMASK, &before, 0);
    check("and stands for others", signals == 1 && last_overrun >= 3);
    check("as is told", timer_getoverrun(timer) >= 0);
    ANSWERS(0, timer_settime(timer, 0, &none, &left));
    check("what was set", left.it_interval.tv_nsec == 10 * MILLI);
    pid_t child = fork();
    if (child == 0)
        _exit(timer_gettime(timer, &left) == -1 && errno == EINVAL ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    check("a child has none", status == 0);
    /* By the clock itself. */
    signals = 0;
    long long end = now(CLOCK_MONOTONIC) + 20 * MILLI;
    struct itimerspec at = {{0, 0}, {end / SECOND, end % SECOND}};
    ANSWERS(0, timer_settime(timer, TIMER_ABSTIME, &at, 0));
    check("at a time", come(1) && now(CLOCK_MONOTONIC) >= end);
    ANSWERS(0, timer_delete(timer));
    ANSWERS(EINVAL, timer_delete(timer));
    /* Without a signal, and of the process's own time. */
    event.sigev_notify = SIGEV_NONE;
    ANSWERS(0, timer_create(CLOCK_REALTIME, &event, &other));
    ANSWERS(0, timer_settime(other, 0, &set, 0));
    signals = 0;
    rest(50 * MILLI);
    check("it says nothing", signals == 0);
    ANSWERS(0, timer_delete(other));
    event.sigev_notify = SIGEV_SIGNAL;
    ANSWERS(0, timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &other));
    set.it_interval.tv_nsec = 0;
    set.it_value.tv_nsec = 30 * MILLI;
    ANSWERS(0, timer_settime(other, 0, &set, 0));
    compute(100 * MILLI);
    check("once it has computed", signals == 1);
    ANSWERS(0, timer_delete(other));
    /* Taken by a call. */
    siginfo_t info;
    struct timespec shortly = {0, 20 * MILLI}, longer = {1, 0};
    ANSWERS(0, timer_create(CLOCK_MONOTONIC, &event, &other));
    sigprocmask(SIG_BLOCK, &mask, &before);
    ANSWERS(EAGAIN, sigtimedwait(&mask, &info, &shortly));
    ANSWERS(0, timer_settime(other, 0, &set, 0));
    signals = 0;
    check("a signal that is taken", sigtimedwait(&mask, &info, &longer) == SIGUSR1 && info.si_code == SI_TIMER && info.si_value.sival_int == 77);
    ANSWERS(0, timer_delete(other));
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, 0);
    child = fork();
    if (child == 0)
        _exit(0);
    check("one that is ignored by default", sigwaitinfo(&mask, &info) == SIGCHLD && info.si_pid == child);
    waitpid(child, 0, 0);
    struct itimerval alarm_set = {{0, 0}, {0, 20000}};
    handle(SIGALRM);
    setitimer(ITIMER_REAL, &alarm_set, 0);
    ANSWERS(EINTR, sigtimedwait(&mask, &info, &longer));
    check("another signal ends the wait", signals == 1);
    sigprocmask(SIG_SETMASK, &before, 0);
    check("no handler ran", signals == 1);
    handle(SIGUSR1);
    /* An ignored signal is lost, and the timer goes on. */
    signal(SIGUSR1, SIG_IGN);
    ANSWERS(0, timer_create(CLOCK_MONOTONIC, &event, &other));
    set.it_interval.tv_nsec = set.it_value.tv_nsec = 10 * MILLI;
    ANSWERS(0, timer_settime(other, 0, &set, 0));
    rest(40 * MILLI);
    handle(SIGUSR1);
    check("signals that are not ignored any more", come(1));
    ANSWERS(0, timer_delete(other));
}

static void turns(void) {
    struct sched_param param = {0};
    struct timespec length;
    int status = -1, ends[2];
    ANSWERS(EINVAL, sched_setscheduler(0, SCHED_FIFO, &param));
    ANSWERS(EINVAL, sched_setscheduler(0, 4, &param));
    ANSWERS(EINVAL, sched_setscheduler(-1, SCHED_OTHER, &param));
    ANSWERS(ESRCH, sched_setscheduler(99999, SCHED_OTHER, &param));
    ANSWERS(EINVAL, syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, 0));
    param.sched_priority = 100;
    ANSWERS(EINVAL, sched_setscheduler(0, SCHED_RR, &param));
    param.sched_priority = 7;
    ANSWERS(EINVAL, sched_setscheduler(0, SCHED_OTHER, &param));
    ANSWERS(EINVAL, sched_setparam(0, &param));
    ANSWERS(0, sched_setscheduler(0, SCHED_FIFO, &param));
    check("FIFO", sched_getscheduler(0) == SCHED_FIFO);
    param.sched_priority = 0;
    check("its rank", sched_getparam(0, &param) == 0 && param.sched_priority == 7);
    param.sched_priority = 9;
    ANSWERS(0, sched_setparam(0, &param));
    ANSWERS(0, sched_rr_get_interval(0, &length));
    check("no turns", length.tv_sec == 0 && length.tv_nsec == 0);
    pid_t child = fork();
    if (child == 0) {
        param.sched_priority = 0;
        _exit(sched_getscheduler(0) == SCHED_FIFO && sched_getparam(0, &param) == 0 && param.sched_priority == 9 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    check("a child inherits them", status == 0);
    ANSWERS(0, sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param));
    check("RR", sched_getscheduler(0) == (SCHED_RR | SCHED_RESET_ON_FORK));
    ANSWERS(0, sched_rr_get_interval(0, &length));
    check("turns", length.tv_sec == 0 && length.tv_nsec > 0);
    /* A child without a rank does not run before its parent waits; with one CPU. */
    check("a pipe", pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        int own = sched_getscheduler(0);
        write(ends[1], "c", 1);
        _exit(own == SCHED_OTHER ? 0 : 1);
    }
    if (sysconf(_SC_NPROCESSORS_ONLN) == 1) {
        compute(50 * MILLI);
        sched_yield();
    }
    write(ends[1], "p", 1);
    waitpid(child, &status, 0);
    check("a child that does not inherit", status == 0);
    char order[3] = "";
    check("the order", read(ends[0], order, 2) == 2 && (sysconf(_SC_NPROCESSORS_ONLN) > 1 || !strcmp(order, "pc")));
    close(ends[0]);
    close(ends[1]);
    param.sched_priority = 0;
    ANSWERS(0, sched_setscheduler(0, SCHED_BATCH, &param));
    check("BATCH", sched_getscheduler(0) == SCHED_BATCH);
    ANSWERS(0, sched_setscheduler(0, SCHED_OTHER, &param));
}

static void limits(void) {
    for (int what = 0; what < 3; what++) {
        int kinds[] = {RLIMIT_RSS, RLIMIT_NPROC, RLIMIT_MEMLOCK};
        struct rlimit before, lower, after;
        ANSWERS(0, getrlimit(kinds[what], &before));
        lower = (struct rlimit){4096, before.rlim_max};
        ANSWERS(0, setrlimit(kinds[what], &lower));
        ANSWERS(0, getrlimit(kinds[what], &after));
        check("it is kept", after.rlim_cur == 4096 && after.rlim_max == before.rlim_max);
        ANSWERS(0, setrlimit(kinds[what], &before));
    }
}

/* A child that computes longer than it may: the soft limit is a signal, the hard one the end. */
static void processor_limit(void) {
    struct rlimit before, after;
    ANSWERS(0, getrlimit(RLIMIT_CPU, &before));
    ANSWERS(EINVAL, setrlimit(RLIMIT_CPU, &(struct rlimit){2, 1}));
    pid_t child = fork();
    if (child == 0) {
        handle(SIGXCPU);
        if (setrlimit(RLIMIT_CPU, &(struct rlimit){1, 2}))
            _exit(1);
        while (!signals)
            ;
        /* Ticks that Linux counts are a little more than the time. */
        if (now(CLOCK_PROCESS_CPUTIME_ID) < SECOND * 9 / 10 || now(CLOCK_PROCESS_CPUTIME_ID) > 2 * SECOND)
            _exit(2);
        if (getrlimit(RLIMIT_CPU, &after) || after.rlim_cur != 2 || after.rlim_max != 2)
            _exit(3);
        for (;;)
            ;
    }
    int status;
    struct rusage used;
    check("the hard limit", wait4(child, &status, 0, &used) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check("after 2 seconds", used.ru_utime.tv_sec >= 1 && used.ru_utime.tv_sec <= 3);
    ANSWERS(0, getrlimit(RLIMIT_CPU, &after));
    check("of the child alone", after.rlim_cur == before.rlim_cur);
}

/* Groups of the superuser, who may have any. */
static void groups(void) {
    gid_t before[100], some[] = {70000, 3, 9}, back[100];
    int count = getgroups(100, before);
    check("as before", count >= 0 && getgroups(0, 0) == count);
    ANSWERS(EINVAL, getgroups(-1, back));
    if (geteuid() != 0)
        return;
    ANSWERS(0, setgroups(3, some));
    check("in order", getgroups(0, 0) == 3 && getgroups(100, back) == 3 && back[0] == 3 && back[1] == 9 && back[2] == 70000);
    ANSWERS(EINVAL, getgroups(2, back));
    ANSWERS(EFAULT, getgroups(3, (void *)8));
    ANSWERS(EFAULT, setgroups(3, (void *)8));
    ANSWERS(EINVAL, setgroups(65537, back));
    pid_t child = fork();
    if (child == 0)
        _exit(getgroups(100, back) == 3 && setgroups(0, 0) == 0 && getgroups(0, 0) == 0 ? 0 : 1);
    int status;
    check("a child has them", waitpid(child, &status, 0) == child && status == 0 && getgroups(0, 0) == 3);
    ANSWERS(0, setgroups(count, before));
}

/* The time since 1970 is another one than that since boot, and calls that wait until a time go by
 * the clock that they name. */
static void wall_clock(void) {
    enum { YEAR_2020 = 1577836800 };
    long long boot = now(CLOCK_MONOTONIC), wall = now(CLOCK_REALTIME), before = time(0);
    check("this century", wall / SECOND > YEAR_2020 && boot < wall - YEAR_2020 * SECOND / 2);
    check("one time", before - wall / SECOND <= 1 && now(CLOCK_REALTIME_COARSE) >= wall - SECOND);
    struct stat facts;
    int file = open("/dev/shm/wall", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        file = open("/wall", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check("a new file", write(file, "x", 1) == 1 && fstat(file, &facts) == 0 && llabs(facts.st_mtime - before) <= 2);
    close(file);
    clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
    for (int i = 0; i < 2; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        struct itimerspec when = {{0, 0}, {0, 1}}, left;
        timer_t timer;
        long long begin = now(clocks[i]);
        handle(SIGUSR1);
        check("a timer of a clock", timer_create(clocks[i], &event, &timer) == 0);
        /* A second of the year 1970, or of the boot: it has passed. */
        check("the past", timer_settime(timer, TIMER_ABSTIME, &when, 0) == 0 && come(1));
        when.it_value.tv_sec = begin / SECOND + 1000;
        check("the future", timer_settime(timer, TIMER_ABSTIME, &when, 0) == 0 && timer_gettime(timer, &left) == 0);
        check("it is left", labs(left.it_value.tv_sec - 1000) <= 5);
        timer_delete(timer);
        int descriptor = timerfd_create(clocks[i], TFD_NONBLOCK);
        uint64_t expired;
        when.it_value.tv_sec = begin / SECOND + 1000;
        check("a descriptor's future", timerfd_settime(descriptor, TFD_TIMER_ABSTIME, &when, 0) == 0 &&
            read(descriptor, &expired, 8) < 0 && timerfd_gettime(descriptor, &left) == 0 &&
            labs(left.it_value.tv_sec - 1000) <= 5);
        when.it_value = (struct timespec){0, 1};
        check("a descriptor's past", timerfd_settime(descriptor, TFD_TIMER_ABSTIME, &when, 0) == 0 &&
            read(descriptor, &expired, 8) == 8 && expired == 1);
        close(descriptor);
        begin = now(clocks[i]);
        struct timespec end = {(begin + 20 * MILLI) / SECOND, (begin + 20 * MILLI) % SECOND};
        check("a sleep until", clock_nanosleep(clocks[i], TIMER_ABSTIME, &end, 0) == 0 && now(clocks[i]) >= begin + 20 * MILLI);
        uint32_t word = 7;
        begin = now(clocks[i]);
        end = (struct timespec){(begin + 20 * MILLI) / SECOND, (begin + 20 * MILLI) % SECOND};
        int wait = FUTEX_WAIT_BITSET | (i == 0 ? FUTEX_CLOCK_REALTIME : 0);
        ANSWERS(ETIMEDOUT, syscall(SYS_futex, &word, wait, 7, &end, 0, FUTEX_BITSET_MATCH_ANY));
        check("it waits until then", now(clocks[i]) >= begin + 20 * MILLI);
    }
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    clocks();
    intervals();
    made();
    turns();
    limits();
    processor_limit();
    groups();
    wall_clock();
    printf("TIMERS %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
