/* Symptom: an instance of a module for each request does not scale with threads.
 * Cure: slots that are kept and cleared (a pooling allocator that keeps memory resident).
 * Threads: bytecodealliance/wasmtime#5243, wasmerio/wasmer#2563, wasmerio/wasmer#6651 */
#include "complaint.h"

#define RESERVED (4ul << 30)
#define USED (16 * PAGE)

static int pooled;

static void *serve(void *unused) {
    char *slot = 0;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    for (int request = 0; request < 1000; request++) {
        if (!slot) {
            slot = checked(mmap(0, RESERVED, PROT_NONE, flags, -1, 0), "mmap");
            mprotect(slot, MIB, PROT_READ | PROT_WRITE);
        }
        touch(slot, USED);
        if (pooled)
            memset(slot, 0, USED);
        else {
            munmap(slot, RESERVED);
            slot = 0;
        }
    }
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread[3];
    pooled = is_cured(count, arguments);
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], 0, serve, 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], 0);
    return 0;
}
