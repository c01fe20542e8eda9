/* Symptom: brk goes up and down with each message, and page faults with it.
 * Cure: a trim_threshold above the memory of a batch.
 * Threads: cloudflare/cf_benchmark#2, floodlight/ivs#143, eryx-org/eryx#419 */
#include "complaint.h"

#define MESSAGES 32
#define BYTES (64ul << 10)

int main(void) {
    char *message[MESSAGES];
    for (int batch = 0; batch < 100; batch++) {
        for (int i = 0; i < MESSAGES; i++) {
            message[i] = checked(malloc(BYTES), "malloc");
            touch(message[i], BYTES);
        }
        for (int i = MESSAGES; i-- > 0;)
            free(message[i]);
    }
    return 0;
}
