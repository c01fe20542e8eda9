/* Symptom: a fuzzer forks its target for each input, and runs a few hundred inputs a second.
 * Cure: many inputs in each child (persistent mode).
 * Thread: google/sanitizers#939 */
#include "complaint.h"

#define SHADOW (48 * MIB)
#define INPUTS 120

int main(int count, char **arguments) {
    int each = is_cured(count, arguments) ? INPUTS / 2 : 1;
    char *shadow = filled(SHADOW);
    for (int input = 0; input < INPUTS; input += each) {
        if (!fork()) {
            for (int i = 0; i < each; i++)
                touch(shadow, 16 * PAGE);
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
