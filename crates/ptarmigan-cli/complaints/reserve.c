/* Symptom: a program shows 1 TB of virtual memory.
 * Cure: not needed, because addresses that are only reserved have no tables.
 * Thread: kmonad/kmonad#138 */
#include "complaint.h"

int main(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *heap = checked(mmap(0, 1ul << 40, PROT_NONE, flags, -1, 0), "mmap");
    mprotect(heap, MIB, PROT_READ | PROT_WRITE);
    for (int round = 0; round < 100; round++)
        touch(heap, MIB);
    return 0;
}
