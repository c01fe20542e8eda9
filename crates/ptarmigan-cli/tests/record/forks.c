// Parents with many pages, and children that write few of them. Recorded by a test.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 10000, CHILDREN = 10 };

static char *map(size_t pages) {
    char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(1);
    return p;
}

static void write_pages(char *p, int first, int pages) {
    for (int page = first; page < first + pages; page++)
        p[(size_t)page * PAGE] = 2;
}

// A worker of a pool: reads everything, writes a part, and makes calls that may free tables, one of
// which fails half-way.
static void work(char *data, int worker) {
    volatile char seen = 0;
    for (int page = 0; page < PAGES; page++)
        seen += data[(size_t)page * PAGE];
    write_pages(data, worker * 700, 100);
    char *own = map(600);
    write_pages(own, 0, 600);
    munmap(own + 100 * PAGE, 100 * PAGE);
    madvise(own, 600 * PAGE, MADV_DONTNEED);
    munmap(own, 600 * PAGE);
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    char *data = map(PAGES);
    write_pages(data, 0, PAGES);
    if (!strcmp(kind, "pool")) {
        for (int round = 0; round < 2; round++) {
            for (int worker = 0; worker < 4; worker++) {
                if (!fork()) {
                    work(data, worker);
                    _exit(0);
                }
            }
            write_pages(data, 5000, 50);
            while (wait(NULL) > 0)
                ;
        }
        return 0;
    }
    for (int child = 0; child < CHILDREN; child++) {
        if (!fork()) {
            write_pages(data, 0, 4);
            if (!strcmp(kind, "unmap")) {
                char *own = map(256);
                own[0] = 1;
                munmap(own, 256 * PAGE);
            }
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}
