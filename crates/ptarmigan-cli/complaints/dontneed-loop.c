/* Symptom: thousands of minor faults a second, with a madvise before each of them.
 * Cure: give memory back later, or not at all (a longer decay).
 * Threads: rust-lang/rust#31885, jemalloc/jemalloc#192, jemalloc/jemalloc#1422 */
#include "complaint.h"

#define BUFFER (64 * PAGE)

int main(int count, char **arguments) {
    char *buffer = map(BUFFER);
    for (int request = 0; request < 1000; request++) {
        touch(buffer, BUFFER);
        if (!is_cured(count, arguments))
            madvise(buffer, BUFFER, MADV_DONTNEED);
    }
    return 0;
}
