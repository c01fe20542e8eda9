/* Symptom: memory of preloaded workers stops being shared, though they only read it.
 * Cure: counters and marks of inherited objects apart from the objects, or set before the fork.
 * Threads: puma/puma#2093, phusion/passenger#2359 */
#include "complaint.h"

#define OBJECTS (1ul << 18)

struct object {
    long references;
    char data[120];
};

int main(int count, char **arguments) {
    struct object *loaded = (struct object *)map(OBJECTS * sizeof *loaded);
    char *apart = map(OBJECTS);
    for (size_t i = 0; i < OBJECTS; i++)
        loaded[i].references = 1;
    for (int worker = 0; worker < 4; worker++)
        if (!fork()) {
            for (size_t i = 0; i < OBJECTS; i++)
                if (is_cured(count, arguments))
                    apart[i]++;
                else
                    loaded[i].references++;
            _exit(0);
        }
    while (wait(0) > 0)
        ;
    return 0;
}
