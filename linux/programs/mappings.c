/* Process 1, or any process of Linux: what calls of the mmap family answer, and what they leave
 * behind. Every answer here is Linux's: the program ends with status 0 there, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"
#include "answers.h"

#define PAGE 4096ul
#define BASE ((char *)0x50000000)
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)

extern char _end[];
static char in_bss[40];
static int in_data = 5;
static sigjmp_buf before;
static void jump(int number) { siglongjmp(before, number); }

/* The signal that a read or a write of a byte ends with; 0 for none. */
static int touch(char *at, int write) {
    int number = sigsetjmp(before, 1);
    if (!number) {
        if (write)
            *(volatile char *)at = 1;
        else
            (void)*(volatile char *)at;
    }
    return number;
}

/* Areas of so many pages at BASE, and none behind them. */
static char *area(unsigned long pages, int permissions) {
    munmap(BASE, 64 * PAGE);
    return mmap(BASE, pages * PAGE, permissions, FLAGS | MAP_FIXED, -1, 0);
}

static void rest_of_bss(void) {
    unsigned long end = (unsigned long)_end, page = (end + PAGE - 1) & -PAGE, others = 0;
    for (unsigned long at = end; at < page; at++)
        others += *(volatile char *)at != 0;
    in_bss[0] = (char)in_data;
    check("the rest of the page behind .bss is zero", others == 0);
}

static void maps(void) {
    ANSWERS(0, mmap(0, PAGE, PROT_READ | 0x100, FLAGS, -1, 0));
    ANSWERS(0, mmap(0, PAGE, 8, FLAGS, -1, 0));
    ANSWERS(EINVAL, mmap(0, 0, 3, FLAGS, -1, 0));
    ANSWERS(EINVAL, mmap(BASE + 1, PAGE, 3, FLAGS | MAP_FIXED, -1, 0));
    ANSWERS(EINVAL, mmap(0, PAGE, 3, MAP_ANONYMOUS, -1, 0));
    ANSWERS(EINVAL, mmap(0, PAGE, 3, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0));
    ANSWERS(EBADF, mmap(0, PAGE, 3, MAP_PRIVATE, 99, 0));
    ANSWERS(ENOMEM, mmap((void *)-PAGE, PAGE, 3, FLAGS | MAP_FIXED, -1, 0));
    area(8, 3);
    ANSWERS(EEXIST, mmap(BASE, PAGE, 3, FLAGS | MAP_FIXED_NOREPLACE, -1, 0));
    ANSWERS(EINVAL, munmap(BASE + 1, PAGE));
    ANSWERS(EINVAL, munmap(BASE, 0));
    ANSWERS(EINVAL, munmap(BASE, -1ul));
    ANSWERS(EINVAL, munmap((void *)(sizeof(long) == 8 ? END_OF_ADDRESSES : -PAGE), PAGE));
    ANSWERS(0, munmap(BASE + 1000 * PAGE, PAGE));
}

