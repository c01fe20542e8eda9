/* The suite `cpus`: threads of one process on all CPUs, one on each, take pages away from each
 * other's TLBs. It counts events, by the kernel's own counters: no time, as one processor of the
 * host plays all CPUs. `tlb_flush1` to `tlb_flush3` are those of will-it-scale-like and
 * `munmap-low` and `munmap-high` those of cortenmm-like, with as many threads as there are CPUs,
 * which `cpus=N` on the command line says. For each round of a case, behind the warm-up:
 *
 *   COUNT NAME ROUND KEY NUMBER                             how much a counter of the kernel has
 *                                                           grown */
#define _GNU_SOURCE
#include <termios.h>

/* The serial line takes what is printed while another CPU ends the machine. */
#define BEFORE_END tcdrain(1)
#include "suite.h"

#include <sched.h>
#include <stdatomic.h>

enum { MOST_CPUS = 8, REQUESTS = 512, PAGES = 4, BYTES = 65536 };
#define REQUEST (PAGES * PAGE)
/* The requests of a thread, in tables of its own. */
#define OF_THREAD (REQUESTS * REQUEST)
/* Ticks of both kernels come more often: flushes that were left to a CPU have been made up for. */
#define NANOSECONDS_OF_TICKS 12000000

/* Counters of Linux, and the library's kernel's: the file, how a line begins, the key that is
 * printed. */
static const struct counter_of {
    const char *file, *line, *key;
} counters[] = {
    {"/proc/interrupts", "TLB:", "requests"},
    {"/proc/interrupts", "CAL:", "interrupts"},
    {"/proc/vmstat", "nr_tlb_local_flush_all ", "full"},
    {"/proc/ptarmigan", "CPUs asked: ", "requests"},
    {"/proc/ptarmigan", "interrupts sent: ", "interrupts"},
    {"/proc/ptarmigan", "full flushes: ", "full"},
    {"/proc/ptarmigan", "\nflushes: ", "flushes"},
    {"/proc/ptarmigan", "flushed pages: ", "flushed"},
    {"/proc/ptarmigan", "flushes that asked CPUs: ", "broadcasts"},
    {"/proc/ptarmigan", "CPUs asked to load a root: ", "roots"},
    {"/proc/ptarmigan", "flushes left to CPUs: ", "deferred"},
    {"/proc/ptarmigan", "CPUs that caught up: ", "caught_up"},
    {"/proc/ptarmigan", "chains flushed by force: ", "forced"},
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static int cpus = 1;
static long before[COUNTERS];
static const char *name;
static int round_number;

/* The sum of the numbers in a line of a file; -1 if there is no such line. */
static long sum(const char *text, const char *line) {
    const char *at = strstr(text, line);
    if (!at)
        return -1;
    long all = 0;
    for (at += strlen(line);;) {
        while (*at == ' ')
            at++;
        if (*at < '0' || *at > '9')
            return all;
        all += strtol(at, (char **)&at, 10);
    }
}

static void read_counters(long *values) {
    static char text[BYTES];
    const char *last = "";
    for (int i = 0; i < COUNTERS; i++) {
        if (strcmp(last, counters[i].file)) {
            last = counters[i].file;
            ssize_t bytes = 0, more = 0;
            int file = open(last, O_RDONLY);
            while (file >= 0 && (more = read(file, text + bytes, BYTES - 1 - bytes)) > 0)
                bytes += more;
            text[bytes] = 0;
            if (file >= 0)
                close(file);
        }
        values[i] = sum(text, counters[i].line);
    }
}

static void start(void) {
    read_counters(before);
    begin();
}

static void finish(void) {
    long after[COUNTERS];
    end();
    read_counters(after);
    for (int i = 0; i < COUNTERS; i++)
        if (!measured->warms_up && before[i] >= 0)
            printf("COUNT %s %d %s %ld\n", name, round_number, counters[i].key, after[i] - before[i]);
    fflush(stdout);
    round_number = measured->warms_up ? 0 : round_number + 1;
}

/* Threads of which each has a CPU. They wait for each other in user mode, so that all CPUs run in
 * the space. */
static struct {
    void (*work)(long thread);
    char *memory;
    _Atomic int ready, done, go;
} shared;

/* The calling thread runs on this CPU alone. */
static void stay_on(long cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)!sched_setaffinity(0, sizeof set, &set);
}

