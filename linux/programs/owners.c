/* Process 1, or a program on Linux: locks whose owners die, futexes that are changed and woken in
 * one call, CPUs, priorities, what was used, and children that are waited for. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

static char *own_name;
static pthread_mutex_t *locks;

static void make_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &kind);
}

static void pass(long milliseconds) {
    struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, 0);
}

static void *dies_with_lock(void *lock) {
    pthread_mutex_lock(lock);
    return 0;
}

/* Each child takes a lock and ends in another way; its parent gets the lock, and learns of it. */
static void owners(void) {
    for (int way = 0; way < 4; way++) {
        pthread_mutex_t *lock = locks + way;
        make_lock(lock);
        int ready[2];
        check("a pipe", pipe(ready) == 0);
        pid_t child = fork();
        if (child == 0) {
            pthread_mutex_lock(lock);
            (void)!write(ready[1], "x", 1);
            /* The parent waits for the lock meanwhile. */
            if (way > 0)
                pass(30);
            if (way == 2)
                kill(getpid(), SIGKILL);
            if (way == 3)
                execl(own_name, own_name, "again", (char *)0);
            _exit(0);
        }
        char byte;
        check("a child with a lock", read(ready[0], &byte, 1) == 1);
        if (way == 0)
            check("its end", waitpid(child, 0, 0) == child);
        check("an owner that died", pthread_mutex_lock(lock) == EOWNERDEAD);
        check("a lock that is right again", pthread_mutex_consistent(lock) == 0 && pthread_mutex_unlock(lock) == 0);
        check("a lock as before", pthread_mutex_lock(lock) == 0 && pthread_mutex_unlock(lock) == 0);
        if (way > 0)
            waitpid(child, 0, 0);
        close(ready[0]);
        close(ready[1]);
    }
    pthread_t thread;
    make_lock(locks);
    pthread_create(&thread, 0, dies_with_lock, locks);
    check("a thread that died", pthread_join(thread, 0) == 0 && pthread_mutex_lock(locks) == EOWNERDEAD);
    pthread_mutex_consistent(locks);
    pthread_mutex_unlock(locks);
    /* Lists that cannot be followed: the task ends all the same. */
    static long loop[3], far[3];
    loop[0] = (long)&loop[0] + 8;
    loop[1] = (long)loop;
    far[0] = 8, far[2] = -8;
    long *lists[] = {loop, far, (long *)8, (long *)-8};
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            syscall(SYS_set_robust_list, lists[i], 3 * sizeof(long));
            _exit(5);
        }
        int status = 0;
        check("a bad list", waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    long *head = 0;
    size_t length = 0;
    check("the list", syscall(SYS_get_robust_list, 0, &head, &length) == 0 && head && length == 3 * sizeof(long));
    check("a list of another size", syscall(SYS_set_robust_list, head, 8) == -1 && errno == EINVAL);
    check("nobody's list", syscall(SYS_get_robust_list, 999999, &head, &length) == -1 && errno == ESRCH);
}

static int words[2];

static void *waits(void *word) {
    int value = *(int *)word;
    return (void *)syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, 0, 0, 0);
}

static long wake_op(int operation) {
    return syscall(SYS_futex, &words[0], FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 9, 9L, &words[1], operation);
}

static void wake_ops(void) {
    pthread_t first, second;
    words[1] = 5;
    pthread_create(&first, 0, waits, &words[0]);
    pthread_create(&second, 0, waits, &words[1]);
    pass(30);
    check("the first alone", wake_op(FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_GT, 5)) == 1 && words[1] == 8);
    check("the second", wake_op(FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 8)) == 1 && words[1] == 11);
    pthread_join(first, 0);
    pthread_join(second, 0);
    check("a bit", wake_op(FUTEX_OP(FUTEX_OP_OR | FUTEX_OP_OPARG_SHIFT, 4, FUTEX_OP_CMP_EQ, 0)) == 0 && words[1] == 27);
    check("no such operation", wake_op(6 << 28) == -1 && errno == ENOSYS);
    check("a bad word", syscall(SYS_futex, &words[0], FUTEX_WAKE_OP, 1, 1L, (int *)8, 0) == -1 && errno == EFAULT);
}

