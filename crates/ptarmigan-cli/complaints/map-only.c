/* Symptom: munmap is 90 % of the time of a program that maps and unmaps and hardly reads.
 * Cure: fewer calls. Page tables are no cause: no page and no table comes back.
 * Thread: frankmcsherry/columnation#12 */
#include "complaint.h"

int main(void) {
    for (int i = 0; i < 8000; i++)
        munmap(map(4 * MIB), 4 * MIB);
    return 0;
}
