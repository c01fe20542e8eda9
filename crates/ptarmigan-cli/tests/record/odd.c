// A program that is hard to attach to. It does what its argument says, until its standard input
// ends.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *nothing(void *arg)
{
    return arg;
}

// Threads that end as soon as they are made.
static void *threads(void *arg)
{
    for (;;) {
        pthread_t thread;
        if (!pthread_create(&thread, NULL, nothing, NULL))
            pthread_join(thread, NULL);
    }
    return arg;
}

static void *waits(void *arg)
{
    for (;;)
        pause();
    return arg;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t thread;
    char line[64];
    if (!strcmp(what, "threads") && pthread_create(&thread, NULL, threads, NULL))
        return 3;
    for (int i = 0; !strcmp(what, "many") && i < 1000; i++) {
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 64 * 1024);
        if (pthread_create(&thread, &small, waits, NULL))
            return 4;
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "user") && (setgid(65534) || setuid(65534)))
            return 5;
        if (!strcmp(line, "hide") && prctl(PR_SET_DUMPABLE, 0))
            return 6;
        if (!strcmp(line, "run")) {
            pid_t child = fork();
            if (child == 0) {
                execv(argv[2], argv + 2);
                _exit(7);
            }
            int status = 0;
            waitpid(child, &status, 0);
            snprintf(line, sizeof line, "run %d", WEXITSTATUS(status));
        }
        puts(line);
        fflush(stdout);
    }
    return 0;
}
