/* Process 1, or any process of Linux: files that are waited for: poll, select, epoll, counters,
 * timers. Every answer here is Linux's: the program ends with status 0 there, too. */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static volatile int handled;
static void handler(int number) { handled = number; }

static void counters(void) {
    uint64_t value = 0;
    int file = eventfd(3, EFD_NONBLOCK);
    check("a counter", file >= 0 && read(file, &value, 8) == 8 && value == 3);
    ANSWERS(EAGAIN, read(file, &value, 8));
    ANSWERS(EINVAL, read(file, &value, 7));
    ANSWERS(EINVAL, write(file, &value, 7));
    value = 5;
    check("writes add up", write(file, &value, 8) == 8 && write(file, &value, 8) == 8 && read(file, &value, 16) == 8 && value == 10);
    value = UINT64_MAX;
    ANSWERS(EINVAL, write(file, &value, 8));
    value = UINT64_MAX - 1;
    check("the highest value", write(file, &value, 8) == 8);
    value = 1;
    ANSWERS(EAGAIN, write(file, &value, 8));
    struct pollfd poller = {.fd = file, .events = POLLIN | POLLOUT};
    check("it can be read alone", poll(&poller, 1, 0) == 1 && poller.revents == POLLIN);
    check("taken", read(file, &value, 8) == 8 && value == UINT64_MAX - 1);
    check("it can be written alone", poll(&poller, 1, 0) == 1 && poller.revents == POLLOUT);
    ANSWERS(EFAULT, write(file, (void *)8, 8));
    close(file);
    file = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    check("a semaphore", fcntl(file, F_GETFD) == FD_CLOEXEC && read(file, &value, 8) == 8 && value == 1 && read(file, &value, 8) == 8 && value == 1);
    ANSWERS(EAGAIN, read(file, &value, 8));
    close(file);
    ANSWERS(EINVAL, eventfd(0, 2));
    /* A child wakes the reader; a signal ends its wait. */
    file = eventfd(0, 0);
    pid_t child = fork();
    if (child == 0) {
        value = 7;
        usleep(30000);
        _exit(write(file, &value, 8) != 8);
    }
    check("a read waits", read(file, &value, 8) == 8 && value == 7);
    waitpid(child, 0, 0);
    child = fork();
    if (child == 0) {
        usleep(30000);
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    ANSWERS(EINTR, read(file, &value, 8));
    waitpid(child, 0, 0);
    struct stat facts;
    check("no kind of file", fstat(file, &facts) == 0 && (facts.st_mode & S_IFMT) == 0);
    close(file);
}

static void timers(void) {
    uint64_t value = 0;
    struct itimerspec set = {{0, 0}, {0, 30000000}}, got;
    int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), counter = eventfd(0, 0);
    ANSWERS(EAGAIN, read(file, &value, 8));
    ANSWERS(EINVAL, read(file, &value, 7));
    ANSWERS(EINVAL, write(file, &value, 8));
    check("not set", timerfd_gettime(file, &got) == 0 && !got.it_value.tv_sec && !got.it_value.tv_nsec);
    int64_t begin = now();
    ANSWERS(0, timerfd_settime(file, 0, &set, 0));
    check("set", timerfd_gettime(file, &got) == 0 && got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 30000000 && !got.it_interval.tv_nsec);
    struct pollfd poller = {.fd = file, .events = POLLIN | POLLOUT};
    check("it is waited for", poll(&poller, 1, 0) == 0 && poll(&poller, 1, 10000) == 1 && poller.revents == POLLIN && now() - begin >= 29);
    check("once", read(file, &value, 8) == 8 && value == 1);
    ANSWERS(EAGAIN, read(file, &value, 8));
    set.it_interval.tv_nsec = 10000000, set.it_value.tv_nsec = 1;
    ANSWERS(0, timerfd_settime(file, 0, &set, &got));
    check("it was over", !got.it_value.tv_sec && !got.it_value.tv_nsec);
    usleep(55000);
    check("several times", read(file, &value, 8) == 8 && value >= 5);
    fcntl(file, F_SETFL, 0);
    check("a read waits", read(file, &value, 8) == 8 && value >= 1);
    check("its interval", timerfd_gettime(file, &got) == 0 && got.it_interval.tv_nsec == 10000000 && got.it_value.tv_nsec <= 10000000);
    memset(&set, 0, sizeof set);
    ANSWERS(0, timerfd_settime(file, 0, &set, &got));
    check("what it was", got.it_interval.tv_nsec == 10000000);
    fcntl(file, F_SETFL, O_NONBLOCK);
    ANSWERS(EAGAIN, read(file, &value, 8));
    clock_gettime(CLOCK_MONOTONIC, &set.it_value);
    ANSWERS(0, timerfd_settime(file, TFD_TIMER_ABSTIME, &set, 0));
    check("a time that is over", read(file, &value, 8) == 8 && value == 1);
    set.it_value.tv_nsec = 1000000000;
    ANSWERS(EINVAL, timerfd_settime(file, 0, &set, 0));
    set.it_value.tv_nsec = 0, set.it_value.tv_sec = -1;
    ANSWERS(EINVAL, timerfd_settime(file, 0, &set, 0));
    set.it_value.tv_sec = 1;
    ANSWERS(EINVAL, timerfd_settime(file, 8, &set, 0));
    ANSWERS(EINVAL, timerfd_settime(counter, 0, &set, 0));
    ANSWERS(EBADF, timerfd_settime(99, 0, &set, 0));
    /* C libraries of 32 bits look at the times themselves. */
    if (sizeof(long) == 8) {
        ANSWERS(EFAULT, timerfd_settime(file, 0, (void *)8, 0));
        ANSWERS(EFAULT, timerfd_gettime(file, (void *)8));
    }
    ANSWERS(EINVAL, timerfd_create(77, 0));
    ANSWERS(EINVAL, timerfd_create(CLOCK_MONOTONIC, 1));
    close(file);
    close(counter);
}

