/* Process 1: programs that are alive together and touch one page under each of many tables, so that
 * tables take far more memory than data. Says how many of them came to an end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What one table of x86-64 and of PAE maps. */
#define SPAN (2ul << 20)

static void print_memory(void) {
    static char text[4096];
    int file = open("/proc/meminfo", O_RDONLY);
    ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
    char *line = n > 0 ? strtok(text, "\n") : 0;
    for (; line; line = strtok(0, "\n"))
        if (strstr(line, "LowFree") || strstr(line, "HighFree") || strstr(line, "PageTables"))
            printf("%s\n", line);
    if (file >= 0)
        close(file);
}

int main(void) {
    enum { PROGRAMS = 128, TABLES = 96 };
    int touched[2], end[2], done = 0, failed = 0;
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    if (pipe(touched) || pipe(end))
        return 1;
    for (int program = 0; program < PROGRAMS; program++) {
        pid_t child = fork();
        if (child < 0) {
            failed++;
            continue;
        }
        if (child == 0) {
            volatile char *memory = mmap(0, SPAN * (TABLES + 1), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED)
                _exit(1);
            memory = (char *)(((unsigned long)memory + SPAN - 1) & ~(SPAN - 1));
            char byte = 0;
            for (int i = 0; i < TABLES; i++)
                byte |= memory[i * SPAN];
            close(end[1]);
            if (write(touched[1], &byte, 1) != 1)
                _exit(2);
            /* Until all have. */
            _exit(read(end[0], &byte, 1) == 0 ? 0 : 3);
        }
        char byte;
        int status;
        /* One after the other, so that what fails, fails alone. */
        for (;;) {
            if (waitpid(child, &status, WNOHANG) == child) {
                failed++;
                break;
            }
            if (fcntl(touched[0], F_SETFL, O_NONBLOCK) == 0 && read(touched[0], &byte, 1) == 1)
                break;
            usleep(1000);
        }
    }
    print_memory();
    close(end[1]);
    int status;
    while (wait(&status) > 0)
        done += status == 0;
    printf("SPARSE %d of %d programs with %d tables each have ended, %d could not\n", done, PROGRAMS, TABLES, failed);
    return 0;
}
