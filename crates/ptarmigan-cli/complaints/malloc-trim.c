/* Symptom: page faults and system time come back each time that the program trims its heap.
 * Cure: no malloc_trim while the program is busy.
 * Threads: haproxy/haproxy#2091, amule-org/amule#1156, s3fs-fuse/s3fs-fuse#936 */
#include "complaint.h"
#include <malloc.h>

#define OBJECTS 1500
#define BYTES (20ul << 10)

int main(int count, char **arguments) {
    static char *object[OBJECTS];
    for (int request = 0; request < 12; request++) {
        for (int i = 0; i < OBJECTS; i++)
            if (!object[i]) {
                object[i] = checked(malloc(BYTES), "malloc");
                touch(object[i], BYTES);
            }
        /* The last object stays, so that the rest is no top of the heap. */
        for (int i = 0; i < OBJECTS - 1; i++) {
            free(object[i]);
            object[i] = 0;
        }
        if (!is_cured(count, arguments))
            malloc_trim(0);
    }
    return 0;
}