static void polls(void) {
    int ends[2], event = eventfd(0, 0), file = open("/dev/null", O_RDWR);
    char byte;
    check("a pipe", pipe(ends) == 0);
    struct pollfd all[4] = {{ends[0], POLLIN}, {ends[1], POLLOUT}, {-1, POLLIN, 99}, {99, POLLIN}};
    check("poll", poll(all, 4, -1) == 2 && all[0].revents == 0 && all[1].revents == POLLOUT && all[2].revents == 0 && all[3].revents == POLLNVAL);
    check("other names", ({ struct pollfd one = {ends[1], POLLWRNORM}; poll(&one, 1, 0) == 1 && one.revents == POLLWRNORM; }));
    (void)!write(ends[1], "x", 1);
    close(ends[1]);
    check("the end", poll(all, 1, 0) == 1 && all[0].revents == (POLLIN | POLLHUP));
    (void)!read(ends[0], &byte, 1);
    check("hung up", poll(all, 1, 0) == 1 && all[0].revents == POLLHUP);
    close(ends[0]);
    check("a pipe", pipe(ends) == 0);
    close(ends[0]);
    all[1].fd = ends[1];
    check("nobody reads", poll(all + 1, 1, 0) == 1 && all[1].revents == (POLLOUT | POLLERR));
    close(ends[1]);
    all[0] = (struct pollfd){file, POLLIN | POLLOUT};
    check("a file", poll(all, 1, -1) == 1 && all[0].revents == (POLLIN | POLLOUT));
    int64_t begin = now();
    check("time goes by", poll(0, 0, 30) == 0 && now() - begin >= 29);
    ANSWERS(EFAULT, poll((void *)8, 1, 0));

    /* select. */
    fd_set reads, writes;
    check("a pipe", pipe(ends) == 0);
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(ends[0], &reads), FD_SET(event, &reads), FD_SET(event, &writes), FD_SET(ends[1], &writes);
    struct timeval wait = {0, 20000};
    check("select", select(ends[1] + 1, &reads, &writes, 0, &wait) == 2 && !FD_ISSET(ends[0], &reads) && !FD_ISSET(event, &reads) &&
        FD_ISSET(event, &writes) && FD_ISSET(ends[1], &writes));
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    struct timespec shortly = {0, 20000000};
    begin = now();
    check("pselect", pselect(ends[1] + 1, &reads, 0, 0, &shortly, 0) == 0 && !FD_ISSET(ends[0], &reads) && now() - begin >= 19);
    FD_ZERO(&reads);
    FD_SET(60, &reads);
    ANSWERS(EBADF, select(61, &reads, 0, 0, &wait));
    ANSWERS(EINVAL, select(-1, 0, 0, 0, &wait));
    wait.tv_usec = 1000;
    check("many", select(1024, 0, 0, 0, &wait) == 0);
    shortly.tv_nsec = 1000000000;
    ANSWERS(EINVAL, pselect(1, 0, 0, 0, &shortly, 0));

    /* A signal that only the wait lets through. */
    sigset_t blocked, none, before;
    sigemptyset(&blocked), sigemptyset(&none), sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, 0);
    shortly = (struct timespec){5, 0};
    for (int way = 0; way < 4; way++) {
        int set = epoll_create1(0);
        struct epoll_event told;
        handled = 0;
        kill(getpid(), SIGUSR1);
        check("it is held back", handled == 0);
        FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
        all[0] = (struct pollfd){ends[0], POLLIN};
        errno = 0;
        int answer = way == 0 ? ppoll(all, 1, &shortly, &none) : way == 1 ? pselect(ends[0] + 1, &reads, 0, 0, &shortly, &none) :
            way == 2 ? epoll_pwait(set, &told, 1, 5000, &none) : ppoll(all, 1, 0, &none);
        check("the wait lets it through", answer == -1 && errno == EINTR && handled == SIGUSR1);
        sigprocmask(SIG_SETMASK, 0, &before);
        check("and it is masked again", sigismember(&before, SIGUSR1) == 1);
        close(set);
    }
    handled = 0;
    kill(getpid(), SIGUSR1);
    all[0] = (struct pollfd){file, POLLIN};
    check("a wait that is over at once", ppoll(all, 1, &shortly, &none) == 1);
    sigprocmask(SIG_SETMASK, 0, &before);
    check("the mask after it", sigismember(&before, SIGUSR1) == 1);
    sigprocmask(SIG_UNBLOCK, &blocked, 0);
    check("delivered", handled == SIGUSR1);
    close(ends[0]);
    close(ends[1]);
    close(event);
    close(file);
}

