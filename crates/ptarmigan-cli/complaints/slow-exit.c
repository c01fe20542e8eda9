/* Symptom: a data server takes seconds to stop, though its work is done.
 * Cure: _exit without destructors; huge pages in the heap, and no trim of it.
 * Threads: msoos/cryptominisat#318, GenSpectrum/LAPIS-SILO#969, mpv-player/mpv#12294 */
#include "complaint.h"

#define OBJECTS 2400
#define BYTES (100ul << 10)

int main(void) {
    static char *object[OBJECTS];
    for (int i = 0; i < OBJECTS; i++)
        touch(object[i] = checked(malloc(BYTES), "malloc"), BYTES);
    for (int i = OBJECTS; i-- > 0;)
        free(object[i]);
    return 0;
}
