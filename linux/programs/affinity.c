/* Process 1, or a program on Linux: the CPUs that tasks may run on. It ends with status 0 there,
 * too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

static cpu_set_t all;
static int cpus[CPU_SETSIZE], count;
/* What tasks tell each other: turns, and the CPU of the last one. */
static struct told {
    volatile long turns;
    volatile int cpu, stops, wrong;
} *told;

static cpu_set_t one(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

static int has_only(int cpu) {
    cpu_set_t set, wanted = one(cpu);
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_EQUAL(&set, &wanted);
}

static int here(void) {
    unsigned cpu = 999;
    return syscall(SYS_getcpu, &cpu, 0, 0) == 0 ? (int)cpu : -1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Works, waits and yields; whether it was on the CPU all the time. */
static int stays(int cpu) {
    int right = here() == cpu;
    double end = now() + 0.03;
    while (now() < end)
        right &= here() == cpu;
    struct timespec time = {.tv_nsec = 10000000};
    nanosleep(&time, 0);
    right &= here() == cpu;
    for (int i = 0; i < 100; i++) {
        sched_yield();
        right &= here() == cpu;
    }
    return right && has_only(cpu);
}

static void *stays_too(void *cpu) { return (void *)(long)stays((int)(long)cpu); }

static void sets(void) {
    cpu_set_t set = all, seen;
    for (int i = 0; i < count; i++) {
        set = one(cpus[i]);
        ANSWERS(0, sched_setaffinity(0, sizeof set, &set));
        check("the CPU is the one that was asked for, at once", here() == cpus[i]);
        check("the set is kept", has_only(cpus[i]));
        check("a task stays where it may run", stays(cpus[i]));
    }
    /* CPUs that are not there are left out; a set of these alone is no set. */
    CPU_SET(CPU_SETSIZE - 1, &set);
    ANSWERS(0, sched_setaffinity(0, sizeof set, &set));
    check("others are left out", has_only(cpus[count - 1]));
    CPU_CLR(cpus[count - 1], &set);
    ANSWERS(EINVAL, sched_setaffinity(0, sizeof set, &set));
    CPU_ZERO(&set);
    ANSWERS(EINVAL, sched_setaffinity(0, sizeof set, &set));
    ANSWERS(EINVAL, sched_setaffinity(0, 0, &all));
    ANSWERS(EFAULT, sched_setaffinity(0, sizeof set, (cpu_set_t *)8));
    ANSWERS(ESRCH, sched_setaffinity(999999, sizeof set, &all));
    check("the set is as it was", has_only(cpus[count - 1]));
    /* The bytes that are given count, and no others. */
    set = one(cpus[0]);
    ANSWERS(0, syscall(SYS_sched_setaffinity, 0, 1 + cpus[0] / 8, &set));
    check("a short set", has_only(cpus[0]));
    ANSWERS(0, sched_setaffinity(0, sizeof all, &all));
    check("all of them", sched_getaffinity(0, sizeof seen, &seen) == 0 && CPU_EQUAL(&seen, &all));
}

/* The lines of /proc about the first CPU alone. */
static void shows(void) {
    char line[200], wanted[40], list[40];
    unsigned long bits = 0;
    cpu_set_t set = one(cpus[0]);
    sched_setaffinity(0, sizeof set, &set);
    FILE *status = fopen("/proc/self/status", "r");
    *list = 0;
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "Cpus_allowed: %lx", &bits);
        sscanf(line, "Cpus_allowed_list: %39s", list);
    }
    snprintf(wanted, sizeof wanted, "%d", cpus[0]);
    check("the set in /proc", cpus[0] > 31 || bits == 1ul << cpus[0]);
    check("its list", !strcmp(list, wanted));
    if (status)
        fclose(status);
    sched_setaffinity(0, sizeof all, &all);
}

