/* Process 1, or any process of Linux: pages that are in memory, that are locked there, that are
 * written back; memory with a descriptor. Every answer here is Linux's: the program ends with
 * status 0 there, too. */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
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

#include "answers.h"

#define PAGE 4096ul
#define BASE ((char *)0x50000000)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define MAP(first, count, rights, flags, file, place) \
    check("mmap", mmap(BASE + (first) * PAGE, (count) * PAGE, rights, (flags) | MAP_FIXED, file, (place) * PAGE) == BASE + (first) * PAGE)

/* Pages of a range that are there, a digit each. */
static const char *there(char *at, int count) {
    static char digits[65];
    unsigned char bytes[64];
    if (mincore(at, count * PAGE, bytes))
        return "error";
    for (int i = 0; i < count; i++)
        digits[i] = '0' + (bytes[i] & 1);
    digits[count] = 0;
    return digits;
}

/* KiB that are locked, as /proc says. */
static long locked(void) {
    static char text[8192];
    int file = open("/proc/self/status", O_RDONLY);
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    char *found = strstr(text, "VmLck:");
    return found ? atol(found + 6) : -1;
}

static void in_memory(void) {
    unsigned char bytes[8];
    int file = open("/tmp/resident", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check("a file of 8 pages, two of them there", ftruncate(file, 8 * PAGE) == 0 && pwrite(file, "x", 1, 2 * PAGE) == 1 && pwrite(file, "x", 1, 5 * PAGE) == 1);
    MAP(0, 4, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    check("nothing there", !strcmp(there(BASE, 4), "0000"));
    BASE[PAGE] = 1;
    (void)*(volatile char *)(BASE + 3 * PAGE);
    check("what was touched", !strcmp(there(BASE, 4), "0101"));
    ANSWERS(EINVAL, mincore(BASE + 1, PAGE, bytes));
    ANSWERS(ENOMEM, mincore(BASE, 5 * PAGE, bytes));
    ANSWERS(ENOMEM, mincore(BASE - PAGE, PAGE, bytes));
    ANSWERS(EFAULT, mincore(BASE, PAGE, (void *)8));
    ANSWERS(0, mincore(BASE, 0, bytes));
    bytes[1] = 9;
    check("a part of a page", mincore(BASE, 1, bytes) == 0 && bytes[0] == 0 && bytes[1] == 9);
    madvise(BASE, 4 * PAGE, MADV_DONTNEED);
    check("given back", !strcmp(there(BASE, 4), "0000"));
    munmap(BASE, 4 * PAGE);
    close(file);
    unlink("/tmp/resident");
}

static void locks(void) {
    long before = locked();
    check("no locks", before == 0);
    MAP(0, 4, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    MAP(6, 2, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    MAP(8, 1, PROT_NONE, ANONYMOUS, -1, 0);
    ANSWERS(0, mlock(BASE + 1, PAGE));
    check("two pages", locked() == 8 && !strcmp(there(BASE, 4), "1100"));
    ANSWERS(0, mlock(BASE, 0));
    /* A part of an area that is locked, and of one that is not. */
    ANSWERS(0, mlock(BASE, PAGE));
    ANSWERS(0, munlock(BASE + 2 * PAGE, PAGE));
    check("two pages still", locked() == 8);
    ANSWERS(ENOMEM, mlock(BASE, 7 * PAGE));
    check("up to the hole", locked() == 16);
    ANSWERS(ENOMEM, mlock(BASE + 4 * PAGE, PAGE));
    ANSWERS(ENOMEM, mlock(BASE + 8 * PAGE, PAGE));
    check("no access, and locked", locked() == 20);
    if (sizeof(long) == 8)
        ANSWERS(EINVAL, mlock(BASE, -PAGE));
    ANSWERS(0, mlock(BASE + 6 * PAGE, 2 * PAGE));
    check("all of it", locked() == 28 && !strcmp(there(BASE + 6 * PAGE, 2), "11"));
    ANSWERS(EINVAL, madvise(BASE, PAGE, MADV_DONTNEED));
    ANSWERS(EINVAL, madvise(BASE, PAGE, MADV_FREE));
    ANSWERS(EBUSY, msync(BASE, PAGE, MS_INVALIDATE));
    pid_t child = fork();
    int status;
    if (child == 0)
        _exit(locked() != 0 || madvise(BASE, PAGE, MADV_DONTNEED) != 0 || *BASE != 0);
    check("a child has no locks", waitpid(child, &status, 0) == child && status == 0);
    ANSWERS(0, munlock(BASE + PAGE, PAGE));
    check("one less", locked() == 24);
    ANSWERS(0, madvise(BASE + PAGE, PAGE, MADV_DONTNEED));
    ANSWERS(ENOMEM, munlock(BASE, 9 * PAGE));
    check("up to the hole", locked() == 12);
    char *moved = mremap(BASE + 6 * PAGE, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, BASE + 20 * PAGE);
    check("a locked area moves and grows", moved == BASE + 20 * PAGE && locked() == 16);
    munmap(BASE, 30 * PAGE);
    check("locks go with areas", locked() == 0);

    MAP(0, 3, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_LOCKED, -1, 0);
    check("MAP_LOCKED", locked() == 12 && !strcmp(there(BASE, 3), "111"));
    MAP(4, 2, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    ANSWERS(0, syscall(SYS_mlock2, BASE + 4 * PAGE, 2 * PAGE, MLOCK_ONFAULT));
    check("on fault", locked() == 20 && !strcmp(there(BASE + 4 * PAGE, 2), "00"));
    ANSWERS(EINVAL, syscall(SYS_mlock2, BASE, PAGE, 2));
    ANSWERS(EINVAL, mlockall(0));
    ANSWERS(EINVAL, mlockall(8));
    ANSWERS(EINVAL, mlockall(MCL_ONFAULT));
    ANSWERS(0, munlockall());
    check("none", locked() == 0);
    ANSWERS(0, mlockall(MCL_FUTURE));
    MAP(10, 2, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    check("those that come", locked() == 8 && !strcmp(there(BASE + 10 * PAGE, 2), "11"));
    char *heap = sbrk(8 * PAGE);
    check("the heap, too", heap != (void *)-1 && locked() == 40);
    sbrk(-8 * PAGE);
    ANSWERS(0, mlockall(MCL_FUTURE | MCL_ONFAULT));
    MAP(14, 2, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    check("on fault", locked() >= 8 && !strcmp(there(BASE + 14 * PAGE, 2), "00"));
    ANSWERS(0, munlockall());
    MAP(18, 2, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    check("no more", locked() == 0 && !strcmp(there(BASE + 18 * PAGE, 2), "00"));
    ANSWERS(0, mlockall(MCL_CURRENT | MCL_ONFAULT));
    check("all that there are", locked() > 40);
    ANSWERS(0, munlockall());
    check("none of them", locked() == 0);
    munmap(BASE, 30 * PAGE);
}

static void written_back(void) {
    int file = open("/tmp/resident", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char bytes[10] = "";
    check("a file", ftruncate(file, 4 * PAGE) == 0);
    MAP(0, 4, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MAP(6, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 1);
    strcpy(BASE + PAGE + 10, "stored");
    check("read sees what is stored", pread(file, bytes, 7, PAGE + 10) == 7 && !strcmp(bytes, "stored"));
    check("so does another mapping", !strcmp(BASE + 6 * PAGE + 10, "stored"));
    check("a mapping sees what is written", pwrite(file, "W", 1, PAGE + 10) == 1 && BASE[6 * PAGE + 10] == 'W' && BASE[PAGE + 10] == 'W');
    ANSWERS(0, msync(BASE, 4 * PAGE, MS_SYNC));
    ANSWERS(0, msync(BASE, 4 * PAGE, MS_ASYNC | MS_INVALIDATE));
    struct timespec long_ago[2] = {{5, 0}, {5, 0}};
    struct stat facts;
    ANSWERS(0, futimens(file, long_ago));
    BASE[2 * PAGE] = 'w';
    ANSWERS(0, msync(BASE, 4 * PAGE, MS_SYNC));
    check("a store sets the time", fstat(file, &facts) == 0 && facts.st_mtime != 5);
    ANSWERS(0, futimens(file, long_ago));
    (void)*(volatile char *)(BASE + PAGE);
    ANSWERS(0, msync(BASE, 4 * PAGE, MS_SYNC));
    check("a load does not", fstat(file, &facts) == 0 && facts.st_mtime == 5);
    ANSWERS(0, msync(BASE, 0, 0));
    ANSWERS(EINVAL, msync(BASE + 1, PAGE, MS_SYNC));
    ANSWERS(EINVAL, msync(BASE, PAGE, 8));
    ANSWERS(EINVAL, msync(BASE, PAGE, MS_SYNC | MS_ASYNC));
    ANSWERS(ENOMEM, msync(BASE, 5 * PAGE, MS_SYNC));
    ANSWERS(ENOMEM, msync(BASE + 4 * PAGE, PAGE, MS_SYNC));
    ANSWERS(ENOMEM, msync(BASE, -PAGE, MS_SYNC));
    /* Written by a child, and after the file has no name. */
    unlink("/tmp/resident");
    pid_t child = fork();
    if (child == 0) {
        BASE[3 * PAGE] = 77;
        _exit(0);
    }
    waitpid(child, 0, 0);
    check("what a child stored", pread(file, bytes, 1, 3 * PAGE) == 1 && bytes[0] == 77);
    munmap(BASE, 7 * PAGE);
    check("it stays without mappings", pread(file, bytes, 7, PAGE + 10) == 7 && !strcmp(bytes, "Wtored"));
    close(file);

    file = open("/tmp/resident", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int reader = open("/tmp/resident", O_RDONLY);
    check("a file", ftruncate(file, PAGE) == 0);
    MAP(0, 1, PROT_READ, MAP_SHARED, reader, 0);
    ANSWERS(EACCES, mprotect(BASE, PAGE, PROT_READ | PROT_WRITE));
    ANSWERS(0, mlock(BASE, PAGE));
    ANSWERS(EACCES, mprotect(BASE, PAGE, PROT_READ | PROT_WRITE));
    ANSWERS(0, munlock(BASE, PAGE));
    ANSWERS(EACCES, mprotect(BASE, PAGE, PROT_READ | PROT_WRITE));
    munmap(BASE, PAGE);
    close(reader);
    close(file);
    unlink("/tmp/resident");
}

static void memory_files(void) {
    char link[100], bytes[10] = "";
    struct stat facts;
    int file = memfd_create("some memory", 0), other = memfd_create("some memory", MFD_CLOEXEC);
    check("memfd_create", file >= 0 && other >= 0 && fcntl(file, F_GETFD) == 0 && fcntl(other, F_GETFD) == FD_CLOEXEC);
    check("an empty file", fstat(file, &facts) == 0 && facts.st_size == 0 && S_ISREG(facts.st_mode) && fcntl(file, F_GETFL) & O_RDWR);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, bytes, 7);
    check("its name", n == 7 && !memcmp(bytes, "/memfd:", 7));
    check("size", ftruncate(file, 3 * PAGE) == 0);
    MAP(0, 3, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    strcpy(BASE + 2 * PAGE, "memory");
    pid_t child = fork();
    if (child == 0) {
        BASE[2 * PAGE] = 'M';
        _exit(pread(file, bytes, 7, 2 * PAGE) != 7 || strcmp(bytes, "Memory"));
    }
    int status;
    check("a child", waitpid(child, &status, 0) == child && status == 0 && BASE[2 * PAGE] == 'M');
    close(file);
    check("it stays while it is mapped", !strcmp(BASE + 2 * PAGE, "Memory"));
    munmap(BASE, 3 * PAGE);
    check("the other is another one", fstat(other, &facts) == 0 && facts.st_size == 0);
    close(other);
    memset(link, 'x', sizeof link);
    char name[300];
    memset(name, 'x', sizeof name);
    name[249] = 0;
    ANSWERS(0, file = memfd_create(name, 0));
    close(file);
    name[249] = 'x', name[250] = 0;
    ANSWERS(EINVAL, memfd_create(name, 0));
    ANSWERS(EFAULT, memfd_create((void *)8, 0));
    ANSWERS(EINVAL, memfd_create("x", 0x80));
}

static void limits(void) {
    struct rlimit before, limit;
    check("RLIMIT_DATA", getrlimit(RLIMIT_DATA, &before) == 0);
    limit = before;
    char *heap = sbrk(0);
    MAP(0, 100, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    MAP(200, 100, PROT_READ, ANONYMOUS, -1, 0);
    limit.rlim_cur = PAGE;
    ANSWERS(0, setrlimit(RLIMIT_DATA, &limit));
    ANSWERS(ENOMEM, mmap(0, PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0));
    ANSWERS(ENOMEM, mprotect(BASE + 200 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    ANSWERS(ENOMEM, sbrk(PAGE));
    char *given;
    ANSWERS(0, given = mmap(0, PAGE, PROT_READ, ANONYMOUS, -1, 0));
    munmap(given, PAGE);
    ANSWERS(0, given = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    munmap(given, PAGE);
    ANSWERS(ENOMEM, mremap(BASE, 100 * PAGE, 101 * PAGE, 0));
    ANSWERS(0, mprotect(BASE, 100 * PAGE, PROT_READ));
    MAP(400, 1, PROT_READ, ANONYMOUS, -1, 0);
    ANSWERS(0, mremap(BASE + 400 * PAGE, PAGE, 2 * PAGE, 0));
    munmap(BASE + 400 * PAGE, 2 * PAGE);
    check("the heap stays", sbrk(0) == heap);
    ANSWERS(0, setrlimit(RLIMIT_DATA, &before));
    ANSWERS(0, mprotect(BASE + 200 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    munmap(BASE, 300 * PAGE);
}

/* Pages behind the new end of a file go from mappings, copied ones too. */
static void cut_short(void) {
    int file = memfd_create("cut", 0);
    check("a file", ftruncate(file, 4 * PAGE) == 0);
    MAP(0, 4, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    MAP(5, 4, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memset(BASE, 7, 4 * PAGE);
    memset(BASE + 5 * PAGE, 8, 4 * PAGE);
    ANSWERS(0, ftruncate(file, PAGE + 10));
    ANSWERS(0, ftruncate(file, 4 * PAGE));
    check("copied pages before the end stay", BASE[0] == 7 && BASE[PAGE] == 7 && BASE[PAGE + 10] == 7);
    check("those behind it go", BASE[2 * PAGE] == 0 && BASE[4 * PAGE - 1] == 0);
    check("shared ones", BASE[6 * PAGE] == 8 && BASE[6 * PAGE + 9] == 8 && BASE[6 * PAGE + 10] == 0 && BASE[7 * PAGE] == 0);
    munmap(BASE, 9 * PAGE);
    close(file);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (getpid() == 1) {
        mkdir("/tmp", 0777);
        mkdir("/proc", 0555);
        mount("proc", "/proc", "proc", 0, 0);
    }
    in_memory();
    locks();
    written_back();
    memory_files();
    cut_short();
    limits();
    printf("RESIDENT %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
