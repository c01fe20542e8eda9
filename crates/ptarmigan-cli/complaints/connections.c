/* Symptom: system time rises with the number of new connections a second: a process for each.
 * Cure: a pooler in front, so that few processes stay.
 * Threads: pgbouncer/pgbouncer#60, yugabyte/yugabyte-db#7985 */
#include "complaint.h"

#define BUFFERS (24 * MIB)
#define STATE (16 * MIB)
#define CONNECTIONS 60

int main(int count, char **arguments) {
    int each = is_cured(count, arguments) ? CONNECTIONS : 1;
    char *buffers = checked(mmap(0, BUFFERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), "mmap");
    char *state = filled(STATE);
    touch(buffers, BUFFERS);
    for (int connection = 0; connection < CONNECTIONS; connection += each) {
        if (!fork()) {
            for (int i = 0; i < each; i++)
                touch(buffers, 16 * PAGE);
            touch(state, 400 * PAGE);
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
