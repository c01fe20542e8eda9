/* Symptom: helpers of a server with a large cache are slow to fork.
 * Cure: MADV_DONTFORK on the cache, which helpers never use.
 * Threads: libuv/libuv#1715 (its last comment), rubyjs/libv8-node#54 */
#include "complaint.h"

#define CACHE (128 * MIB)
#define STATE (8 * MIB)

int main(int count, char **arguments) {
    char *cache = filled(CACHE + 2 * PAGE) + PAGE;
    /* Holes keep it apart from other mappings, which children write to. */
    munmap(cache - PAGE, PAGE);
    munmap(cache + CACHE, PAGE);
    char *state = filled(STATE);
    if (is_cured(count, arguments))
        madvise(cache, CACHE, MADV_DONTFORK);
    for (int helper = 0; helper < 12; helper++) {
        if (!fork()) {
            touch(state, STATE);
            usleep(1000);
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
