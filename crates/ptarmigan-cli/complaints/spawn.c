/* Symptom: to start a small program takes the longer the more memory the server has.
 * Cure: posix_spawn or vfork.
 * Threads: libuv/libuv#1715, rust-lang/rust#87764, flux-framework/flux-core#384 */
#include "complaint.h"
#include <spawn.h>

#define HEAP (192 * MIB)

extern char **environ;

int main(int count, char **arguments) {
    char *command[] = {"/bin/true", 0};
    filled(HEAP);
    for (int i = 0; i < 25; i++) {
        pid_t child;
        if (is_cured(count, arguments))
            posix_spawn(&child, command[0], 0, 0, command, environ);
        else if (!(child = fork())) {
            execv(command[0], command);
            _exit(127);
        }
        waitpid(child, 0, 0);
    }
    return 0;
}
