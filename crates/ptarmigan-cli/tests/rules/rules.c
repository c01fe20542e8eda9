/* One function for each rule of Linux that the replay follows; the README lists them. Linux's count
 * of tables is sampled when a process ends, and at each attempt to execute a program.
 *
 *     cc -O1 -static -o rules rules.c && ./rules NAME
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
/* What one leaf table maps. */
#define TABLE (512 * PAGE)
/* What one table above the leaves maps. */
#define GIB (512 * TABLE)
/* Nothing else lies here: a place is one GiB, and each has a table above the leaves of its own. */
#define PLACE(n) ((char *)(0x100000000000ul + (n) * GIB))

#define READ_WRITE (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)

/* Newer than some C libraries. */
#define ADVICE_POPULATE_READ 22
#define ADVICE_GUARD_INSTALL 102
#define ONLY_ON_FAULT 1
#define DONTUNMAP 4

static void need(bool is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}
#define NEED(condition) need(condition, #condition)

static char *map(char *at, size_t bytes, int prot, int flags) {
    NEED(mmap(at, bytes, prot, flags | MAP_FIXED_NOREPLACE, -1, 0) == at);
    return at;
}

/* Moves what is mapped at `from`. */
static void move(char *from, size_t old, char *to, size_t new, int flags) {
    NEED(mremap(from, old, new, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) == to);
}

/* Touches one page of each leaf table. */
static void read_tables(volatile char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += TABLE) {
        (void)at[i];
    }
}

static void write_tables(volatile char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += TABLE) {
        at[i] = 1;
    }
}

/* Has the tables counted: this fails, as there is no such program. */
static void count(void) { syscall(SYS_execve, "", NULL, NULL); }

/* Runs `f` in a child, whose end counts the tables that it got from fork and from `f`. */
static void child(void (*f)(void)) {
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        f();
        _exit(0);
    }
    int status;
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

static void nothing(void) {}
static void fork_once(void) { child(nothing); }

/* The page that was written goes, and its leaf table with it. The upper tables stay. */
static void fork_upper_tables(void) {
    char *p = map(PLACE(0), 2 * TABLE, READ_WRITE, PRIVATE);
    write_tables(p, TABLE);
    NEED(madvise(p, 2 * TABLE, MADV_DONTNEED) == 0);
    count();
    fork_once();
}

static void mlock_writes(void) {
    char *p = map(PLACE(0), 2 * TABLE, READ_WRITE, PRIVATE);
    char *q = map(PLACE(1), 2 * TABLE, PROT_READ, PRIVATE);
    NEED(mlock(p, 2 * TABLE) == 0 && mlock(q, 2 * TABLE) == 0);
    fork_once();
}

static void mlockall_writes(void) {
    map(PLACE(0), 2 * TABLE, READ_WRITE, PRIVATE);
    NEED(mlockall(MCL_CURRENT) == 0);
    fork_once();
}

static void mlock_on_fault(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    NEED(syscall(SYS_mlock2, p, 4 * TABLE, ONLY_ON_FAULT) == 0);
    count();
    write_tables(p, TABLE);
}

/* Passes over the hole, and stops at the locked area. */
static void madvise_half_way(void) {
    char *p = map(PLACE(0), 8 * TABLE, READ_WRITE, PRIVATE);
    write_tables(p, 8 * TABLE);
    munmap(p + 2 * TABLE, PAGE);
    NEED(mlock(p + 5 * TABLE, PAGE) == 0);
    NEED(madvise(p, 8 * TABLE, MADV_DONTNEED) == -1 && errno == EINVAL);
    count();
}

/* The areas on both sides of the change differ in what fork copies. */
static void mprotect_half_way(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    read_tables(p, 4 * TABLE);
    munmap(p + 2 * TABLE + PAGE, PAGE);
    NEED(mprotect(p + TABLE, 2 * TABLE, PROT_READ) == -1 && errno == ENOMEM);
    write_tables(p, TABLE);
    p[3 * TABLE] = 1;
    fork_once();
}

/* What lies before the hole is locked, but not populated. */
static void mlock_half_way(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    read_tables(p, 2 * TABLE);
    munmap(p + 2 * TABLE, PAGE);
    NEED(mlock(p + TABLE, 3 * TABLE) == -1 && errno == ENOMEM);
    p[0] = 1;
    fork_once();
}