static int set;
static struct epoll_event told[16];

static int add(int file, uint32_t events, uint64_t data) {
    return epoll_ctl(set, EPOLL_CTL_ADD, file, &(struct epoll_event){.events = events, .data.u64 = data});
}

static int change(int file, uint32_t events, uint64_t data) {
    return epoll_ctl(set, EPOLL_CTL_MOD, file, &(struct epoll_event){.events = events, .data.u64 = data});
}

/* The events that are told at once: the first one's, 0 for no event. */
static uint32_t tells(void) { return epoll_wait(set, told, 16, 0) == 1 ? told[0].events : 0; }

static void *writer(void *end) {
    usleep(30000);
    return (void *)write((int)(intptr_t)end, "x", 1);
}

static void sets(void) {
    int ends[2], event = eventfd(0, EFD_NONBLOCK), file = open("/dev/null", O_RDWR), regular = open("/tmp/polls", O_RDWR | O_CREAT, 0600);
    uint64_t value = 1;
    char bytes[100];
    check("a pipe", pipe2(ends, O_NONBLOCK) == 0);
    set = epoll_create1(EPOLL_CLOEXEC);
    check("a set", set >= 0 && fcntl(set, F_GETFD) == FD_CLOEXEC);
    ANSWERS(EINVAL, epoll_create1(1));
    ANSWERS(EINVAL, epoll_create(0));
    ANSWERS(EPERM, add(file, EPOLLIN, 0));
    ANSWERS(EPERM, add(regular, EPOLLIN, 0));
    ANSWERS(EBADF, add(99, EPOLLIN, 0));
    ANSWERS(EBADF, epoll_ctl(99, EPOLL_CTL_ADD, ends[0], told));
    ANSWERS(EINVAL, epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], told));
    ANSWERS(EINVAL, add(set, EPOLLIN, 0));
    ANSWERS(EFAULT, epoll_ctl(set, EPOLL_CTL_ADD, ends[0], (void *)8));
    ANSWERS(EINVAL, epoll_ctl(set, 7, ends[0], told));
    ANSWERS(ENOENT, change(ends[0], EPOLLIN, 0));
    ANSWERS(ENOENT, epoll_ctl(set, EPOLL_CTL_DEL, ends[0], 0));
    ANSWERS(EINVAL, epoll_wait(set, told, 0, 0));
    ANSWERS(EINVAL, epoll_wait(ends[0], told, 1, 0));
    ANSWERS(EBADF, epoll_wait(99, told, 1, 0));
    ANSWERS(EINVAL, read(set, bytes, 1));

    /* Levels. */
    ANSWERS(0, add(ends[0], EPOLLIN, 0x123456789abcdef0));
    ANSWERS(EEXIST, add(ends[0], EPOLLIN, 0));
    check("nothing", tells() == 0);
    (void)!write(ends[1], "abc", 3);
    check("it can be read", tells() == EPOLLIN && told[0].data.u64 == 0x123456789abcdef0);
    check("as long as it can", tells() == EPOLLIN && read(ends[0], bytes, 2) == 2 && tells() == EPOLLIN && read(ends[0], bytes, 2) == 1 && tells() == 0);
    ANSWERS(0, add(ends[1], EPOLLOUT, 2));
    check("the other end", tells() == EPOLLOUT && told[0].data.u64 == 2);
    (void)!write(ends[1], "abc", 3);
    check("both", epoll_wait(set, told, 16, -1) == 2);
    int first = (epoll_wait(set, told, 1, 0), told[0].data.u64 == 2), second = (epoll_wait(set, told, 1, 0), told[0].data.u64 == 2);
    check("one after the other", first != second);
    ANSWERS(0, epoll_ctl(set, EPOLL_CTL_DEL, ends[1], 0));
    check("one of them", tells() == EPOLLIN);

    /* Edges. */
    ANSWERS(0, change(ends[0], EPOLLIN | EPOLLET, 3));
    check("told once", tells() == EPOLLIN && tells() == 0);
    (void)!write(ends[1], "abc", 3);
    check("again for more", tells() == EPOLLIN && told[0].data.u64 == 3 && tells() == 0);
    check("not for less", read(ends[0], bytes, 1) == 1 && tells() == 0);
    ANSWERS(0, change(ends[0], EPOLLIN | EPOLLET, 3));
    check("again after a change", tells() == EPOLLIN && tells() == 0);
    check("more and all of it read", write(ends[1], "x", 1) == 1 && read(ends[0], bytes, 100) > 0 && tells() == 0);
    ANSWERS(0, add(event, EPOLLIN | EPOLLOUT | EPOLLET, 4));
    check("a counter can be written", tells() == EPOLLOUT && tells() == 0);
    (void)!write(event, &value, 8);
    check("and read", tells() == (EPOLLIN | EPOLLOUT) && tells() == 0);
    (void)!write(event, &value, 8);
    check("once more", tells() == (EPOLLIN | EPOLLOUT) && tells() == 0);
    (void)!read(event, &value, 8);
    check("taken", tells() == EPOLLOUT && tells() == 0);
    ANSWERS(0, epoll_ctl(set, EPOLL_CTL_DEL, event, 0));

    /* Once. */
    ANSWERS(0, change(ends[0], EPOLLIN | EPOLLONESHOT, 5));
    (void)!write(ends[1], "abc", 3);
    check("told once", tells() == EPOLLIN && tells() == 0 && write(ends[1], "x", 1) == 1 && tells() == 0);
    ANSWERS(0, change(ends[0], EPOLLIN | EPOLLONESHOT, 5));
    check("and once more", tells() == EPOLLIN && tells() == 0);
    ANSWERS(0, change(ends[0], EPOLLIN, 6));

    /* A set in a set. */
    int outer = epoll_create1(0), inner = set;
    set = outer;
    ANSWERS(0, add(inner, EPOLLIN, 7));
    check("a set that is ready", tells() == EPOLLIN && told[0].data.u64 == 7);
    struct pollfd poller = {inner, POLLIN};
    check("it is polled", poll(&poller, 1, 0) == 1 && poller.revents == POLLIN);
    set = inner;
    ANSWERS(ELOOP, add(outer, EPOLLIN, 0));
    while (read(ends[0], bytes, sizeof bytes) > 0) {
    }
    check("a set that is not", poll(&poller, 1, 0) == 0 && epoll_wait(outer, told, 1, 0) == 0);
    close(outer);

    /* Waits: for a time, for a thread, for a child's end of the pipe. */
    int64_t begin = now();
    check("time goes by", epoll_wait(set, told, 16, 30) == 0 && now() - begin >= 29);
    check("none", epoll_wait(set, told, 16, 0) == 0);
    pthread_t thread;
    pthread_create(&thread, 0, writer, (void *)(intptr_t)ends[1]);
    check("a thread writes", epoll_wait(set, told, 16, 10000) == 1 && told[0].events == EPOLLIN);
    pthread_join(thread, 0);
    (void)!read(ends[0], bytes, 1);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    ANSWERS(0, add(timer, EPOLLIN | EPOLLET, 8));
    ANSWERS(0, timerfd_settime(timer, 0, &(struct itimerspec){{0, 20000000}, {0, 20000000}}, 0));
    for (int i = 0; i < 3; i++) {
        check("a timer", epoll_wait(set, told, 16, 10000) == 1 && told[0].events == EPOLLIN && told[0].data.u64 == 8);
        /* Until it is read it does not begin anew. */
        check("once", epoll_wait(set, told, 16, 50) == 0 && read(timer, &value, 8) == 8 && value >= 2);
    }
    value = 1;
    close(timer);
    check("a closed file is not told", epoll_wait(set, told, 16, 50) == 0);
    ANSWERS(EBADF, epoll_ctl(set, EPOLL_CTL_DEL, timer, 0));
    /* One that is open under another number is told still. */
    int copy = dup(event);
    ANSWERS(0, add(event, EPOLLIN, 9));
    ANSWERS(0, add(copy, EPOLLIN, 10));
    (void)!write(event, &value, 8);
    check("two numbers", epoll_wait(set, told, 16, 0) == 2);
    close(event);
    check("both still", epoll_wait(set, told, 16, 0) == 2);
    close(copy);
    check("neither", epoll_wait(set, told, 16, 0) == 0);
    close(ends[1]);
    check("hung up, asked for or not", change(ends[0], 0, 11) == 0 && tells() == EPOLLHUP && told[0].data.u64 == 11);
    ANSWERS(EFAULT, epoll_wait(set, (void *)8, 1, 0));
    close(ends[0]);
    close(set);
    close(file);
    close(regular);
    unlink("/tmp/polls");
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    for (int i = 3; i < 100; i++)
        close(i);
    if (getpid() == 1) {
        mkdir("/tmp", 0777);
        /* Process 1 has signals of its own. */
        int status;
        pid_t child = fork();
        if (child != 0)
            return waitpid(child, &status, 0) != child || status != 0;
    }
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    counters();
    timers();
    polls();
    sets();
    printf("POLLS %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
