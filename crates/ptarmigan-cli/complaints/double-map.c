/* Symptom: a runtime starts slower once code is written through a second mapping (W^X).
 * Cure: keep the last writable mappings for a while.
 * Threads: dotnet/runtime#54954, dotnet/runtime#83632 */
#include "complaint.h"

#define CODE (8 * MIB)
#define METHOD 600

int main(int count, char **arguments) {
    int file = memfd_create("doublemapper", 0);
    size_t window = is_cured(count, arguments) ? 64 * PAGE : 2 * PAGE, mapped = ~0ul;
    char *writable = 0;
    if (file < 0 || ftruncate(file, CODE)) {
        perror("memfd_create");
        return 1;
    }
    volatile char *code = checked(mmap(0, CODE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0), "mmap");
    for (size_t method = 0; method < 12000; method++) {
        size_t at = method * METHOD % (CODE - 128 * PAGE);
        size_t first = is_cured(count, arguments) ? at & -(window / 2) : at & -PAGE;
        if (mapped != first) {
            writable = checked(mmap(0, window, PROT_READ | PROT_WRITE, MAP_SHARED, file, first), "mmap");
            mapped = first;
        }
        memset(writable + (at - first), 0xc3, METHOD);
        (void)code[at];
        /* The next method may be in the same pages: the mapping is made again all the same. */
        if (!is_cured(count, arguments)) {
            munmap(writable, window);
            mapped = ~0ul;
        }
    }
    return 0;
}
