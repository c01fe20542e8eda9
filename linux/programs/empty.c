/* Process 1, or any process of Linux: memory that is given back page by page, and the tables that
 * are left. Linux keeps them: 0 of 32 are gone there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define PAGE 4096ul
#define SPAN (2ul << 20)
#define BASE ((char *)0x50000000)
enum { TABLES = 32 };

/* Linux's count of this process's tables, in KiB. */
static long table_kib(void) {
    char line[128];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmPTE:", 6))
            kib = atol(line + 6);
    if (status)
        fclose(status);
    return kib;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    if (mmap(BASE - SPAN, (TABLES + 1) * SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != BASE - SPAN) {
        puts("WRONG mmap");
        return 1;
    }
    /* The tables above, and those of the C library's buffers. */
    BASE[-PAGE] = 1;
    table_kib();
    long before = table_kib();
    for (int round = 0; round < 3; round++) {
        for (int n = 0; n < TABLES; n++)
            for (int i = 0; i < 3; i++)
                BASE[n * SPAN + i * PAGE] = 1;
        for (int n = 0; n < TABLES; n++)
            for (int i = 0; i < 3; i++)
                if (madvise(BASE + n * SPAN + i * PAGE, PAGE, MADV_DONTNEED) != 0 || BASE[n * SPAN + 64 * PAGE] > 0) {
                    puts("WRONG madvise");
                    return 1;
                }
        for (int n = 0; n < TABLES; n++)
            madvise(BASE + n * SPAN + 64 * PAGE, PAGE, MADV_DONTNEED);
    }
    long left = (table_kib() - before) / 4;
    if (before < 0 || left < 0 || left > TABLES) {
        printf("WRONG VmPTE: %ld KiB before, %ld tables left\n", before, left);
        return 1;
    }
    printf("EMPTY %ld of %d tables are gone\n", TABLES - left, TABLES);
    return 0;
}
