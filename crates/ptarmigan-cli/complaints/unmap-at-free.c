/* Symptom: freeing got much slower after an update of the allocator, and system time rose.
 * Cure: the allocator keeps freed memory (no aggressive decommit).
 * Threads: gperftools/gperftools#839, microsoft/snmalloc#251
 * The program has this allocator in itself, so that no switch of glibc changes it. */
#include "complaint.h"

#define SPAN (8 * PAGE)

static char *kept[64];
static int number, keeps;

static char *span_alloc(void) { return number ? kept[--number] : map(SPAN); }

static void span_free(char *span) {
    if (keeps && number < 64)
        kept[number++] = span;
    else
        munmap(span, SPAN);
}

int main(int count, char **arguments) {
    char *span[16];
    keeps = is_cured(count, arguments);
    for (int task = 0; task < 400; task++) {
        for (int i = 0; i < 16; i++)
            touch(span[i] = span_alloc(), SPAN);
        for (int i = 0; i < 16; i++)
            span_free(span[i]);
    }
    return 0;
}
