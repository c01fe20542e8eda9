/* Threads, fork, exec, and their ends. */
#include "zoo.h"
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>

static void *write_and_unmap(void *at) {
    char *p = at;
    for (int i = 0; i < 200; i++) {
        char *q = map(64 * PAGE, RW, PRIVATE);
        write_pages(q, 64 * PAGE);
        munmap(q, 64 * PAGE);
        p[(i * 13 % 512) * PAGE] = 1;
    }
    return NULL;
}
CASE(threads) {
    char *p = aligned(TABLE);
    pthread_t all[8];
    for (int i = 0; i < 8; i++) {
        pthread_create(&all[i], NULL, write_and_unmap, p);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(all[i], NULL);
    }
    fork_once();
}
static void *fork_often(void *unused) {
    for (int i = 0; i < 40; i++) {
        char *q = map(3 * MIB, RW, PRIVATE);
        write_pages(q, 3 * MIB);
        fork_once();
        munmap(q, 3 * MIB);
    }
    return unused;
}
CASE(threads_fork) {
    pthread_t all[6];
    for (int i = 0; i < 6; i++) {
        pthread_create(&all[i], NULL, fork_often, NULL);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(all[i], NULL);
    }
}
static void *spin(void *unused) {
    for (;;) {
        char *q = map(MIB, RW, PRIVATE);
        write_pages(q, MIB);
        munmap(q, MIB);
    }
    return unused;
}
static void start_spinning(int threads) {
    pthread_t thread;
    while (threads-- > 0) {
        pthread_create(&thread, NULL, spin, NULL);
    }
}
static void *execute(void *unused) {
    execl("/bin/true", "true", NULL);
    return unused;
}
CASE(thread_executes) {
    pthread_t thread;
    start_spinning(3);
    pthread_create(&thread, NULL, execute, NULL);
    pause();
}
CASE(exit_beside_threads) {
    start_spinning(4);
    usleep(20000);
}
CASE(exits_beside_threads) {
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) {
            start_spinning(4);
            usleep(2000);
            syscall(SYS_exit_group, 0);
        }
        waitpid(child, NULL, 0);
    }
}
CASE(killed) {
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            spin(NULL);
        }
        usleep(3000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}
CASE(vfork_execute) {
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    }
}
static char stack[16 * PAGE] __attribute__((aligned(16)));
static int write_beside(void *at) {
    char *p = at;
    write_pages(p, TABLE);
    write_pages(map_over(p + 2 * TABLE, TABLE, RW, PRIVATE, -1), TABLE);
    return 0;
}
static int execute_true(void *unused) {
    execute(unused);
    return 1;
}
CASE(clone_shares) {
    CHECK(clone(write_beside, stack + sizeof stack, CLONE_VM | SIGCHLD, aligned(TABLE)) > 0);
    wait(NULL);
    fork_once();
}
CASE(clone_shares_executes) {
    CHECK(clone(execute_true, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) > 0);
    write_pages(aligned(4 * TABLE), 4 * TABLE);
    wait(NULL);
}
CASE(clone_untraced) {
    int flags = CLONE_UNTRACED | CLONE_VM | CLONE_VFORK | SIGCHLD;
    CHECK(clone(execute_true, stack + sizeof stack, flags, NULL) > 0);
    int how = 0;
    wait(&how);
    CHECK(how == 0);
}
CASE(clone3_vfork) {
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = sizeof stack,
    };
    if (syscall(SYS_clone3, &args, sizeof args) == 0) {
        syscall(SYS_exit, 0);
    }
    wait(NULL);
    write_pages(aligned(TABLE), TABLE);
}
CASE(arguments_large) {
    static char large[120000];
    char *args[17] = {"true"};
    memset(large, 'a', sizeof large - 1);
    for (int i = 1; i < 16; i++) {
        args[i] = large;
    }
    pid_t child = fork();
    if (child == 0) {
        execv("/bin/true", args);
        _exit(1);
    }
    int how = 0;
    waitpid(child, &how, 0);
    CHECK(how == 0);
}
