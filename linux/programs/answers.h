/* How programs say that an answer is not Linux's. */
#include <errno.h>
#include <stdio.h>

static int failures, checks;

static void check(const char *what, int right) {
    checks++;
    if (!right) {
        printf("WRONG %s (errno %d)\n", what, errno);
        failures++;
    }
}

/* The call returns -1 and this error; or anything but -1, if the error is 0. */
#define ANSWERS(error, call) \
    do { \
        errno = 0; \
        long answer = (long)(call); \
        check(#call, (error) ? answer == -1 && errno == (error) : answer != -1); \
    } while (0)
