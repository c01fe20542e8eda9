/* A service of 64 MiB whose four threads map memory and start programs by posix_spawn, each tenth
   by fork, all the time. Answers each line with the number of programs so far. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

extern char **environ;
static atomic_long started;

static void *work(void *unused) {
    char *args[] = {"true", 0};
    for (int n = 0;; n++) {
        char *memory = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *memory = 1;
        pid_t pid = 0;
        if (n % 10 == 9) {
            pid = fork();
            if (!pid) {
                execv("/bin/true", args);
                _exit(1);
            }
        } else {
            posix_spawn(&pid, "/bin/true", 0, 0, args, environ);
        }
        started++;
        waitpid(pid, 0, 0);
        munmap(memory, 1 << 16);
        usleep(5000);
    }
    return unused;
}

int main(void) {
    size_t size = 64 << 20;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, size);
    pthread_t thread;
    for (int n = 0; n < 4; n++) pthread_create(&thread, 0, work, 0);
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("ready");
    char line[16];
    while (fgets(line, sizeof line, stdin)) printf("%ld\n", started);
    return 0;
}
