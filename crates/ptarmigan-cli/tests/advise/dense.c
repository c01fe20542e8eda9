/* Fills 32 MiB page by page. Mended: asks for huge pages. */
#include "programs.h"

#define BYTES (16 * TABLE)

/* Whether the kernel found huge pages for all of it. It may have none in one piece. */
static int has_huge_pages(void) {
    unsigned long sum = 0, kilobytes;
    char line[256];
    FILE *maps = fopen("/proc/self/smaps_rollup", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "AnonHugePages: %lu", &kilobytes) == 1)
            sum += kilobytes;
    return sum >= BYTES / 1024;
}

int main(int argc, char **argv) {
    int mended = is_mended(argc, argv);
    char *memory = map(BYTES);
    if (mended)
        advise(memory, BYTES, MADV_HUGEPAGE);
    for (size_t at = 0; at < BYTES; at += PAGE)
        memory[at] = 1;
    return mended && !has_huge_pages() ? 77 : 0;
}
