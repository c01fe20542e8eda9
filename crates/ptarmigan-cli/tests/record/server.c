// A program like a server, to attach to: it holds memory of several kinds, has threads and workers,
// and makes more of each when its standard input says so.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MIB (1024 * 1024)

static char *shared, *memory;

static char *fresh(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        exit(3);
    return at;
}

static void touch(char *at, size_t bytes, size_t step)
{
    for (size_t i = 0; i < bytes; i += step)
        ((volatile char *)at)[i] = 1;
}

static void *in_thread(void *done)
{
    touch(fresh(5 * MIB), 5 * MIB, 4096);
    char byte = 0;
    if (write(*(int *)done, &byte, 1) != 1)
        exit(4);
    for (;;)
        pause();
}

// Makes a worker or a thread and waits until it has its memory.
static void more(const char *kind)
{
    int done[2];
    char byte;
    if (pipe(done))
        exit(5);
    if (!strcmp(kind, "thread")) {
        pthread_t thread;
        int *end = malloc(sizeof *end);
        *end = done[1];
        if (pthread_create(&thread, NULL, in_thread, end))
            exit(6);
        if (read(done[0], &byte, 1) != 1)
            exit(7);
        return;
    }
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        touch(memory + 12 * MIB, 16 * MIB, 2 * MIB);
        touch(shared, 8 * MIB, MIB);
        touch(fresh(3 * MIB), 3 * MIB, 4096);
        if (!strcmp(kind, "exec")) {
            close(done[1]);
            execlp("sleep", "sleep", "600", NULL);
            _exit(8);
        }
        if (!strcmp(kind, "short"))
            _exit(0);
        if (write(done[1], &byte, 1) != 1)
            _exit(9);
        for (;;)
            pause();
    }
    close(done[1]);
    // The end of the pipe is closed by an exit or an execve.
    if (read(done[0], &byte, 1) < 0)
        exit(10);
    close(done[0]);
}

int main(void)
{
    shared = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = fresh(64 * MIB);
    if (shared == MAP_FAILED)
        return 3;
    touch(shared, 4 * MIB, 4096);
    touch(memory, 32 * MIB, 64 * 1024);
    // Holes, permissions, advice, and a heap of some size.
    mprotect(memory + 8 * MIB, 4 * MIB, PROT_NONE);
    munmap(memory + 40 * MIB, 4 * MIB);
    madvise(fresh(6 * MIB), 6 * MIB, MADV_DONTFORK);
    for (int i = 0; i < 2000; i++)
        memset(malloc(3000), 1, 3000);
    signal(SIGCHLD, SIG_IGN);
    more("worker");
    more("thread");
    more("worker");
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "end"))
            break;
        if (!strcmp(line, "alloc")) {
            touch(fresh(20 * MIB), 20 * MIB, 4096);
            memset(malloc(100000), 1, 100000);
        } else if (!strcmp(line, "free")) {
            munmap(memory, 8 * MIB);
        } else {
            more(line);
        }
        puts(line);
        fflush(stdout);
    }
    return 0;
}