static void until(_Atomic int *count, int value) {
    while (atomic_load(count) < value)
        give_way();
}

static void *other(void *argument) {
    stay_on((long)argument);
    atomic_fetch_add(&shared.ready, 1);
    until(&shared.go, 1);
    if (shared.work)
        shared.work((long)argument);
    atomic_fetch_add(&shared.done, 1);
    until(&shared.go, 2);
    return 0;
}

/* Each thread does the work, with threads on all CPUs; or the first one alone, and the others look
 * on. */
static void on_all(void (*work)(long thread), int together) {
    pthread_t threads[MOST_CPUS];
    shared.work = together ? work : 0;
    shared.ready = shared.done = shared.go = 0;
    for (long i = 1; i < cpus; i++)
        if (pthread_create(&threads[i], 0, other, (void *)i))
            fail("pthread_create");
    until(&shared.ready, cpus - 1);
    start();
    atomic_store(&shared.go, 1);
    work(0);
    until(&shared.done, cpus - 1);
    /* Now and then the others have a turn, for their ticks; each turn takes time of the host's. */
    unsigned turn = 0;
    for (unsigned long long from = counter(); counter() - from < NANOSECONDS_OF_TICKS;)
        if (++turn % 1024 == 0)
            give_way();
    finish();
    atomic_store(&shared.go, 2);
    for (int i = 1; i < cpus; i++)
        pthread_join(threads[i], 0);
}

static int files[MOST_CPUS];

