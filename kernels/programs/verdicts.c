/* Process 1 of kernels/verdicts, on Linux and on the kernel here: runs each program of /tests/INTERFACE, one after the
 * other, and prints how each one ended. Tests see a fresh /proc, /dev, /dev/shm and /tmp, and what they print is thrown
 * away; with show=1 on the kernel's command line it is printed.
 *
 *   VERDICT INTERFACE/NAME exit STATUS | signal NUMBER | late
 *   VERDICTS NUMBER                                             the last line
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The seconds that a test may take. */
enum { SECONDS = 20 };

static void fail(const char *what) {
    printf("FAIL %s: %s\n", what, strerror(errno));
    fflush(stdout);
    reboot(RB_AUTOBOOT);
    exit(1);
}

static void place(const char *kind, const char *directory, mode_t mode) {
    if (mkdir(directory, mode) < 0 && errno != EEXIST)
        fail(directory);
    if (mount(kind, directory, kind, 0, 0) < 0)
        fail(directory);
    chmod(directory, mode);
}

/* Runs in the child: becomes the test. */
static void become(const char *path) {
    int nowhere = open("/dev/null", O_RDWR);
    if (nowhere < 0)
        _exit(126);
    dup2(nowhere, 0);
    if (!getenv("show")) {
        dup2(nowhere, 1);
        dup2(nowhere, 2);
    }
    close(nowhere);
    setsid();
    if (chdir("/tmp") == 0)
        execl(path, path, (char *)0);
    _exit(127);
}

static time_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec;
}

/* Waits for a test, and for no longer than it may take. Processes that it has left are reaped on the way. Returns whether
 * it ended by itself. */
static int ends(pid_t test, int *status) {
    struct timespec while_it_runs = {0, 10000000};
    time_t end = now() + SECONDS;
    for (;;) {
        pid_t ended = waitpid(-1, status, WNOHANG);
        if (ended == test)
            return 1;
        if (ended > 0)
            continue;
        if (now() >= end)
            return 0;
        nanosleep(&while_it_runs, 0);
    }
}

static void run(const char *interface, const char *name) {
    char path[600];
    int status = 0, ended;
    snprintf(path, sizeof path, "/tests/%s/%s", interface, name);
    pid_t test = fork();
    if (test < 0)
        fail("fork");
    if (test == 0)
        become(path);
    ended = ends(test, &status);
    /* Also those of its processes that are left. */
    kill(-1, SIGKILL);
    while (waitpid(-1, 0, 0) > 0)
        ;
    printf("\nVERDICT %s/%s ", interface, name);
    if (!ended)
        printf("late\n");
    else if (WIFSIGNALED(status))
        printf("signal %d\n", WTERMSIG(status));
    else
        printf("exit %d\n", WEXITSTATUS(status));
    fflush(stdout);
}

/* The names in a directory, in their order; `number` is how many. */
static struct dirent **names(const char *path, int *number) {
    struct dirent **all = 0;
    *number = scandir(path, &all, 0, alphasort);
    if (*number < 0)
        fail(path);
    return all;
}

int main(void) {
    int interfaces, tests, ran = 0;
    place("proc", "/proc", 0755);
    /* The kernel here has its devices from the start. */
    if (access("/dev/null", F_OK) < 0)
        place("devtmpfs", "/dev", 0755);
    place("tmpfs", "/dev/shm", 01777);
    place("tmpfs", "/tmp", 01777);
    struct dirent **all = names("/tests", &interfaces);
    for (int i = 0; i < interfaces; i++) {
        char path[300];
        if (all[i]->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/tests/%s", all[i]->d_name);
        struct dirent **of = names(path, &tests);
        for (int j = 0; j < tests; j++) {
            if (of[j]->d_name[0] != '.') {
                run(all[i]->d_name, of[j]->d_name);
                ran++;
            }
            free(of[j]);
        }
        free(of);
    }
    printf("VERDICTS %d\n", ran);
    fflush(stdout);
    reboot(RB_AUTOBOOT);
    return 1;
}
