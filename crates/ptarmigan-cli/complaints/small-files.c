/* Symptom: to read many small files through mmap is slower than read.
 * Cure: read into a buffer that stays.
 * Threads: firebuild/firebuild#419, gvansickle/ucg#14 */
#include "complaint.h"

#define BYTES (4 * PAGE)

int main(int count, char **arguments) {
    static char buffer[BYTES];
    int file = open("small-files.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(file, buffer, BYTES) != BYTES)
        return 1;
    for (int i = 0; i < 6000; i++)
        if (is_cured(count, arguments)) {
            if (pread(file, buffer, BYTES, 0) != BYTES)
                return 1;
        } else {
            volatile char *text = checked(mmap(0, BYTES, PROT_READ, MAP_PRIVATE, file, 0), "mmap");
            (void)text[0];
            munmap((void *)text, BYTES);
        }
    unlink("small-files.data");
    return 0;
}
