/* Process 1: programs on all CPUs, more than there are CPUs, that map memory, write to it, read it
 * again, and unmap it, so that its tables go to other programs and come back. Whatever a TLB or a
 * walker of tables has kept would show as a value of another round, or of another program.
 * `tables=N` on the command line says how many leaf tables are made in all. */
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

enum { PROGRAMS = 8, TABLES = 16 };
/* What one table of x86-64 and of PAE maps. */
#define SPAN (2ul << 20)

static unsigned long tables = 20000;

static void read_command_line(void) {
    static char text[1024];
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    int file = open("/proc/cmdline", O_RDONLY);
    if (file >= 0 && read(file, text, sizeof text - 1) > 0) {
        char *found = strstr(text, "tables=");
        if (found)
            tables = strtoul(found + 7, 0, 10);
    }
}

/* Maps a place, wherever the one before was, and writes and reads a page under each table. */
static int round_of(unsigned long tag) {
    char *memory = mmap(0, SPAN * TABLES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    volatile unsigned long *page[TABLES];
    for (int i = 0; i < TABLES; i++)
        page[i] = (unsigned long *)(memory + i * SPAN + tag % 512 * 4096);
    for (int i = 0; i < TABLES; i++)
        if (*page[i])
            return 2;
    for (int i = 0; i < TABLES; i++) {
        *page[i] = tag + i;
        /* What the frame held before. */
        if (page[i][1])
            return 8;
        page[i][1] = tag;
    }
    for (int i = 0; i < TABLES; i++)
        if (*page[i] != tag + i)
            return 3;
    /* A part goes and comes back at the same addresses. */
    if (munmap(memory, SPAN * TABLES / 2))
        return 4;
    if (mmap(memory, SPAN * TABLES / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != memory)
        return 5;
    for (int i = 0; i < TABLES; i++)
        if (*page[i] != (i < TABLES / 2 ? 0 : tag + i))
            return 6;
    return munmap(memory, SPAN * TABLES) ? 7 : 0;
}

int main(void) {
    read_command_line();
    /* A round makes 24 tables: 16, and 8 of them again. */
    unsigned long rounds = tables / (TABLES * 3 / 2) / PROGRAMS + 1;
    for (int program = 0; program < PROGRAMS; program++) {
        if (fork() == 0) {
            int bad = 0;
            for (unsigned long i = 0; i < rounds && !bad; i++)
                bad = round_of((program + 1) * 1000003ul + i * TABLES);
            _exit(bad);
        }
    }
    int bad = 0, status;
    while (wait(&status) > 0)
        bad |= status;
    printf("RECYCLED %lu tables, %s\n", rounds * PROGRAMS * TABLES * 3 / 2, bad ? "wrong" : "right");
    return bad != 0;
}
