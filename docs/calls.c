#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
/* 200 MiB in use; 20 times: a fork that exits, 32 MiB mapped, filled, given up, filled,
 * unmapped. */
int main(void) {
    size_t size = 200ul << 20, part = 32ul << 20;
    char *data = malloc(size);
    memset(data, 1, size);
    for (int n = 0; n < 20; n++) {
        if (fork() == 0) _exit(0);
        wait(NULL);
        char *more = mmap(NULL, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(more, 1, part);
        madvise(more, part, MADV_DONTNEED);
        memset(more, 1, part);
        mprotect(more, part, PROT_READ);
        munmap(more, part);
    }
    return 0;
}
