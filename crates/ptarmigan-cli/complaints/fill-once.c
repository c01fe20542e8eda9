/* Symptom: to write to a large new array is five times slower than to write to it again.
 * Cure: huge pages for the array.
 * Threads: numpy/numpy#27483, numpy/numpy#11957 */
#include "complaint.h"

#define ARRAY (96 * MIB)

int main(int count, char **arguments) {
    char *array = map(ARRAY + TABLE);
    array = (char *)(((uintptr_t)array + TABLE - 1) & -TABLE);
    if (is_cured(count, arguments))
        madvise(array, ARRAY, MADV_HUGEPAGE);
    for (int round = 0; round < 2; round++)
        touch(array, ARRAY);
    return 0;
}
