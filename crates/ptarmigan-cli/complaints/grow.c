/* Symptom: an array that grows by realloc copies and faults its pages again at each step.
 * Cure: mremap moves the pages (glibc's realloc does for mapped memory); or reserve the size.
 * Threads: jemalloc/jemalloc#126, microsoft/mimalloc#693 */
#include "complaint.h"

int main(int count, char **arguments) {
    for (int list = 0; list < 4; list++) {
        size_t bytes = MIB;
        char *array = map(bytes);
        touch(array, bytes);
        for (; bytes < 24 * MIB; bytes += MIB) {
            if (is_cured(count, arguments))
                array = checked(mremap(array, bytes, bytes + MIB, MREMAP_MAYMOVE), "mremap");
            else {
                char *larger = map(bytes + MIB);
                memcpy(larger, array, bytes);
                munmap(array, bytes);
                array = larger;
            }
            touch(array + bytes, MIB);
        }
        munmap(array, bytes);
    }
    return 0;
}
