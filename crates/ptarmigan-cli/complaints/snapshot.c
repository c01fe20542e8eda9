/* Symptom: a store that saves by fork under writes needs much more memory, and halts for moments.
 * Cure: no huge pages; fewer writes while it saves. The child needs all data.
 * Threads: redis/redis#2844, redis/redis#1823, redis/redis#9030 */
#include "complaint.h"

#define DATA (48 * MIB)

int main(void) {
    volatile char *data = map(DATA);
    touch(data, DATA);
    for (int save = 0; save < 3; save++) {
        int done[2];
        long sum = 0;
        if (pipe(done))
            return 1;
        if (!fork()) {
            for (size_t at = 0; at < DATA; at += PAGE)
                sum += data[at];
            usleep(30000);
            _exit(sum == 0);
        }
        for (size_t write = 0; write < 6000; write++)
            data[write * 7919 % (DATA / PAGE) * PAGE] = 2;
        wait(0);
    }
    return 0;
}
