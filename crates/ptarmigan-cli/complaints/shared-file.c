/* Symptom: PageTables grows with each process that maps one large file.
 * Cure: fewer processes (threads), or readers that touch less; files have no huge pages.
 * Threads: maxmind/libmaxminddb#370, numpy/numpy#26532 */
#include "complaint.h"

#define DATA (64 * MIB)

int main(int count, char **arguments) {
    int file = open("shared-file.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    static char record[MIB];
    for (size_t at = 0; at < DATA; at += sizeof record)
        if (pwrite(file, record, sizeof record, at) != sizeof record) {
            perror("shared-file.data");
            return 1;
        }
    for (int reader = is_cured(count, arguments) ? 14 : 0; reader < 16; reader++)
        if (!fork()) {
            volatile char *data = checked(mmap(0, DATA, PROT_READ, MAP_SHARED, file, 0), "mmap");
            for (size_t at = 0; at < DATA; at += 16 * PAGE)
                (void)data[at];
            usleep(100000);
            _exit(0);
        }
    while (wait(0) > 0)
        ;
    unlink("shared-file.data");
    return 0;
}
