#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* 512 MiB in use, 40 children that run a small program, writes between them. */
int main(void) {
    size_t size = 512ul << 20;
    char *data = malloc(size);
    memset(data, 1, size);
    for (int child = 0; child < 40; child++) {
        if (fork() == 0) { execl("/bin/true", "true", (char *)0); _exit(1); }
        for (int i = 0; i < 1000; i++) data[(rand() % (size / 4096)) * 4096] = 2;
        wait(NULL);
    }
    return 0;
}
