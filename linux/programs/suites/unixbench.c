/* The suite `unixbench-like`: process creation (`spawn`) and `execl` as UnixBench's documents
 * describe them. The original counts loops in a time; here the instructions of a loop are counted:
 * no result of this suite is one of UnixBench's. */
#include "suite.h"

/* A process is made and ends, and its parent waits. */
static long spawn(void) { return forks(64); }

enum { EXECS = 32 };

/* One process replaces its program by the same again and again: it counts down in its argument. */
static long exec_itself(void) {
    static char number[16];
    snprintf(number, sizeof number, "%d", EXECS);
    begin();
    pid_t child = fork();
    if (child == 0) {
        execl("/init", "/init", number, (char *)0);
        _exit(1);
    }
    reap(child);
    end();
    return EXECS;
}

static const struct suite_case cases[] = {
    {"spawn", "operation", spawn},
    {"execl", "operation", exec_itself},
};

int main(int number, char **arguments) {
    if (getpid() == 1)
        run_suite(cases, sizeof cases / sizeof *cases);
    int left = number > 1 ? atoi(arguments[1]) - 1 : 0;
    if (left > 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", left);
        execl("/init", "/init", text, (char *)0);
        return 1;
    }
    return 0;
}