static void cpus(void) {
    cpu_set_t set;
    unsigned cpu = 99, node = 99;
    check("CPUs", sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= 1);
    check("all of them", sched_setaffinity(0, sizeof set, &set) == 0);
    check("the CPU", syscall(SYS_getcpu, &cpu, &node, 0) == 0 && CPU_ISSET(cpu, &set) && node < 8);
    CPU_ZERO(&set);
    check("no CPU", sched_setaffinity(0, sizeof set, &set) == -1 && errno == EINVAL);
    check("half a word", syscall(SYS_sched_getaffinity, 0, 3, &set) == -1 && errno == EINVAL);
    check("nobody's CPUs", sched_getaffinity(999999, sizeof set, &set) == -1 && errno == ESRCH);
    check("the policy", sched_getscheduler(0) == SCHED_OTHER);
    check("priorities", sched_get_priority_max(SCHED_FIFO) == 99 && sched_get_priority_min(SCHED_RR) == 1 &&
                            sched_get_priority_max(SCHED_OTHER) == 0 && sched_get_priority_max(77) == -1);
    errno = 0;
    check("a priority", setpriority(PRIO_PROCESS, 0, 7) == 0 && getpriority(PRIO_PROCESS, 0) == 7);
    check("the highest", setpriority(PRIO_PROCESS, 0, -100) != 0 || getpriority(PRIO_PROCESS, 0) == -20);
    setpriority(PRIO_PROCESS, 0, 0);
    check("nobody's priority", getpriority(PRIO_PROCESS, 999999) == -1 && errno == ESRCH);
    check("no such kind", getpriority(9, 0) == -1 && errno == EINVAL);
}

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec / 1e6; }

static void work(double until) {
    struct rusage usage;
    do {
        for (volatile int i = 0; i < 100000; i++) {
        }
        getrusage(RUSAGE_SELF, &usage);
    } while (seconds(usage.ru_utime) < until);
}

static void usage(void) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    char *memory = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, 64 * 4096, MADV_NOHUGEPAGE);
    for (int i = 0; i < 64; i++)
        memory[i * 4096] = 1;
    getrusage(RUSAGE_SELF, &after);
    long faults = after.ru_minflt - before.ru_minflt;
    check("faults", faults >= 64 && faults < 100);
    work(seconds(before.ru_utime) + 0.1);
    struct tms times_used;
    times(&times_used);
    check("time", times_used.tms_utime >= 9 && times_used.tms_utime < 1000);
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &before);
    pid_t child = fork();
    if (child == 0) {
        work(0.1);
        _exit(0);
    }
    check("a child's use", wait4(child, 0, 0, &after) == child && seconds(after.ru_utime) >= 0.09 && after.ru_minflt > 0);
    getrusage(RUSAGE_CHILDREN, &children);
    check("children's use", seconds(children.ru_utime) - seconds(before.ru_utime) >= 0.09);
    check("nobody's use", getrusage(7, &after) == -1 && errno == EINVAL);
}

static void waiting(void) {
    siginfo_t info;
    check("no child", waitid(P_ALL, 0, &info, WEXITED) == -1 && errno == ECHILD);
    pid_t child = fork();
    if (child == 0) {
        pass(30);
        _exit(6);
    }
    memset(&info, 1, sizeof info);
    check("not yet", waitid(P_PID, child, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0 && info.si_signo == 0);
    for (int i = 0; i < 3; i++) {
        memset(&info, 0, sizeof info);
        int again = i < 2 ? WNOWAIT : 0;
        check("an end", waitid(P_PID, child, &info, WEXITED | again) == 0 && info.si_pid == child &&
                            info.si_signo == SIGCHLD && info.si_code == CLD_EXITED && info.si_status == 6);
    }
    check("only once", waitid(P_PID, child, &info, WEXITED) == -1 && errno == ECHILD);
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        for (;;)
            pause();
    }
    setpgid(child, child);
    kill(child, SIGKILL);
    check("a group", waitid(P_PGID, child, &info, WEXITED) == 0 && info.si_code == CLD_KILLED && info.si_status == SIGKILL);
    check("no kind of end", waitid(P_ALL, 0, &info, WNOHANG) == -1 && errno == EINVAL);
    check("no such kind", waitid(9, 1, &info, WEXITED) == -1 && errno == EINVAL);
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "again"))
        return 0;
    own_name = arguments[0];
    setvbuf(stdout, 0, _IONBF, 0);
    locks = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    owners();
    wake_ops();
    cpus();
    usage();
    waiting();
    printf("OWNERS %s\n", failures ? "wrong" : "right");
    return failures != 0;
}
