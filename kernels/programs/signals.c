/* Process 1: signals, and the calls that they interrupt. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t handled;
static sigjmp_buf before;
static int failures;

static void plain(int number) { (void)number; handled++; }
static void with_context(int number, siginfo_t *info, void *context) {
    (void)number;
    handled += info && context ? 100 : 1000;
}
static void jump(int number) { (void)number; siglongjmp(before, 1); }

static void check(const char *what, int right) {
    if (!right) {
        printf("WRONG %s (errno %d)\n", what, errno);
        failures++;
    }
}

/* A child that sends this process a signal after a while, and then writes a byte, if it is to. */
static pid_t sender(int file) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(20000);
        kill(parent, SIGUSR1);
        usleep(20000);
        if (file >= 0)
            (void)!write(file, "x", 1);
        _exit(0);
    }
    return child;
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    int ends[2], status;
    char byte = 0;
    check("pipe", pipe(ends) == 0);
    struct sigaction action = {.sa_handler = plain};
    sigaction(SIGUSR1, &action, 0);
    pid_t child = sender(-1);
    check("a read that is interrupted", read(ends[0], &byte, 1) == -1 && errno == EINTR && handled == 1);
    waitpid(child, 0, 0);
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    child = sender(ends[1]);
    check("a read that is made again", read(ends[0], &byte, 1) == 1 && byte == 'x' && handled == 2);
    waitpid(child, 0, 0);

    struct sigaction detailed = {.sa_sigaction = with_context, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR2, &detailed, 0);
    volatile double number = 1.5;
    raise(SIGUSR2);
    check("a handler with context", handled == 102 && number * 2 == 3.0);

    sigset_t mask, old;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, &old);
    kill(getpid(), SIGUSR1);
    check("a signal that is masked", handled == 102);
    sigsuspend(&old);
    check("a signal that is waited for", handled == 103);
    sigprocmask(SIG_SETMASK, &old, 0);

    signal(SIGSEGV, jump);
    if (!sigsetjmp(before, 1)) {
        *(volatile int *)16 = 1;
        check("a write to nowhere", 0);
    }
    child = fork();
    if (child == 0)
        for (;;) {
        }
    usleep(10000);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    check("the end of a loop", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);

    struct pollfd poller = {.fd = ends[0], .events = POLLIN};
    check("a poll that ends", poll(&poller, 1, 30) == 0);
    check("a write", write(ends[1], "y", 1) == 1);
    check("a poll that finds", poll(&poller, 1, -1) == 1 && poller.revents == POLLIN);
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    check("a pipe that nobody reads", write(ends[1], "z", 1) == -1 && errno == EPIPE);
    child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        (void)!write(ends[1], "z", 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    check("SIGPIPE", WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    printf("SIGNALS %s\n", failures ? "wrong" : "right");
    return failures != 0;
}
