/* The suite `ours`: the cost of each call about memory, and of each kind of page fault
 * (docs/suites.md). */
#include "suite.h"

/* Faults and unmapping. */

enum { DENSE = 16 };

static long write_fault(void) {
    char *memory = anonymous(place(DENSE * MIB), DENSE * MIB);
    begin();
    write_each(memory, DENSE * MIB, PAGE);
    end();
    most();
    munmap(memory, DENSE * MIB);
    return DENSE * MIB / PAGE;
}

static long write_cycle(void) {
    char *at = place(DENSE * MIB);
    begin();
    anonymous(at, DENSE * MIB);
    write_each(at, DENSE * MIB, PAGE);
    most();
    munmap(at, DENSE * MIB);
    end();
    return DENSE * MIB / PAGE;
}

static long small_cycle(void) {
    for (int i = 0; i < 50; i++) {
        begin();
        char *memory = anonymous(0, 16 * PAGE);
        write_each(memory, 16 * PAGE, PAGE);
        munmap(memory, 16 * PAGE);
        end();
    }
    return 50;
}

/* Reads of pages that are `stride` apart, each of which faults. */
static long read_faults(size_t size, size_t stride, int warm) {
    char *memory = anonymous(place(size + PAGE), size + PAGE);
    if (warm)
        read_each(memory + size, PAGE, PAGE);
    begin();
    read_each(memory, size, stride);
    end();
    most();
    munmap(memory, size + PAGE);
    return size / stride;
}

static long read_new_table(void) { return read_faults(256 * MIB, SPAN, 0); }
static long read_same_table(void) { return read_faults(SPAN - PAGE, PAGE, 1); }

static long write_new_table(void) {
    char *memory = anonymous(place(256 * MIB), 256 * MIB);
    begin();
    write_each(memory, 256 * MIB, SPAN);
    end();
    most();
    munmap(memory, 256 * MIB);
    return 128;
}

static long unmap(size_t size, size_t stride) {
    char *memory = anonymous(place(size), size);
    write_each(memory, size, stride);
    most();
    begin();
    munmap(memory, size);
    end();
    return size / stride;
}

static long unmap_dense(void) { return unmap(DENSE * MIB, PAGE); }
static long unmap_sparse(void) { return unmap(256 * MIB, SPAN); }

static long dontneed(void) {
    char *memory = anonymous(place(4 * MIB), 4 * MIB);
    write_each(memory, 4 * MIB, PAGE);
    most();
    for (int i = 0; i < 4; i++) {
        begin();
        madvise(memory, 4 * MIB, MADV_DONTNEED);
        write_each(memory, 4 * MIB, PAGE);
        end();
    }
    munmap(memory, 4 * MIB);
    return 4 * (4 * MIB / PAGE);
}

static long map_untouched(void) {
    for (int i = 0; i < 50; i++) {
        begin();
        char *memory = anonymous(0, 128 * MIB);
        munmap(memory, 128 * MIB);
        end();
    }
    return 50;
}

/* Files and shared memory. */

static long file_pages(int rights, int flags) {
    size_t size = 8 * MIB;
    int file = file_of(size);
    char *memory = map_at(0, size, rights, flags, file);
    begin();
    if (rights & PROT_WRITE)
        write_each(memory, size, PAGE);
    else
        read_each(memory, size, PAGE);
    end();
    most();
    munmap(memory, size);
    close(file);
    return size / PAGE;
}

static long file_read(void) { return file_pages(PROT_READ, MAP_SHARED); }
static long file_shared(void) { return file_pages(PROT_READ | PROT_WRITE, MAP_SHARED); }
static long file_private(void) { return file_pages(PROT_READ | PROT_WRITE, MAP_PRIVATE); }