static void mlock_no_permissions(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    NEED(mprotect(p + 2 * TABLE, PAGE, PROT_NONE) == 0);
    NEED(mlock(p, 4 * TABLE) == -1 && errno == ENOMEM);
    count();
}

static void shmdt_split(void) {
    int id = shmget(IPC_PRIVATE, 6 * TABLE, 0600 | IPC_CREAT);
    NEED(id >= 0);
    char *p = PLACE(0);
    bool there = shmat(id, p, 0) == p;
    shmctl(id, IPC_RMID, NULL);
    NEED(there);
    read_tables(p, 6 * TABLE);
    NEED(mprotect(p + 2 * TABLE, TABLE, PROT_READ) == 0);
    munmap(p + 4 * TABLE, TABLE);
    NEED(shmdt(p) == 0);
    count();
}

/* Each place has two areas, of which one is written: fork copies the table of that one only. */
static void flags_part_areas(void) {
    const int advice[] = {MADV_DONTDUMP, MADV_NOHUGEPAGE, MADV_SEQUENTIAL, MADV_RANDOM};
    for (int i = 0; i < 7; i++) {
        char *p = map(PLACE(i), TABLE, READ_WRITE, PRIVATE);
        char *q = map(p + TABLE, TABLE, READ_WRITE, PRIVATE | (i == 4 ? MAP_NORESERVE : 0));
        if (i < 4) {
            NEED(madvise(q, TABLE, advice[i]) == 0);
        } else if (i == 5) {
            NEED(syscall(SYS_mlock2, q, TABLE, ONLY_ON_FAULT) == 0);
        }
        /* Those of the last place are one area. */
        read_tables(p, 2 * TABLE);
        p[0] = 1;
    }
    fork_once();
}

/* Two areas are moved behind another one. Only that which has no pages yet joins it. */
static void moved_offset(void) {
    for (int i = 0; i < 2; i++) {
        char *p = map(PLACE(2 * i), TABLE, READ_WRITE, PRIVATE);
        char *q = map(PLACE(2 * i + 1), TABLE, READ_WRITE, PRIVATE);
        read_tables(p, TABLE);
        if (i == 0) {
            write_tables(q, TABLE);
        }
        move(q, TABLE, p + TABLE, TABLE, 0);
        write_tables(p + TABLE, TABLE);
    }
    fork_once();
}

/* A whole area, and a part of one. */
static void move_and_keep(void) {
    for (int i = 0; i < 2; i++) {
        char *p = map(PLACE(2 * i), (1 + i) * TABLE, READ_WRITE, PRIVATE);
        write_tables(p, TABLE);
        move(p, TABLE, PLACE(2 * i + 1), TABLE, DONTUNMAP);
        read_tables(p, TABLE);
    }
    count();
    fork_once();
}

/* The lock goes from all of the old area: its last part grows, and is not populated. */
static void keep_part_locked(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    NEED(mlock(p, 4 * TABLE) == 0);
    move(p, TABLE, PLACE(1), TABLE, DONTUNMAP);
    NEED(mremap(p + 2 * TABLE, 2 * TABLE, 6 * TABLE, MREMAP_MAYMOVE) != MAP_FAILED);
    count();
    fork_once();
}

/* Both old areas lose their private pages, and do not become one before that. */
static void keep_locked_beside(void) {
    char *p = map(PLACE(0), 2 * TABLE, READ_WRITE, PRIVATE);
    write_tables(p, 2 * TABLE);
    NEED(syscall(SYS_mlock2, p, TABLE, ONLY_ON_FAULT) == 0);
    move(p, 2 * TABLE, PLACE(1), 2 * TABLE, DONTUNMAP);
    read_tables(p, 2 * TABLE);
    count();
    fork_once();
}

/* The two halves of a table are written while only one is locked, and are alike later. */
static void apart_by_lock(void) {
    char *p = map(PLACE(0), TABLE, READ_WRITE, PRIVATE);
    NEED(syscall(SYS_mlock2, p, TABLE / 2, ONLY_ON_FAULT) == 0);
    p[0] = p[TABLE / 2] = 1;
    NEED(munlock(p, TABLE / 2) == 0);
    NEED(madvise(p, TABLE, MADV_DONTNEED) == 0);
    count();
}

