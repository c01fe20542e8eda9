/* Symptom: high system time since jemalloc was told to give memory back at once.
 * Cure: the default decay, 10 s.
 * Threads: monoscope-tech/timefusion#153, apollographql/router#3396 */
#include "complaint.h"

#define BYTES (2 * MIB)

int main(void) {
    for (int scan = 0; scan < 100; scan++) {
        char *batch = checked(malloc(BYTES), "malloc");
        touch(batch, BYTES);
        free(batch);
    }
    return 0;
}