static long shared_anonymous(void) {
    size_t size = 8 * MIB;
    char *memory = map_at(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    write_each(memory, size, PAGE);
    pid_t child = fork();
    if (child == 0) {
        begin();
        write_each(memory, size, PAGE);
        end();
        most();
        _exit(0);
    }
    reap(child);
    munmap(memory, size);
    return size / PAGE;
}

/* Processes. */

/* Fork, exit and wait, with memory of which a page in each `stride` was written. */
static long fork_exit(size_t size, size_t stride, int times, int writes) {
    char *memory = size ? anonymous(place(size), size) : 0;
    write_each(memory, size, stride);
    for (int i = 0; i < times; i++) {
        begin();
        pid_t child = fork();
        if (child == 0) {
            if (writes)
                write_each(memory, size, stride);
            most();
            _exit(0);
        }
        reap(child);
        if (writes)
            write_each(memory, size, stride);
        end();
    }
    if (size)
        munmap(memory, size);
    return times;
}

static long fork_plain(void) { return fork_exit(0, PAGE, 32, 0); }
static long fork_sparse_64m(void) { return fork_exit(64 * MIB, SPAN, 8, 0); }
static long fork_sparse_1g(void) { return fork_exit(1024 * MIB, SPAN, 3, 0); }
static long fork_dense(void) { return fork_exit(64 * MIB, PAGE, 2, 0); }
static long fork_both_write(void) { return fork_exit(4 * MIB, PAGE, 3, 1); }

/* The parent's call alone, or the child's end with the parent's wait: the child waits meanwhile. */
static long half_of_fork(int ends) {
    for (int i = 0; i < 32; i++) {
        int ways[2];
        char byte = 0;
        if (pipe(ways))
            fail("pipe");
        if (!ends)
            begin();
        pid_t child = fork();
        if (child == 0) {
            (void)!read(ways[0], &byte, 1);
            if (ends)
                begin();
            _exit(0);
        }
        if (!ends)
            end();
        (void)!write(ways[1], &byte, 1);
        reap(child);
        if (ends)
            end();
        close(ways[0]);
        close(ways[1]);
    }
    return 32;
}

static long fork_only(void) { return half_of_fork(0); }
static long exit_only(void) { return half_of_fork(1); }

static long exec(size_t size, int times, int shares) {
    char *memory = size ? anonymous(place(size), size) : 0;
    write_each(memory, size, PAGE);
    for (int i = 0; i < times; i++) {
        begin();
        pid_t child = shares ? vfork() : fork();
        if (child == 0) {
            execl("/init", "/init", (char *)0);
            _exit(1);
        }
        reap(child);
        end();
    }
    if (size)
        munmap(memory, size);
    return times;
}

static long fork_exec(void) { return exec(0, 16, 0); }
static long vfork_exec(void) { return exec(0, 16, 1); }
static long fork_exec_32m(void) { return exec(32 * MIB, 2, 0); }

/* Writes to pages that a child has, too, or has had. */
static long copy_on_write(int alive) {
    size_t size = 8 * MIB;
    char *memory = anonymous(place(size), size);
    write_each(memory, size, PAGE);
    pid_t child = fork();
    if (child == 0) {
        while (alive)
            pause();
        _exit(0);
    }
    if (!alive)
        reap(child);
    begin();
    write_each(memory, size, PAGE);
    end();
    most();
    if (alive) {
        kill(child, SIGKILL);
        reap(child);
    }
    munmap(memory, size);
    return size / PAGE;
}

static long cow_alive(void) { return copy_on_write(1); }
static long cow_gone(void) { return copy_on_write(0); }

/* Rights. */

static long protect(size_t bytes, int times, int writes) {
    size_t size = 4 * MIB;
    char *memory = anonymous(place(size), size);
    write_each(memory, size, PAGE);
    for (int i = 0; i < times; i++) {
        char *at = bytes == size ? memory : memory + (i * 5 + 1) % 1000 * PAGE;
        begin();
        mprotect(at, bytes, PROT_READ);
        mprotect(at, bytes, PROT_READ | PROT_WRITE);
        if (writes)
            write_each(at, bytes, PAGE);
        end();
    }
    most();
    munmap(memory, size);
    return times * (bytes / PAGE);
}

static long protect_calls(void) { return protect(4 * MIB, 8, 0); }
static long protect_write(void) { return protect(4 * MIB, 8, 1); }
static long protect_page(void) { return protect(PAGE, 50, 1); }

/* Areas of a page each, with a gap behind each. */
static char *many_areas(size_t number) {
    char *memory = place(number * 2 * PAGE);
    map_at(memory, number * 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    for (size_t i = 0; i < number; i++) {
        char *at = memory + 2 * i * PAGE;
        mprotect(at, PAGE, PROT_READ | PROT_WRITE);
        *at = 1;
    }
    return memory;
}

static long protect_areas(void) {
    size_t number = 1000;
    char *memory = many_areas(number);
    for (size_t i = 0; i < 50; i++) {
        char *at = memory + 2 * (i * 7919 % number) * PAGE;
        begin();
        mprotect(at, PAGE, PROT_READ);
        mprotect(at, PAGE, PROT_READ | PROT_WRITE);
        *(volatile char *)at = 1;
        end();
    }
    munmap(memory, number * 2 * PAGE);
    return 50;
}

static long remap_one(size_t number) {
    char *memory = many_areas(number);
    for (size_t i = 0; i < 50; i++) {
        char *at = memory + 2 * (i * 7919 % number) * PAGE;
        begin();
        munmap(at, PAGE);
        anonymous(at, PAGE);
        *(volatile char *)at = 1;
        end();
    }
    munmap(memory, number * 2 * PAGE);
    return 50;
}

static long areas_10(void) { return remap_one(10); }
static long areas_100(void) { return remap_one(100); }
static long areas_1000(void) { return remap_one(1000); }
static long areas_8000(void) { return remap_one(8000); }

static long fork_areas(void) {
    char *memory = many_areas(1000);
    long times = forks(3);
    munmap(memory, 2000 * PAGE);
    return times;
}

/* Moves. */

/* 4 MiB that were written move to and fro; the places are so many bytes behind multiples of
 * SPAN. */
static long move(size_t from, size_t to, int times) {
    size_t size = 4 * MIB;
    char *places = place(16 * MIB), *ways[2] = {places + from, places + 8 * MIB + to};
    char *memory = anonymous(ways[0], size);
    write_each(memory, size, PAGE);
    for (int i = 0; i < times; i++) {
        begin();
        memory = mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, ways[(i + 1) % 2]);
        end();
        if (memory == MAP_FAILED)
            fail("mremap");
    }
    most();
    munmap(memory, size);
    return times;
}

static long move_unaligned(void) { return move(3 * PAGE, 5 * PAGE, 8) * (long)(4 * MIB / PAGE); }
static long move_aligned(void) { return move(0, 0, 32); }

static long grow(void) {
    char *memory = anonymous(0, PAGE);
    *memory = 1;
    for (size_t pages = 1; pages < 129; pages++) {
        begin();
        memory = mremap(memory, pages * PAGE, (pages + 1) * PAGE, MREMAP_MAYMOVE);
        ((volatile char *)memory)[pages * PAGE] = 1;
        end();
    }
    munmap(memory, 129 * PAGE);
    return 128;
}

static long program_break(void) {
    char *at = sbrk(0);
    for (int i = 0; i < 100; i++) {
        begin();
        (void)!brk(at + 64 * PAGE);
        (void)!brk(at);
        end();
    }
    return 100;
}

static long break_touch(void) {
    char *at = sbrk(0), *first = (char *)(((unsigned long)at + PAGE) & ~(PAGE - 1));
    for (int i = 0; i < 16; i++) {
        begin();
        (void)!brk(first + 64 * PAGE);
        write_each(first, 64 * PAGE, PAGE);
        (void)!brk(at);
        end();
    }
    return 16 * 64;
}

/* Work without page tables. */

static long threads_32(void) { return threads(32); }

static void *writes_8m(void *memory) {
    write_each(memory, 8 * MIB, PAGE);
    return 0;
}

static long two_threads(void) {
    size_t size = 16 * MIB;
    char *memory = anonymous(place(size), size);
    pthread_t thread[2];
    begin();
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], 0, writes_8m, memory + i * 8 * MIB))
            fail("pthread_create");
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], 0);
    end();
    most();
    munmap(memory, size);
    return size / PAGE;
}

