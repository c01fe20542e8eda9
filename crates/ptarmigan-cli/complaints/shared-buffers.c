/* Symptom: PageTables grows with the connections of a database that has shared buffers.
 * Cure: huge pages for the shared memory; fewer processes.
 * Threads: darold/pgcluu#98, le0pard/pgtune#81, Tencent/TBase#80 */
#include "complaint.h"

#define BUFFERS (48 * MIB)

int main(void) {
    int open_all[2];
    char *buffers = checked(mmap(0, BUFFERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), "mmap");
    if (pipe(open_all))
        return 1;
    touch(buffers, BUFFERS);
    for (int backend = 0; backend < 12; backend++)
        if (!fork()) {
            touch(buffers, BUFFERS);
            /* All are connected at once. */
            close(open_all[1]);
            if (read(open_all[0], &backend, sizeof backend) < 0)
                _exit(1);
            _exit(0);
        }
    usleep(300000);
    close(open_all[1]);
    while (wait(0) > 0)
        ;
    return 0;
}
