/* Symptom: page tables take more memory than the data of a large array that is mostly unused.
 * Cure: a dense array behind an index.
 * Threads: https://robert.ocallahan.org/2016/06/managing-vast-sparse-memory-on-linux.html,
 * mmtk/mmtk-core#208 */
#include "complaint.h"

#define ADDRESSES (32ul << 30)
#define ENTRIES 3000ul

int main(int count, char **arguments) {
    char *table = map(ADDRESSES);
    for (uint64_t key = 0; key < ENTRIES; key++) {
        uint64_t hash = key * 0x9e3779b97f4a7c15 >> 29;
        table[is_cured(count, arguments) ? key * PAGE : hash & -PAGE & (ADDRESSES - 1)] = 1;
    }
    return 0;
}
