/* Symptom: a large mapping is slow to make since it is populated at once.
 * Cure: fewer pages. The faults are gone already, and the pages have to be made.
 * Threads: apache/arrow#992, milvus-io/milvus#46761 */
#include "complaint.h"

#define POOL (48 * MIB)

int main(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    volatile char *pool = checked(mmap(0, POOL, PROT_READ | PROT_WRITE, flags, -1, 0), "mmap");
    mlock((void *)pool, POOL);
    for (int round = 0; round < 20; round++)
        touch(pool, POOL);
    return 0;
}
