/* Symptom: VmPTE grows though the program gives all memory back, by MADV_DONTNEED page for page.
 * Cure: one call for the whole region, which frees its table (Linux 6.14), or munmap.
 * Threads: ydb-platform/ydb#52719, https://lkml.org/lkml/2011/4/15/225, google/gvisor#237 */
#include "complaint.h"

#define REGIONS 100

int main(int count, char **arguments) {
    char *memory = map((REGIONS + 1) * TABLE);
    char *first = (char *)(((uintptr_t)memory + TABLE - 1) & -TABLE);
    size_t piece = is_cured(count, arguments) ? TABLE : 32 * PAGE;
    for (int region = 0; region < REGIONS; region++) {
        char *pages = first + region * TABLE;
        for (size_t at = 0; at < TABLE; at += 4 * PAGE)
            pages[at] = 1;
        for (size_t at = 0; at < TABLE; at += piece)
            madvise(pages + at, piece, MADV_DONTNEED);
    }
    return 0;
}