/* Threads, children and programs get the set. */
static void inherits(const char *name) {
    int cpu = cpus[count - 1], status;
    cpu_set_t set = one(cpu);
    sched_setaffinity(0, sizeof set, &set);
    pthread_t thread;
    void *right = 0;
    pthread_create(&thread, 0, stays_too, (void *)(long)cpu);
    pthread_join(thread, &right);
    check("a thread", right != 0);
    pid_t child = fork();
    if (child == 0)
        _exit(stays(cpu) ? 7 : 8);
    waitpid(child, &status, 0);
    check("a child", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    child = fork();
    if (child == 0) {
        char number[12];
        snprintf(number, sizeof number, "%d", cpu);
        execl(name, name, number, (char *)0);
        _exit(9);
    }
    waitpid(child, &status, 0);
    check("a program", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    sched_setaffinity(0, sizeof all, &all);
    child = fork();
    if (child == 0) {
        cpu_set_t seen;
        _exit(sched_getaffinity(0, sizeof seen, &seen) == 0 && CPU_EQUAL(&seen, &all) ? 7 : 8);
    }
    waitpid(child, &status, 0);
    check("a child of all CPUs", WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void turns(void) {
    while (!told->stops) {
        told->cpu = here();
        told->turns++;
    }
}

/* Another task's set: one that works, and one that waits. */
static void others(void) {
    told->stops = 0;
    pid_t child = fork();
    if (child == 0) {
        turns();
        _exit(7);
    }
    for (int round = 0; round < 20; round++) {
        int cpu = cpus[round % count], moves = 0;
        cpu_set_t set = one(cpu), seen;
        ANSWERS(0, sched_setaffinity(child, sizeof set, &set));
        check("its set", sched_getaffinity(child, sizeof seen, &seen) == 0 && CPU_EQUAL(&seen, &set));
        double end = now() + 5;
        while (now() < end && !(moves = told->cpu == cpu))
            sched_yield();
        check("it moves", moves);
        long before = told->turns;
        end = now() + 5;
        while (now() < end && told->turns < before + 100)
            sched_yield();
        check("it goes on there", told->turns >= before + 100 && told->cpu == cpu);
    }
    told->stops = 1;
    int status;
    waitpid(child, &status, 0);
    ANSWERS(ESRCH, sched_setaffinity(child, sizeof all, &all));
    int ends[2];
    (void)!pipe(ends);
    child = fork();
    if (child == 0) {
        char byte;
        (void)!read(ends[0], &byte, 1);
        _exit(stays(cpus[count - 1]) ? 7 : 8);
    }
    struct timespec time = {.tv_nsec = 20000000};
    nanosleep(&time, 0);
    cpu_set_t set = one(cpus[count - 1]);
    ANSWERS(0, sched_setaffinity(child, sizeof set, &set));
    (void)!write(ends[1], "x", 1);
    waitpid(child, &status, 0);
    check("a task that waited", WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* More tasks than CPUs, several on each one: all of them go on, where they may. */
static void crowd(void) {
    enum { EACH = 3 };
    pid_t children[EACH * CPU_SETSIZE];
    struct told *all_told = told + 1;
    int made = 0, status, right = 1;
    for (int i = 0; i < count * EACH; i++) {
        int cpu = cpus[i % count];
        struct told *own = all_told + i;
        own->turns = own->stops = own->wrong = 0;
        pid_t child = children[made++] = fork();
        if (child == 0) {
            cpu_set_t set = one(cpu);
            sched_setaffinity(0, sizeof set, &set);
            while (!own->stops) {
                own->wrong |= here() != cpu;
                own->turns++;
            }
            _exit(own->wrong ? 8 : 7);
        }
    }
    for (int i = 0; i < made; i++) {
        double end = now() + 10;
        while (now() < end && all_told[i].turns < 1000)
            sched_yield();
        right &= all_told[i].turns >= 1000;
    }
    check("all of a crowd go on", right);
    for (int i = 0; i < made; i++) {
        all_told[i].stops = 1;
        waitpid(children[i], &status, 0);
        right &= WIFEXITED(status) && WEXITSTATUS(status) == 7;
    }
    check("each where it may run", right);
}

int main(int number, char **arguments) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (number == 2)
        return stays(atoi(arguments[1])) ? 7 : 8;
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    told = mmap(0, (1 + 3 * CPU_SETSIZE) * sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ANSWERS(0, sched_getaffinity(0, sizeof all, &all));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all))
            cpus[count++] = cpu;
    sets();
    shows();
    inherits(arguments[0]);
    others();
    crowd();
    printf("AFFINITY %s: %d CPUs, %d answers\n", failures ? "wrong" : "right", count, checks);
    return failures != 0;
}
