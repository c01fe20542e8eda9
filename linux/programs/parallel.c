/* Process 1: programs on all CPUs that write memory which they share with a child until one of them
 * writes. Each must see its own writes alone. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROGRAMS = 8, ROUNDS = 8, SIZE = 1 << 20, PAGE = 4096 };

static int round_of(char value) {
    char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (int i = 0; i < SIZE; i += PAGE) {
        if (memory[i])
            return 2;
        memory[i] = value;
    }
    pid_t child = fork();
    if (child < 0)
        return 3;
    if (child == 0) {
        for (int i = 0; i < SIZE; i += PAGE) {
            if (memory[i] != value)
                _exit(1);
            memory[i] = 77;
        }
        _exit(0);
    }
    for (int i = 0; i < SIZE; i += 2 * PAGE)
        memory[i] = 5;
    int status;
    if (waitpid(child, &status, 0) != child || status)
        return 4;
    for (int i = 0; i < SIZE; i += PAGE)
        if (memory[i] != (i % (2 * PAGE) ? value : 5))
            return 5;
    return mprotect(memory, SIZE / 2, PROT_READ) || munmap(memory, SIZE) ? 6 : 0;
}

int main(void) {
    for (int program = 1; program <= PROGRAMS; program++) {
        if (fork() == 0) {
            int bad = 0;
            for (int round = 0; round < ROUNDS && !bad; round++)
                bad = round_of((char)(program + round));
            _exit(bad);
        }
    }
    int bad = 0, status;
    while (wait(&status) > 0)
        bad |= status;
    printf("PARALLEL %s\n", bad ? "wrong" : "right");
    return bad != 0;
}
