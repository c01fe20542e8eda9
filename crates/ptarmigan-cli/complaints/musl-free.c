/* Symptom: a static program (musl) is many times slower than the same one with glibc.
 * Cure: another allocator, or buffers that are reused.
 * Threads: WebAssembly/binaryen#5561, bram209/leptosfmt#191, richfelker/mallocng-draft#3 */
#include "complaint.h"

#define BYTES (160ul << 10)

int main(int count, char **arguments) {
    char *kept = 0;
    for (int line = 0; line < 1500; line++) {
        char *buffer = kept ? kept : checked(malloc(BYTES), "malloc");
        touch(buffer, BYTES);
        if (is_cured(count, arguments))
            kept = buffer;
        else
            free(buffer);
    }
    return 0;
}
