/* Process 1 of `cargo xtask boot verdicts`, on Linux and on the kernel here: runs the tests of
 * /tests.list, one after the other, and prints how each one ended. A line of the list is
 *
 *   NAME SECONDS USER SKIPPED COMMAND [ARGUMENT...]
 *
 * where SKIPPED is a word that a test prints which did not run after all; - for none. Tests see a
 * fresh /proc, /dev, /dev/shm and /tmp; where there is a directory /huge, also large pages and a
 * file system of them, if the kernel has any. What tests print is thrown away; with show=1 on the
 * kernel's command line it is printed.
 *
 *   VERDICT NAME exit STATUS | signal NUMBER | late | skipped | no-user
 *   VERDICTS NUMBER                                             the last line
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
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

enum { WORDS = 40, NO_USER = 125 };

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

/* Writes to a file that the kernel may not have. */
static void set(const char *file, const char *text) {
    int to = open(file, O_WRONLY);
    if (to >= 0) {
        if (write(to, text, strlen(text)) < 0)
            printf("not set: %s\n", file);
        close(to);
    }
}

/* Runs in the child: becomes the test. */
static void become(char **words, unsigned user, int said) {
    int nowhere = open("/dev/null", O_RDWR);
    if (nowhere < 0)
        _exit(126);
    dup2(nowhere, 0);
    dup2(said, 1);
    dup2(said, 2);
    close(nowhere);
    close(said);
    setsid();
    if (user && (setgroups(0, 0) < 0 || setgid(user) < 0 || setuid(user) < 0))
        _exit(NO_USER);
    if (chdir("/tmp") == 0)
        execv(words[0], words);
    _exit(127);
}

static time_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec;
}

/* Waits for a test, and for no longer than it may take. Processes that it has left are reaped on
 * the way. Returns whether it ended by itself. */
static int ends(pid_t test, int *status, int seconds) {
    struct timespec while_it_runs = {0, 10000000};
    time_t end = now() + seconds;
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

/* Gives back large pages that files of a test have kept. */
static void clear_huge(void) {
    DIR *huge = opendir("/huge");
    for (struct dirent *each; huge && (each = readdir(huge));)
        if (each->d_name[0] != '.')
            unlinkat(dirfd(huge), each->d_name, 0);
    if (huge)
        closedir(huge);
}

/* Whether a test has printed a word; prints all of it if the command line wants that. */
static int look(int said, const char *word) {
    static char text[1 << 20];
    ssize_t length = pread(said, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    if (getenv("show"))
        printf("%s", text);
    return strcmp(word, "-") && strstr(text, word);
}

static void run(char **words) {
    const char *name = words[0], *skipped = words[3];
    int status = 0, seconds = atoi(words[1]), said = open("/said", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (said < 0)
        fail("/said");
    pid_t test = fork();
    if (test < 0)
        fail("fork");
    if (test == 0)
        become(words + 4, (unsigned)atoi(words[2]), said);
    int ended = ends(test, &status, seconds);
    /* Also those of its processes that are left. */
    kill(-1, SIGKILL);
    while (waitpid(-1, 0, 0) > 0)
        ;
    clear_huge();
    int has_skipped = look(said, skipped);
    close(said);
    printf("\nVERDICT %s ", name);
    if (!ended)
        printf("late\n");
    else if (WIFSIGNALED(status))
        printf("signal %d\n", WTERMSIG(status));
    else if (WEXITSTATUS(status) == NO_USER)
        printf("no-user\n");
    else if (WEXITSTATUS(status) == 0 && has_skipped)
        printf("skipped\n");
    else
        printf("exit %d\n", WEXITSTATUS(status));
    fflush(stdout);
}

int main(void) {
    int ran = 0;
    char line[1024];
    place("proc", "/proc", 0755);
    /* The kernel here has its devices from the start. */
    if (access("/dev/null", F_OK) < 0)
        place("devtmpfs", "/dev", 0755);
    place("tmpfs", "/dev/shm", 01777);
    place("tmpfs", "/tmp", 01777);
    if (access("/huge", F_OK) == 0) {
        set("/proc/sys/vm/nr_hugepages", "256");
        /* Tests name it by its place in their own script. */
        if (symlink("/huge", "/tmp/huge") < 0)
            fail("/tmp/huge");
        mount("hugetlbfs", "/huge", "hugetlbfs", 0, 0);
        mkdir("/sys", 0755);
        mount("sysfs", "/sys", "sysfs", 0, 0);
        mount("debugfs", "/sys/kernel/debug", "debugfs", 0, 0);
    }
    FILE *list = fopen("/tests.list", "re");
    if (!list)
        fail("/tests.list");
    while (fgets(line, sizeof line, list)) {
        char *words[WORDS + 1], *rest = 0;
        int count = 0;
        for (char *word = strtok_r(line, " \n", &rest); word && count < WORDS; word = strtok_r(0, " \n", &rest))
            words[count++] = word;
        words[count] = 0;
        if (count < 5)
            continue;
        run(words);
        ran++;
    }
    printf("VERDICTS %d\n", ran);
    fflush(stdout);
    reboot(RB_AUTOBOOT);
    return 1;
}
