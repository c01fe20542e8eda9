/* Symptom: numeric code that makes and drops large arrays spends most of its time in the kernel.
 * Cure: keep the memory: glibc's mmap_threshold and trim_threshold, or arrays that are reused.
 * Threads: numpy/numpy#8783, numpy/numpy#11919, openfheorg/openfhe-development#1213 */
#include "complaint.h"

/* Above 32 MiB, the most that glibc raises its threshold to. */
#define BYTES (36 * MIB)

int main(void) {
    for (int step = 0; step < 8; step++) {
        char *result = checked(malloc(BYTES), "malloc");
        touch(result, BYTES);
        free(result);
    }
    return 0;
}