static long ping_pong(void) {
    int to[2], from[2];
    char byte = 0;
    if (pipe(to) || pipe(from))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        while (read(to[0], &byte, 1) == 1)
            (void)!write(from[1], &byte, 1);
        _exit(0);
    }
    close(to[0]);
    for (int i = 0; i < 220; i++) {
        if (i == 20)
            begin();
        (void)!write(to[1], &byte, 1);
        (void)!read(from[0], &byte, 1);
    }
    end();
    close(to[1]);
    reap(child);
    close(from[0]);
    close(from[1]);
    return 200;
}

static long call(void) {
    begin();
    for (int i = 0; i < 1000; i++)
        syscall(SYS_getppid);
    end();
    return 1000;
}

static const struct suite_case cases[] = {
    {"write-fault", "page", write_fault},
    {"write-fault-new-table", "page", write_new_table},
    {"map-write-unmap", "page", write_cycle},
    {"map-write-unmap-64k", "operation", small_cycle},
    {"read-fault-new-table", "page", read_new_table},
    {"read-fault-same-table", "page", read_same_table},
    {"unmap-dense", "page", unmap_dense},
    {"unmap-sparse", "page", unmap_sparse},
    {"dontneed-write", "page", dontneed},
    {"map-unmap-untouched", "operation", map_untouched},
    {"file-read", "page", file_read},
    {"file-shared-write", "page", file_shared},
    {"file-private-write", "page", file_private},
    {"shared-anonymous-write", "page", shared_anonymous},
    {"fork", "operation", fork_only},
    {"exit", "operation", exit_only},
    {"fork-exit", "operation", fork_plain},
    {"fork-exit-sparse-64m", "operation", fork_sparse_64m},
    {"fork-exit-sparse-1g", "operation", fork_sparse_1g},
    {"fork-exit-dense-64m", "operation", fork_dense},
    {"fork-both-write-4m", "operation", fork_both_write},
    {"fork-exit-1000-areas", "operation", fork_areas},
    {"fork-exec", "operation", fork_exec},
    {"vfork-exec", "operation", vfork_exec},
    {"fork-exec-32m", "operation", fork_exec_32m},
    {"cow-child-alive", "page", cow_alive},
    {"cow-child-gone", "page", cow_gone},
    {"mprotect-calls", "page", protect_calls},
    {"mprotect-write", "page", protect_write},
    {"mprotect-one-page", "operation", protect_page},
    {"mprotect-1000-areas", "operation", protect_areas},
    {"remap-10-areas", "operation", areas_10},
    {"remap-100-areas", "operation", areas_100},
    {"remap-1000-areas", "operation", areas_1000},
    {"remap-8000-areas", "operation", areas_8000},
    {"mremap-unaligned", "page", move_unaligned},
    {"mremap-aligned-4m", "operation", move_aligned},
    {"mremap-grow", "operation", grow},
    {"brk", "operation", program_break},
    {"brk-write", "page", break_touch},
    {"threads", "operation", threads_32},
    {"two-threads-write", "page", two_threads},
    {"pipe-ping-pong", "operation", ping_pong},
    {"getppid", "operation", call},
};

int main(void) {
    /* The program of fork-exec. */
    if (getpid() != 1)
        return 0;
    run_suite(cases, sizeof cases / sizeof *cases);
}