/* Areas with different permissions, and a gap between them. */
static void move_several(void) {
    char *p = map(PLACE(0), 6 * TABLE, READ_WRITE, PRIVATE);
    write_tables(p, 6 * TABLE);
    NEED(mprotect(p + 2 * TABLE, TABLE, PROT_READ) == 0);
    munmap(p + 4 * TABLE, TABLE);
    move(p, 6 * TABLE, PLACE(1), 6 * TABLE, 0);
    count();
    read_tables(PLACE(1), 4 * TABLE);
    fork_once();
}

/* In the tail that is cut there are a hole and another area. */
static void move_and_shrink(void) {
    char *p = map(PLACE(0), 6 * TABLE, READ_WRITE, PRIVATE);
    write_tables(p, 6 * TABLE);
    munmap(p + 3 * TABLE, TABLE);
    NEED(mprotect(p + 4 * TABLE, TABLE, PROT_READ) == 0);
    move(p, 5 * TABLE, PLACE(1), 2 * TABLE, 0);
    count();
}

/* A second mapping of the same pages. */
static void move_nothing(void) {
    char *p = map(PLACE(0), 2 * TABLE, READ_WRITE, SHARED);
    write_tables(p, 2 * TABLE);
    move(p, 0, PLACE(1), 2 * TABLE, 0);
    count();
    read_tables(PLACE(1), 2 * TABLE);
}

/* The second mapping of locked pages is locked, and populated. */
static void move_nothing_locked(void) {
    char *p = map(PLACE(0), 2 * TABLE, READ_WRITE, SHARED);
    NEED(mlock(p, 2 * TABLE) == 0);
    move(p, 0, PLACE(1), 2 * TABLE, 0);
    count();
}

static void stack_limit(void) {
    struct rlimit limit = {64 << 20, RLIM_INFINITY};
    NEED(setrlimit(RLIMIT_STACK, &limit) == 0);
    char here;
    write_tables(&here - 16 * TABLE, 16 * TABLE);
    fork_once();
}

/* Reads only. */
static void stack_grows_by_read(void) {
    char *p = map(PLACE(0) + 2 * TABLE, PAGE, READ_WRITE, PRIVATE | MAP_GROWSDOWN);
    read_tables(p - PAGE, PAGE);
    read_tables(p - PAGE - TABLE, PAGE);
    fork_once();
}

/* The limit refuses to let the stack grow. An access by the kernel fails without a signal. */
static void stack_refused(void) {
    char *p = map(PLACE(0), PAGE, READ_WRITE, PRIVATE | MAP_GROWSDOWN);
    read_tables(p, PAGE);
    int fd = memfd_create("rules", 0);
    NEED(fd >= 0 && write(fd, p - 16 * TABLE, 1) == -1 && errno == EFAULT);
    fork_once();
}

static void end(int signal) {
    (void)signal;
    _exit(0);
}

static void grow(char *p) { write_tables(p - 16 * PAGE, PAGE); }
static void grow_first(void) { grow(PLACE(0) + TABLE); }

/* An area lies 32 pages below each stack. The first stack cannot grow, the others can. */
static void stack_guard(void) {
    const int below[] = {READ_WRITE, PROT_NONE, READ_WRITE};
    for (int i = 0; i < 3; i++) {
        char *p = PLACE(i) + TABLE;
        map(p, PAGE, READ_WRITE, PRIVATE | MAP_GROWSDOWN);
        map(p - 32 * PAGE, PAGE, below[i], PRIVATE | (i == 2 ? MAP_GROWSDOWN : 0));
        if (i != 0) {
            grow(p);
        }
    }
    signal(SIGSEGV, end);
    count();
    child(grow_first);
}

static void guard_pages(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    NEED(madvise(p, 2 * TABLE, ADVICE_GUARD_INSTALL) == 0);
    count();
    fork_once();
}

/* Reads only. Needs transparent huge pages, where programs ask for them or everywhere. */
static void huge_page_read(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    NEED(madvise(p, 4 * TABLE, MADV_HUGEPAGE) == 0);
    read_tables(p, 4 * TABLE);
    count();
    fork_once();
}

/* The call fails because of the hole, and what is mapped around it asks for huge pages. */
static void huge_page_half_way(void) {
    char *p = map(PLACE(0), 4 * TABLE, READ_WRITE, PRIVATE);
    munmap(p + 2 * TABLE, TABLE);
    NEED(madvise(p, 4 * TABLE, MADV_HUGEPAGE) == -1 && errno == ENOMEM);
    read_tables(p, 2 * TABLE);
    count();
    fork_once();
}