static void protects(void) {
    area(8, 3);
    munmap(BASE + 2 * PAGE, PAGE);
    ANSWERS(ENOMEM, mprotect(BASE, 4 * PAGE, PROT_READ));
    check("what lies before the hole has changed", touch(BASE + PAGE, 1) == SIGSEGV);
    check("what lies behind the hole has not", touch(BASE + 3 * PAGE, 1) == 0);
    ANSWERS(ENOMEM, mprotect(BASE + 2 * PAGE, 2 * PAGE, PROT_READ));
    check("nothing changes if the hole comes first", touch(BASE + 3 * PAGE, 1) == 0);
    ANSWERS(ENOMEM, mprotect(BASE + 1000 * PAGE, PAGE, PROT_READ));
    ANSWERS(EINVAL, mprotect(BASE, PAGE, 0x40));
    ANSWERS(EINVAL, mprotect(BASE + 1, PAGE, PROT_READ));
    ANSWERS(0, mprotect(BASE, 0, PROT_READ));
    ANSWERS(0, mprotect(BASE, PAGE, PROT_READ | 8));
    ANSWERS(EINVAL, mprotect(BASE, PAGE, PROT_READ | 0x1000000));
    ANSWERS(EINVAL, mprotect(BASE, PAGE, PROT_READ | 0x2000000));
    ANSWERS(EINVAL, mprotect(BASE, PAGE, PROT_READ | 0x3000000));
    /* Rights that go and come back, with pages of all kinds. */
    area(4, 3);
    BASE[0] = 1;
    (void)*(volatile char *)(BASE + PAGE);
    for (int i = 0; i < 3; i++) {
        ANSWERS(0, mprotect(BASE, 4 * PAGE, PROT_READ));
        check("rights that were taken", touch(BASE, 1) == SIGSEGV && touch(BASE + PAGE, 1) == SIGSEGV);
        ANSWERS(0, mprotect(BASE, 4 * PAGE, PROT_READ | PROT_WRITE));
        check("rights that came back", BASE[0] == 1 && touch(BASE, 1) == 0);
    }
    check("a page that was only read", BASE[PAGE] == 0 && touch(BASE + PAGE, 1) == 0 && BASE[2 * PAGE] == 0);
    /* Pages that a child shares are copied, whoever gets rights back. */
    BASE[0] = 1;
    mprotect(BASE, 4 * PAGE, PROT_READ);
    int ends[2], status;
    char byte;
    (void)!pipe(ends);
    pid_t child = fork();
    if (child == 0) {
        (void)!read(ends[0], &byte, 1);
        int right = BASE[0] == 1 && BASE[2 * PAGE] == 0;
        mprotect(BASE, 4 * PAGE, PROT_READ | PROT_WRITE);
        BASE[0] = 3;
        _exit(right ? 7 : 8);
    }
    mprotect(BASE, 4 * PAGE, PROT_READ | PROT_WRITE);
    BASE[0] = 2;
    BASE[2 * PAGE] = 2;
    (void)!write(ends[1], "x", 1);
    waitpid(child, &status, 0);
    check("a child's pages are its own", WIFEXITED(status) && WEXITSTATUS(status) == 7 && BASE[0] == 2);
    close(ends[0]);
    close(ends[1]);
    /* The child is gone: its pages are the parent's alone. */
    mprotect(BASE, 4 * PAGE, PROT_READ);
    mprotect(BASE, 4 * PAGE, PROT_READ | PROT_WRITE);
    BASE[0] = 4;
    check("pages of which a copy has gone", BASE[0] == 4 && BASE[PAGE] == 1);
}