static void drop_private(long thread) { drop_pages(MIB, MAP_PRIVATE, files[thread], 0); }
static void drop_anonymous(long thread) { drop_pages(MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void drop_shared(long thread) { drop_pages(MIB, MAP_SHARED, files[thread], 7); }

static long tlb_flush(void (*work)(long)) {
    for (int i = 0; i < cpus; i++) {
        files[i] = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (files[i] < 0 || ftruncate(files[i], MIB))
            fail("/tmp/file");
        unlink("/tmp/file");
    }
    on_all(work, 1);
    for (int i = 0; i < cpus; i++)
        close(files[i]);
    return cpus * (MIB / PAGE);
}

static long tlb_flush1(void) { return name = "tlb_flush1", tlb_flush(drop_private); }
static long tlb_flush2(void) { return name = "tlb_flush2", tlb_flush(drop_anonymous); }
static long tlb_flush3(void) { return name = "tlb_flush3", tlb_flush(drop_shared); }

static int high;

static char *request(long thread, long number) {
    long place = high ? number * cpus + thread : thread * REQUESTS + number;
    return shared.memory + place * REQUEST;
}

static void unmap(long thread) {
    for (long i = 0; i < REQUESTS; i++)
        munmap(request(thread, i), REQUEST);
}

static long unmap_requests(int side_by_side, int together) {
    size_t size = cpus * OF_THREAD;
    high = side_by_side;
    shared.memory = anonymous(place(size), size);
    for (long thread = 0; thread < (together ? cpus : 1); thread++)
        for (long i = 0; i < REQUESTS; i++)
            write_each(request(thread, i), REQUEST, PAGE);
    on_all(unmap, together);
    munmap(shared.memory, size);
    return (together ? cpus : 1) * REQUESTS;
}

static long unmap_low(void) { return name = "munmap-low", unmap_requests(0, 1); }
static long unmap_high(void) { return name = "munmap-high", unmap_requests(1, 1); }
static long unmap_one(void) { return name = "munmap-one", unmap_requests(0, 0); }

/* Maps where the kernel puts it, writes, and unmaps. */
static void use(long thread) {
    for (long i = 0; i < REQUESTS; i++) {
        char *memory = anonymous(0, REQUEST);
        write_each(memory, REQUEST, PAGE);
        munmap(memory, REQUEST);
    }
}

static long map_unmap(void) {
    name = "map-unmap";
    on_all(use, 1);
    return cpus * REQUESTS;
}

/* Maps in the same place each time. */
static void use_again(long thread) {
    char *memory = shared.memory + thread * REQUEST;
    for (long i = 0; i < REQUESTS; i++) {
        anonymous(memory, REQUEST);
        write_each(memory, REQUEST, PAGE);
        munmap(memory, REQUEST);
    }
}

static long map_again(void) {
    name = "map-unmap-fixed";
    shared.memory = place(cpus * REQUEST);
    on_all(use_again, 1);
    return cpus * REQUESTS;
}

/* Takes the right to write away and gives it back. */
static void protect(long thread) {
    char *memory = shared.memory + thread * SPAN;
    for (long i = 0; i < REQUESTS; i++) {
        mprotect(memory, REQUEST, PROT_READ);
        mprotect(memory, REQUEST, PROT_READ | PROT_WRITE);
        write_each(memory, REQUEST, PAGE);
    }
}

static long protect_all(void) {
    name = "mprotect";
    size_t size = cpus * SPAN;
    shared.memory = anonymous(place(size), size);
    write_each(shared.memory, size, PAGE);
    on_all(protect, 1);
    munmap(shared.memory, size);
    return cpus * REQUESTS;
}

/* Copies pages that a child shares, while threads on the other CPUs look on. */
static void write_pages(long thread) { write_each(shared.memory, REQUESTS * PAGE, PAGE); }

static long copy_on_write(void) {
    name = "cow";
    int pipe_of[2];
    char byte;
    shared.memory = anonymous(0, REQUESTS * PAGE);
    write_pages(0);
    if (pipe(pipe_of))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(pipe_of[1]);
        (void)!read(pipe_of[0], &byte, 1);
        _exit(0);
    }
    close(pipe_of[0]);
    on_all(write_pages, 0);
    close(pipe_of[1]);
    reap(child);
    munmap(shared.memory, REQUESTS * PAGE);
    return REQUESTS;
}

/* The others sleep: their CPUs are idle, and keep the space. */
static void *sleeper(void *argument) {
    stay_on((long)argument);
    atomic_fetch_add(&shared.ready, 1);
    pthread_mutex_lock((pthread_mutex_t *)shared.memory);
    pthread_mutex_unlock((pthread_mutex_t *)shared.memory);
    return 0;
}

static long drop_beside_idle(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[MOST_CPUS];
    name = "idle";
    shared.memory = (char *)&mutex;
    shared.ready = 0;
    pthread_mutex_lock(&mutex);
    for (long i = 1; i < cpus; i++)
        if (pthread_create(&threads[i], 0, sleeper, (void *)i))
            fail("pthread_create");
    until(&shared.ready, cpus - 1);
    usleep(20000);
    char *memory = anonymous(0, REQUESTS * PAGE);
    write_each(memory, REQUESTS * PAGE, PAGE);
    start();
    for (long i = 0; i < REQUESTS; i++)
        madvise(memory + i * PAGE, PAGE, MADV_DONTNEED);
    finish();
    pthread_mutex_unlock(&mutex);
    for (int i = 1; i < cpus; i++)
        pthread_join(threads[i], 0);
    munmap(memory, REQUESTS * PAGE);
    return REQUESTS;
}

static const struct suite_case cases[] = {
    {"tlb_flush1", "page", tlb_flush1},        {"tlb_flush2", "page", tlb_flush2},
    {"tlb_flush3", "page", tlb_flush3},        {"munmap-low", "request", unmap_low},
    {"munmap-high", "request", unmap_high},    {"munmap-one", "request", unmap_one},
    {"map-unmap", "request", map_unmap},       {"map-unmap-fixed", "request", map_again},
    {"mprotect", "operation", protect_all},    {"cow", "page", copy_on_write},
    {"idle", "page", drop_beside_idle},
};

int main(void) {
    const char *word = getenv("cpus");
    if (word && atoi(word) > 0 && atoi(word) <= MOST_CPUS)
        cpus = atoi(word);
    stay_on(0);
    run_suite(cases, sizeof cases / sizeof *cases);
}