static void grow_locked(void) {
    char *p = map(PLACE(0), TABLE, READ_WRITE, PRIVATE | MAP_LOCKED);
    NEED(mremap(p, TABLE, 4 * TABLE, 0) == p);
    count();
    fork_once();
}

/* Maps eight leaf tables' worth of a file that has one. */
static void map_short_file(int flags) {
    int fd = memfd_create("rules", 0);
    NEED(fd >= 0 && ftruncate(fd, TABLE) == 0);
    flags |= MAP_SHARED | MAP_FIXED_NOREPLACE;
    NEED(mmap(PLACE(0), 8 * TABLE, PROT_READ, flags, fd, 0) == PLACE(0));
}

static void populate_beyond_end(void) {
    map_short_file(MAP_POPULATE);
    count();
}

static void mlockall_beyond_end(void) {
    map_short_file(0);
    NEED(mlockall(MCL_CURRENT) == 0);
    count();
}

/* The area becomes writable: its pages are written, as far as the file goes. */
static void grant_beyond_end(void) {
    int fd = memfd_create("rules", 0);
    NEED(fd >= 0 && ftruncate(fd, TABLE) == 0);
    char *p = mmap(PLACE(0), 8 * TABLE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
    NEED(p == PLACE(0) && mlockall(MCL_CURRENT) == 0);
    NEED(mprotect(p, 8 * TABLE, READ_WRITE) == 0);
    count();
    fork_once();
}

/* A file that ends, between anonymous areas. */
static char *map_beside_short_file(void) {
    map_short_file(0);
    map(PLACE(0) + 8 * TABLE, TABLE, READ_WRITE, PRIVATE);
    return map(PLACE(0) - TABLE, TABLE, READ_WRITE, PRIVATE);
}

static void mlock_beyond_end(void) {
    NEED(mlock(map_beside_short_file(), 10 * TABLE) == -1 && errno == ENOMEM);
    count();
}

static void advice_beyond_end(void) {
    NEED(madvise(map_beside_short_file(), 10 * TABLE, ADVICE_POPULATE_READ) == -1 && errno == EFAULT);
    count();
}

/* An access by the kernel fails without a signal. */
static void write_beyond_end(void) {
    int fd = memfd_create("rules", 0), zero = open("/dev/zero", O_RDONLY);
    NEED(fd >= 0 && zero >= 0 && ftruncate(fd, TABLE) == 0);
    char *p = mmap(PLACE(0), 8 * TABLE, READ_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
    NEED(p == PLACE(0));
    read_tables(p, TABLE);
    NEED(read(zero, p + 4 * TABLE, 1) == -1 && errno == EFAULT);
    fork_once();
}

static void read_beyond_end(void) { read_tables(PLACE(0) + 4 * TABLE, PAGE); }

static void fault_beyond_end(void) {
    map_short_file(0);
    signal(SIGBUS, end);
    child(read_beyond_end);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name}
    CASE(fork_upper_tables),
    CASE(mlock_writes),
    CASE(mlockall_writes),
    CASE(mlock_on_fault),
    CASE(madvise_half_way),
    CASE(mprotect_half_way),
    CASE(mlock_half_way),
    CASE(mlock_no_permissions),
    CASE(shmdt_split),
    CASE(flags_part_areas),
    CASE(moved_offset),
    CASE(move_and_keep),
    CASE(keep_part_locked),
    CASE(keep_locked_beside),
    CASE(apart_by_lock),
    CASE(move_several),
    CASE(move_and_shrink),
    CASE(move_nothing),
    CASE(move_nothing_locked),
    CASE(stack_limit),
    CASE(stack_grows_by_read),
    CASE(stack_refused),
    CASE(stack_guard),
    CASE(guard_pages),
    CASE(huge_page_read),
    CASE(huge_page_half_way),
    CASE(grow_locked),
    CASE(populate_beyond_end),
    CASE(mlockall_beyond_end),
    CASE(grant_beyond_end),
    CASE(mlock_beyond_end),
    CASE(advice_beyond_end),
    CASE(write_beyond_end),
    CASE(fault_beyond_end),
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc < 2) {
            puts(cases[i].name);
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