static void advises(void) {
    area(8, 3);
    memset(BASE, 5, 8 * PAGE);
    munmap(BASE + 2 * PAGE, PAGE);
    ANSWERS(ENOMEM, madvise(BASE, 4 * PAGE, MADV_DONTNEED));
    check("advice goes on behind holes", BASE[0] == 0 && BASE[3 * PAGE] == 0 && BASE[4 * PAGE] == 5);
    ANSWERS(ENOMEM, madvise(BASE + 1000 * PAGE, PAGE, MADV_DONTNEED));
    ANSWERS(ENOMEM, madvise(BASE + 7 * PAGE, 2 * PAGE, MADV_NORMAL));
    ANSWERS(EINVAL, madvise(BASE, PAGE, 77));
    ANSWERS(EINVAL, madvise(BASE, 0, 77));
    ANSWERS(EINVAL, madvise(BASE + 1, PAGE, MADV_DONTNEED));
    ANSWERS(EINVAL, madvise(BASE, -1ul, MADV_DONTNEED));
    ANSWERS(0, madvise(BASE, 0, MADV_DONTNEED));
    ANSWERS(0, madvise(BASE, PAGE, 20));
    area(4, 3);
    munmap(BASE + 2 * PAGE, PAGE);
    ANSWERS(ENOMEM, madvise(BASE, 4 * PAGE, 23));
    mprotect(BASE, PAGE, PROT_READ);
    ANSWERS(EINVAL, madvise(BASE, PAGE, 23));
    /* A page that may be written alone is not read ahead; the area before it has its pages. */
    area(4, 3);
    mprotect(BASE + 2 * PAGE, PAGE, PROT_WRITE);
    ANSWERS(EINVAL, madvise(BASE, 4 * PAGE, 22));
    ANSWERS(0, madvise(BASE, 4 * PAGE, 23));
    char *shared = mmap(0, PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ANSWERS(EINVAL, madvise(shared, PAGE, 18));
    ANSWERS(EINVAL, madvise(shared, PAGE, 8));
    munmap(shared, PAGE);
}

static void moves(void) {
    char *at;
    area(8, 3);
    BASE[0] = 6;
    ANSWERS(EFAULT, mremap(BASE + 1000 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    ANSWERS(EINVAL, mremap(BASE, PAGE, PAGE, MREMAP_FIXED, BASE + 50 * PAGE));
    ANSWERS(EINVAL, mremap(BASE, PAGE, PAGE, 8));
    ANSWERS(EINVAL, mremap(BASE, PAGE, 0, MREMAP_MAYMOVE));
    ANSWERS(EINVAL, mremap(BASE + 1, PAGE, PAGE, MREMAP_MAYMOVE));
    ANSWERS(EINVAL, mremap(BASE, 0, PAGE, MREMAP_MAYMOVE));
    ANSWERS(EINVAL, mremap(BASE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, BASE + PAGE));
    ANSWERS(EINVAL, mremap(BASE, PAGE, PAGE, MREMAP_DONTUNMAP, 0));
    ANSWERS(EINVAL, mremap(BASE, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
    ANSWERS(EFAULT, mremap(BASE, 9 * PAGE, 10 * PAGE, MREMAP_MAYMOVE));
    ANSWERS(0, mremap(BASE, 8 * PAGE, 9 * PAGE, 0));
    ANSWERS(ENOMEM, mremap(BASE, 4 * PAGE, 5 * PAGE, 0));
    ANSWERS(0, mremap(BASE, 9 * PAGE, 4 * PAGE, 0));
    check("a tail that was cut off", touch(BASE + 4 * PAGE, 0) == SIGSEGV && BASE[0] == 6);
    mprotect(BASE + 2 * PAGE, PAGE, PROT_READ);
    ANSWERS(0, mremap(BASE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE));
    at = mremap(BASE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    check("a page that moves and leaves its area", at != MAP_FAILED && *at == 6 && BASE[0] == 0);
    munmap(at, PAGE);
    /* A second place for shared memory. */
    char *shared = mmap(0, 4 * PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ANSWERS(ENOMEM, mremap(shared, 0, 4 * PAGE, 0));
    char *again = mremap(shared + PAGE, 0, 2 * PAGE, MREMAP_MAYMOVE);
    check("an old size of 0", again != MAP_FAILED && again != shared);
    shared[PAGE] = 9;
    check("two places of one memory", *again == 9);
    munmap(shared, 4 * PAGE);
    again[1] = 8;
    check("the second place alone", *again == 9 && again[1] == 8);
    munmap(again, 2 * PAGE);
}

static void files(void) {
    static char bytes[2 * PAGE];
    mkdir("/tmp", 0777);
    char name[] = "/tmp/mappings.XXXXXX";
    int file = -1;
    for (int i = 0; file < 0 && i < 100; i++) {
        snprintf(name, sizeof name, "/tmp/mappings.%06d", getpid() + i);
        file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    memset(bytes, 7, sizeof bytes);
    check("a file", write(file, bytes, sizeof bytes) == sizeof bytes);
    int reader = open(name, O_RDONLY);
    char *shared = mmap(0, 2 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
    ANSWERS(EACCES, mprotect(shared, PAGE, PROT_READ | PROT_WRITE));
    check("a file that was opened to be read", touch(shared, 1) == SIGSEGV && *shared == 7);
    ANSWERS(EACCES, mmap(0, PAGE, 3, MAP_SHARED, reader, 0));
    /* It stays so through fork, moves and cuts. */
    char *moved = mremap(shared, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, BASE + 40 * PAGE);
    ANSWERS(EACCES, mprotect(moved, PAGE, PROT_WRITE));
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(mprotect(moved, PAGE, PROT_WRITE) == -1 && errno == EACCES ? 7 : 8);
    waitpid(child, &status, 0);
    check("a child's file that was opened to be read", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    /* What lies before it has changed. */
    mmap(BASE + 39 * PAGE, PAGE, PROT_READ, FLAGS | MAP_FIXED, -1, 0);
    ANSWERS(EACCES, mprotect(BASE + 39 * PAGE, 2 * PAGE, 3));
    check("what lies before the file", touch(BASE + 39 * PAGE, 1) == 0);
    char *private = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, reader, 0);
    ANSWERS(0, mprotect(private, PAGE, 3));
    *private = 1;
    check("a private copy of it", *moved == 7 && *private == 1);
    char *writable = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0);
    ANSWERS(0, mprotect(writable, PAGE, 3));
    *writable = 2;
    check("a file that was opened to be written", *moved == 2);
    ANSWERS(EOPNOTSUPP, mmap(0, PAGE, 1, MAP_SHARED_VALIDATE | 0x80000, file, 0));
    ANSWERS(0, mmap(0, PAGE, 1, MAP_SHARED_VALIDATE, file, 0));
    ANSWERS(EINVAL, mmap(0, PAGE, 1, MAP_SHARED, file, 5));
    ANSWERS(EINVAL, madvise(writable, PAGE, 8));
    unlink(name);
    close(file);
    close(reader);
    check("a file that has no name any more", *moved == 2 && shared[PAGE] == 7);
    munmap(moved, PAGE);
    munmap(BASE + 39 * PAGE, PAGE);
}

/* Faults that mapped a page of an object, as the kernel counts them; -1 on Linux. */
static long faults_of_objects(void) {
    static char text[4096];
    int file = open("/proc/ptarmigan", O_RDONLY);
    long n = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    char *found = n > 0 ? strstr(text, "faults backed: ") : 0;
    return found ? atol(found + 15) : -1;
}

/* Reads a byte of each of so many pages; the page whose byte is not this many more than its number,
 * or -1. */
static int reads(char *at, int pages, int hole, int more) {
    int wrong = -1;
    for (int i = 0; i < pages; i++)
        if (((volatile char *)at)[i * PAGE] != (i == hole ? 0 : i + more))
            wrong = i;
    return wrong;
}

/* A fault that reads a page of a file may map others around it: the file's, and nothing else, with
 * the same rights. */
static void around(void) {
    enum { PAGES = 64, HOLE = 20 };
    const char *name = "/mappings-around";
    int file = open(name, O_RDWR | O_CREAT, 0600), status;
    char byte;
    for (int i = 0; i < PAGES; i++)
        if (i != HOLE)
            byte = (char)(i + 1), (void)!pwrite(file, &byte, 1, i * PAGE);
    munmap(BASE, 64 * PAGE);
    mmap(BASE, PAGES * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    /* Once before: so that the program's own pages are there. The hole stays one. */
    faults_of_objects();
    check("pages of a file", reads(BASE, 16, HOLE, 1) == -1);
    mmap(BASE, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
    long faults = faults_of_objects();
    int wrong = reads(BASE, PAGES, HOLE, 1);
    faults = faults_of_objects() - faults;
    check("pages of a file, anew", wrong == -1);
    printf("AROUND %d pages, %ld faults\n", PAGES, faults);
    /* A copy is the program's own. */
    BASE[5 * PAGE] = 99;
    BASE[HOLE * PAGE] = 98;
    check("the file stays", pread(file, &byte, 1, 5 * PAGE) == 1 && byte == 6);
    check("the hole stays", pread(file, &byte, 1, HOLE * PAGE) == 1 && byte == 0);
    pid_t child = fork();
    if (child == 0) {
        BASE[6 * PAGE] = 97;
        _exit(BASE[5 * PAGE] == 99 && BASE[7 * PAGE] == 8 ? 7 : 8);
    }
    waitpid(child, &status, 0);
    check("a child has the pages", WIFEXITED(status) && WEXITSTATUS(status) == 7 && BASE[6 * PAGE] == 7);
    /* Shared: a page that was mapped to be read is the file's when it is written. */
    mmap(BASE, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    check("shared pages", BASE[0] == 1 && BASE[4 * PAGE] == 5);
    BASE[4 * PAGE] = 96;
    check("a page that is written", pread(file, &byte, 1, 4 * PAGE) == 1 && byte == 96);
    byte = 95;
    check("a file that is written", pwrite(file, &byte, 1, 3 * PAGE) == 1 && BASE[3 * PAGE] == 95);
    /* In the middle of other areas: what lies beside stays as it is. */
    area(16, 3);
    BASE[2 * PAGE] = 94;
    mmap(BASE + 4 * PAGE, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 32 * PAGE);
    munmap(BASE + 3 * PAGE, PAGE);
    mmap(BASE + 9 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_FIXED, file, 37 * PAGE);
    check("four pages of the file", reads(BASE + 4 * PAGE, 4, -1, 33) == -1);
    check("nothing before them", touch(BASE + 3 * PAGE, 0) == SIGSEGV && BASE[2 * PAGE] == 94);
    check("memory behind them", BASE[8 * PAGE] == 0 && touch(BASE + 8 * PAGE, 1) == 0);
    check("a page that nobody may read", touch(BASE + 9 * PAGE, 0) == SIGSEGV);
    check("pages that may be read", touch(BASE + 5 * PAGE, 1) == SIGSEGV);
    /* The end of the file. */
    (void)!ftruncate(file, 10 * PAGE);
    mmap(BASE, 16 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    check("what lies before the end", BASE[0] == 1 && BASE[9 * PAGE] == 10);
    check("what lies behind it", touch(BASE + 10 * PAGE, 0) == SIGBUS && touch(BASE + 15 * PAGE, 0) == SIGBUS);
    unlink(name);
    close(file);
    munmap(BASE, 64 * PAGE);
}

/* Shared memories at a time, of which parts come and go: each is the memory that it was. */
static void objects(void) {
    enum { OBJECTS = 3000 };
    static char *all[OBJECTS];
    for (int round = 0; round < 3; round++) {
        int made = 0;
        for (; made < OBJECTS; made++) {
            all[made] = mmap(0, 3 * PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (all[made] == MAP_FAILED)
                break;
            for (int page = 0; page < 3; page++)
                all[made][page * PAGE] = (char)(made + 1);
        }
        check("3,000 shared memories", made == OBJECTS);
        for (int i = 0; i < made; i++)
            munmap(all[i] + PAGE, PAGE);
        int status, right = 1;
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < made; i++) {
                right &= all[i][0] == (char)(i + 1) && all[i][2 * PAGE] == (char)(i + 1);
                all[i][0] = (char)(i + 2);
            }
            _exit(right ? 7 : 8);
        }
        waitpid(child, &status, 0);
        for (int i = 0; i < made; i++) {
            right &= all[i][0] == (char)(i + 2) && all[i][2 * PAGE] == (char)(i + 1);
            munmap(all[i], PAGE);
            right &= all[i][2 * PAGE] == (char)(i + 1);
            munmap(all[i] + 2 * PAGE, PAGE);
        }
        check("each is the memory that it was", right && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    /* One that a child does not get. */
    char *kept = mmap(0, 2 * PAGE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *kept = 1;
    madvise(kept, PAGE, MADV_DONTFORK);
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(touch(kept, 0) == SIGSEGV && touch(kept + PAGE, 0) == 0 ? 7 : 8);
    waitpid(child, &status, 0);
    check("memory that fork leaves out", WIFEXITED(status) && WEXITSTATUS(status) == 7 && *kept == 1);
    munmap(kept, 2 * PAGE);
}

static void limits(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {512 << 20, 512 << 20}, seen;
        int right = setrlimit(RLIMIT_AS, &limit) == 0;
        right &= getrlimit(RLIMIT_AS, &seen) == 0 && seen.rlim_cur == 512 << 20;
        char *large = mmap(0, 1 << 30, 3, FLAGS | MAP_NORESERVE, -1, 0);
        right &= large == MAP_FAILED && errno == ENOMEM;
        char *small = mmap(0, 64 << 20, PROT_NONE, FLAGS | MAP_NORESERVE, -1, 0);
        right &= small != MAP_FAILED;
        right &= mremap(small, 64 << 20, 1 << 30, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM;
        /* In the place of what is there. */
        right &= mmap(small, 64 << 20, 3, FLAGS | MAP_FIXED | MAP_NORESERVE, -1, 0) == small;
        for (int i = 0; i < 20; i++) {
            char *more = mmap(0, 256 << 20, 3, FLAGS | MAP_NORESERVE, -1, 0);
            right &= more != MAP_FAILED && munmap(more, 256 << 20) == 0;
        }
        char *top = sbrk(0);
        right &= syscall(SYS_brk, top + (600ul << 20)) != (long)(top + (600ul << 20));
        _exit(right ? 7 : 8);
    }
    waitpid(child, &status, 0);
    check("RLIMIT_AS", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    struct rlimit bad = {2, 1};
    ANSWERS(EINVAL, setrlimit(RLIMIT_AS, &bad));
    ANSWERS(EINVAL, setrlimit(77, &bad));
    struct rlimit none = {0, 0};
    ANSWERS(0, setrlimit(RLIMIT_CORE, &none));
}

/* Areas until there are many, and calls in the midst of them: they take no longer for it. */
static void many(void) {
    enum { AREAS = 4000 };
    char *at = mmap(0, 2 * AREAS * PAGE, PROT_NONE, FLAGS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < AREAS; i++) {
        char *one = mmap(at + 2 * i * PAGE, PAGE, 3, FLAGS | MAP_FIXED, -1, 0);
        if (one == MAP_FAILED)
            break;
        *one = (char)i;
    }
    int right = 1;
    for (int i = 0; i < AREAS; i += 3)
        munmap(at + 2 * i * PAGE, PAGE);
    for (int i = 0; i < AREAS; i++)
        right &= i % 3 ? at[2 * i * PAGE] == (char)i : 1;
    check("many areas", right);
    munmap(at, 2 * AREAS * PAGE);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    signal(SIGSEGV, jump);
    signal(SIGBUS, jump);
    rest_of_bss();
    maps();
    protects();
    advises();
    moves();
    files();
    around();
    objects();
    limits();
    many();
    printf("MAPPINGS %s: %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
