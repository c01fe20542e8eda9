/* Process 1, or any process of Linux: how much a pipe holds, what a full one answers, and bytes
 * that go round. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

enum { PAGE = 4096, SIZE = 16 * PAGE, ROUND = 1 << 20 };
static unsigned char bytes[2 * SIZE], back[2 * SIZE];

/* The byte at a place of the stream: no two pages are alike. */
static unsigned char at(unsigned place) { return place * 31 + place / PAGE * 7 + place / SIZE; }

static int writable(int end) {
    struct pollfd poller = {.fd = end, .events = POLLOUT};
    return poll(&poller, 1, 0) == 1 && poller.revents & POLLOUT;
}

/* Reads exactly so many bytes; whether they are those of the stream from `place` on. */
static int as_written(int end, unsigned place, unsigned count) {
    for (unsigned done = 0; done < count;) {
        ssize_t n = read(end, back + done, count - done);
        if (n <= 0)
            return 0;
        done += n;
    }
    for (unsigned i = 0; i < count; i++)
        if (back[i] != at(place + i))
            return 0;
    return 1;
}

int main(void) {
    int ends[2], status;
    setvbuf(stdout, 0, _IONBF, 0);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = at(i);
    check("pipe", pipe(ends) == 0);
    check("the size", fcntl(ends[0], F_GETPIPE_SZ) == SIZE && fcntl(ends[1], F_GETPIPE_SZ) == SIZE);
    int root = open("/", O_RDONLY);
    check("the size of no pipe", fcntl(root, F_GETPIPE_SZ) == -1 && errno == EBADF);
    ANSWERS(EBADF, fcntl(root, F_SETPIPE_SZ, SIZE));
    close(root);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);

    /* Page by page, until it is full. */
    for (unsigned i = 0; i < SIZE; i += PAGE)
        check("a page", writable(ends[1]) && write(ends[1], bytes + i, PAGE) == PAGE);
    check("a full pipe", !writable(ends[1]) && write(ends[1], bytes, 1) == -1 && errno == EAGAIN);
    check("the first page", as_written(ends[0], 0, PAGE) && writable(ends[1]));
    check("a page for it", write(ends[1], bytes + SIZE, PAGE) == PAGE && !writable(ends[1]));
    check("the others", as_written(ends[0], PAGE, SIZE));

    /* More than there is room for; a short write is not torn. */
    check("all that there is room for", write(ends[1], bytes, SIZE + 1) == SIZE);
    check("them", as_written(ends[0], 0, SIZE));
    check("all but 100", write(ends[1], bytes, SIZE - 100) == SIZE - 100);
    check("a write of a page", write(ends[1], bytes, PAGE) == -1 && errno == EAGAIN);
    check("as it was", as_written(ends[0], 0, SIZE - 100));

    /* One call that fills it, and nobody reads. */
    fcntl(ends[1], F_SETFL, 0);
    check("one call", write(ends[1], bytes, SIZE) == SIZE);
    check("its bytes", as_written(ends[0], 0, SIZE));

    /* Other sizes: bytes that went round stay as they are, and what does not fit is refused. */
    check("half of it", write(ends[1], bytes, SIZE) == SIZE && as_written(ends[0], 0, SIZE / 2));
    check("the rest goes round", write(ends[1], bytes + SIZE, SIZE / 4) == SIZE / 4);
    ANSWERS(EBUSY, fcntl(ends[1], F_SETPIPE_SZ, SIZE / 2));
    check("a larger one", fcntl(ends[0], F_SETPIPE_SZ, SIZE + 1) == 2 * SIZE && fcntl(ends[1], F_GETPIPE_SZ) == 2 * SIZE);
    check("its room", write(ends[1], bytes + SIZE + SIZE / 4, SIZE * 3 / 4) == SIZE * 3 / 4 && writable(ends[1]));
    check("its bytes", as_written(ends[0], SIZE / 2, SIZE * 3 / 2));
    check("a page", fcntl(ends[1], F_SETPIPE_SZ, 1) == PAGE && write(ends[1], bytes, PAGE) == PAGE && !writable(ends[1]));
    ANSWERS(EINVAL, fcntl(ends[1], F_SETPIPE_SZ, 1u << 31 | 1));
    check("as before", fcntl(ends[1], F_SETPIPE_SZ, SIZE) == SIZE && writable(ends[1]) && as_written(ends[0], 0, PAGE));

    /* A child writes in odd steps, more than the pipe holds many times over. */
    pid_t child = fork();
    if (child == 0) {
        unsigned char step[7001];
        close(ends[0]);
        for (unsigned done = 0; done < ROUND;) {
            unsigned n = 1 + done * 13 % sizeof step;
            n = n < ROUND - done ? n : ROUND - done;
            for (unsigned i = 0; i < n; i++)
                step[i] = at(done + i);
            /* Fewer are written where there is room for fewer, and that is no error. */
            ssize_t written = write(ends[1], step, n);
            if (written <= 0)
                _exit(1);
            done += written;
        }
        _exit(0);
    }
    close(ends[1]);
    unsigned done = 0;
    while (done < ROUND) {
        unsigned n = 1 + done * 17 % 9001;
        n = n < ROUND - done ? n : ROUND - done;
        if (!as_written(ends[0], done, n))
            break;
        done += n;
    }
    check("bytes that go round", done == ROUND);
    check("the end", read(ends[0], back, 1) == 0);
    waitpid(child, &status, 0);
    check("the child", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ends[0]);

    /* Pipes that were full and are closed so. */
    for (int i = 0; i < 40; i++) {
        check("another pipe", pipe(ends) == 0 && write(ends[1], bytes, SIZE) == SIZE);
        close(ends[0]);
        close(ends[1]);
    }
    printf("PIPES %s\n", failures ? "wrong" : "right");
    return failures != 0;
}
