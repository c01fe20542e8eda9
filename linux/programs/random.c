/* Process 1: programs that make calls at random, with arguments at random: addresses that may be
 * read, that may not, that are not there, that are the kernel's; sizes, descriptors, flags. Each
 * ends at some time, by a signal or by itself, and another begins. At the end the kernel must have
 * all frames. `seconds=N` and `seed=N` on the command line. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROGRAMS = 4, CALLS = 400, PAGE = 4096 };

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dull >> 16;
}

static unsigned long number_of(const char *name, unsigned long otherwise) {
    static char text[1024];
    int file = open("/proc/cmdline", O_RDONLY);
    if (file < 0)
        return otherwise;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    char *found = n > 0 ? strstr(text, name) : 0;
    return found ? strtoul(found + strlen(name), 0, 10) : otherwise;
}

static char *memory;

static long argument(void) {
    switch (next() % 16) {
    case 0: return 0;
    case 1: return -1;
    case 2: return (long)next();
    case 3: return (long)(next() % 64);
    case 4: return (long)(memory + next() % (4 * PAGE));          /* may be read and written */
    case 5: return (long)(memory + 4 * PAGE + next() % PAGE);     /* may be read */
    case 6: return (long)(memory + 5 * PAGE + next() % PAGE);     /* may not */
    case 7: return (long)(memory + 6 * PAGE - next() % 16);       /* the end */
    case 8: return (long)(memory + next() % 8 * PAGE);
    case 9: return (long)(next() % 8 * PAGE);
    case 10: return 1l << next() % (8 * sizeof(long));
    case 11: return (long)(next() % 4096);
    case 12: return -(long)(next() % 4096);
    case 13: return (long)0xc0000000ul + (long)(next() % PAGE);   /* the kernel's, on i386 */
    case 14: return (long)(UINTPTR_MAX / 2 + 1 + next() % PAGE);  /* the kernel's, on x86-64 */
    default: return (long)"/dev/zero";
    }
}

/* Calls that would end the machine, or other programs than this one and what it has made. */
static int is_left_out(long number) {
    switch (number) {
#ifdef SYS_iopl
    case SYS_iopl: case SYS_ioperm:
#endif
    case SYS_reboot: case SYS_kill: case SYS_setpgid: case SYS_setsid:
        return 1;
    }
    return 0;
}

static void make_call(void) {
    long number = (long)(next() % 450);
    if (is_left_out(number))
        return;
    pid_t me = getpid();
    syscall(number, argument(), argument(), argument(), argument(), argument(), argument());
    /* A child, however it was made. */
    if (getpid() != me)
        syscall(SYS_exit, 0);
    /* Faults, too. */
    if (next() % 32 == 0)
        memory[next() % (4 * PAGE)]++;
}

/* Some calls beside those of the other threads. */
static int thread(void *unused) {
    (void)unused;
    for (int call = 0; call < 30; call++)
        make_call();
    return 0;
}

static void make_thread(void) {
    enum { STACKS = 4, SIZE = 16384 };
    static char stacks[STACKS][SIZE] __attribute__((aligned(16)));
    static int used;
    if (used < STACKS)
        clone(thread, stacks[used++] + SIZE, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, 0);
}

static void make_calls(void) {
    memory = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    memset(memory, 1, 5 * PAGE);
    mprotect(memory + 4 * PAGE, PAGE, PROT_READ);
    mprotect(memory + 5 * PAGE, PAGE, PROT_NONE);
    munmap(memory + 6 * PAGE, 2 * PAGE);
    /* The console is to stay readable, and its input does not come. */
    for (int file = 0; file < 3; file++)
        close(file);
    for (int call = 0; call < CALLS; call++) {
        if (next() % 64 == 0) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
        }
        if (next() % 128 == 0)
            make_thread();
        make_call();
    }
    _exit(0);
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void) {
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    unsigned long seconds = number_of("seconds=", 10), seed = number_of("seed=", 1);
    unsigned long begun = 0, killed = 0;
    pid_t running[PROGRAMS] = {0};
    long since[PROGRAMS] = {0};
    long end = milliseconds() + (long)seconds * 1000;
    for (;;) {
        int alive = 0;
        for (int i = 0; i < PROGRAMS; i++) {
            if (!running[i] && milliseconds() < end) {
                pid_t child = fork();
                if (child == 0) {
                    setpgid(0, 0);
                    state = seed * 1000003 + begun * 7919 + 1;
                    for (int skipped = 0; skipped < 8; skipped++)
                        next();
                    make_calls();
                }
                if (child > 0) {
                    setpgid(child, child);
                    running[i] = child;
                    since[i] = milliseconds();
                    begun++;
                }
            }
            /* It waits for ever: for a pipe that nobody writes to, say. */
            if (running[i] && milliseconds() > since[i] + 100)
                kill(-running[i], SIGKILL);
            alive += running[i] != 0;
        }
        if (!alive && milliseconds() >= end)
            break;
        int status;
        /* Children of children that have ended first are process 1's, too. */
        pid_t gone = waitpid(-1, &status, WNOHANG);
        if (gone <= 0)
            usleep(4000);
        for (int i = 0; i < PROGRAMS; i++) {
            if (gone > 0 && running[i] == gone) {
                running[i] = 0;
                /* What it has made goes, too. */
                kill(-gone, SIGKILL);
                killed += WIFSIGNALED(status);
            }
        }
    }
    printf("RANDOM %lu programs, %lu of them ended by a signal\n", begun, killed);
    return 0;
}
