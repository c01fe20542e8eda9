/* Writes 64 MiB page by page. With `fork` it forks then and both processes write it again; with
 * `ask` it asks for huge pages first. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (64UL << 20)

static void fill(volatile char *memory) {
    for (unsigned long at = 0; at < SIZE; at += 4096)
        memory[at] = 1;
}

int main(int argc, char **argv) {
    int forks = 0, asks = 0;
    for (int n = 1; n < argc; n++) {
        forks |= !strcmp(argv[n], "fork");
        asks |= !strcmp(argv[n], "ask");
    }
    char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || (asks && madvise(memory, SIZE, MADV_HUGEPAGE)))
        return 1;
    fill(memory);
    if (!forks)
        return 0;
    pid_t child = fork();
    if (child < 0)
        return 1;
    fill(memory);
    if (child == 0)
        _exit(0);
    int status;
    return waitpid(child, &status, 0) != child || status != 0;
}
