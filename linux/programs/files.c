/* Process 1, or any process of Linux: locks of files, and calls that change their contents as a
 * whole. Every answer here is that of Linux's tmpfs: the program ends with status 0 there, too (in
 * /dev/shm). */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

enum { PAGE = 4096 };

static int lock(int file, int command, int kind, off_t start, off_t len) {
    struct flock64 lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(file, command, &lock);
}

/* The status of a child that runs `action`, 0 to 255. */
#define IN_CHILD(...) \
    ({ \
        pid_t child = fork(); \
        if (child == 0) { \
            failures = 0; \
            __VA_ARGS__; \
            _exit(failures); \
        } \
        int status = -1; \
        waitpid(child, &status, 0); \
        WIFEXITED(status) ? WEXITSTATUS(status) : 255; \
    })

/* Waits until a task sleeps in a call: no portable call says so, and a little time does. */
static void a_little(void) { usleep(50000); }

static void handler(int number) { (void)number; }

static void records(void) {
    int file = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("locked", O_RDWR);
    int reader = open("locked", O_RDONLY), writer = open("locked", O_WRONLY);
    struct flock64 asked;
    ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 10, 10));
    ANSWERS(0, lock(other, F_SETLK64, F_WRLCK, 0, 0));
    ANSWERS(0, lock(other, F_SETLK64, F_UNLCK, 20, 0));
    ANSWERS(0, lock(other, F_SETLK64, F_UNLCK, 0, 10));
    ANSWERS(EBADF, lock(reader, F_SETLK64, F_WRLCK, 0, 1));
    ANSWERS(EBADF, lock(writer, F_SETLK64, F_RDLCK, 0, 1));
    ANSWERS(EINVAL, lock(file, F_SETLK64, 9, 0, 1));
    ANSWERS(EINVAL, lock(file, F_SETLK64, F_RDLCK, -1, 1));
    ANSWERS(EINVAL, lock(file, F_SETLK64, F_RDLCK, 3, -4));
    ANSWERS(EINVAL, lock(file, F_GETLK64, F_UNLCK, 0, 1));
    ANSWERS(EBADF, lock(99, F_SETLK64, F_RDLCK, 0, 1));
    ANSWERS(EFAULT, fcntl(file, F_SETLK64, (void *)8));
    ANSWERS(EINVAL, fcntl(file, F_SETLK64, &(struct flock64){.l_type = F_RDLCK, .l_whence = 7}));
    ANSWERS(EOVERFLOW, lock(file, F_SETLK64, F_RDLCK, INT64_MAX, 2));
    pid_t owner = getpid();
    check("a child without the locks", IN_CHILD({
        ANSWERS(EAGAIN, lock(file, F_SETLK64, F_RDLCK, 15, 1));
        ANSWERS(EAGAIN, lock(file, F_SETLK64, F_WRLCK, 0, 0));
        ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 0, 10));
        ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 20, 0));
        asked = (struct flock64){.l_type = F_RDLCK, .l_start = 0};
        ANSWERS(0, fcntl(file, F_GETLK64, &asked));
        check("the lock", asked.l_type == F_WRLCK && asked.l_start == 10 && asked.l_len == 10 && asked.l_pid == owner);
        asked = (struct flock64){.l_type = F_RDLCK, .l_start = 20, .l_pid = 7};
        ANSWERS(0, fcntl(file, F_GETLK64, &asked));
        check("no lock", asked.l_type == F_UNLCK && asked.l_start == 20 && asked.l_pid == 7);
    }) == 0);
    /* The child's have gone with it. Shared ones, from the end of the file. */
    ANSWERS(0, ftruncate(file, 100));
    ANSWERS(0, fcntl(file, F_SETLK64, &(struct flock64){.l_type = F_RDLCK, .l_whence = SEEK_END, .l_start = -10, .l_len = -5}));
    check("shared ones", IN_CHILD({
        ANSWERS(0, lock(file, F_SETLK64, F_RDLCK, 85, 5));
        ANSWERS(EAGAIN, lock(file, F_SETLK64, F_WRLCK, 89, 1));
        ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 90, 1));
        ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 84, 1));
    }) == 0);
    /* Locks of a process go with any of its descriptors. */
    ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 0, 1));
    close(dup(reader));
    check("a closed descriptor", IN_CHILD(ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 0, 0))) == 0);
    /* Waits: for the holder's end, for a signal, for a cycle. */
    int ready[2];
    char byte;
    check("a pipe", pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        lock(file, F_SETLK64, F_WRLCK, 0, 1);
        (void)!write(ready[1], "x", 1);
        a_little();
        _exit(0);
    }
    check("it is locked", read(ready[0], &byte, 1) == 1);
    ANSWERS(EAGAIN, lock(file, F_SETLK64, F_WRLCK, 0, 0));
    ANSWERS(0, lock(file, F_SETLKW64, F_WRLCK, 0, 0));
    waitpid(child, 0, 0);
    ANSWERS(0, lock(file, F_SETLK64, F_UNLCK, 0, 0));
    child = fork();
    if (child == 0) {
        lock(file, F_SETLK64, F_WRLCK, 0, 1);
        (void)!write(ready[1], "x", 1);
        a_little();
        a_little();
        kill(owner, SIGUSR1);
        pause();
    }
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    check("it is locked", read(ready[0], &byte, 1) == 1);
    ANSWERS(EINTR, lock(file, F_SETLKW64, F_RDLCK, 0, 0));
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 0, 1));
    child = fork();
    if (child == 0) {
        failures = 0;
        lock(file, F_SETLK64, F_WRLCK, 1, 1);
        (void)!write(ready[1], "x", 1);
        ANSWERS(0, lock(file, F_SETLKW64, F_WRLCK, 0, 1));
        _exit(failures);
    }
    check("it is locked", read(ready[0], &byte, 1) == 1);
    a_little();
    ANSWERS(EDEADLK, lock(file, F_SETLKW64, F_WRLCK, 1, 1));
    ANSWERS(0, lock(file, F_SETLK64, F_UNLCK, 0, 1));
    int status;
    check("the child", waitpid(child, &status, 0) == child && status == 0);
    /* Locks of open files: between two of one process, too. */
    ANSWERS(0, lock(file, F_OFD_SETLK, F_WRLCK, 5, 5));
    ANSWERS(EAGAIN, lock(other, F_OFD_SETLK, F_RDLCK, 0, 6));
    ANSWERS(EAGAIN, lock(other, F_SETLK64, F_RDLCK, 9, 1));
    asked = (struct flock64){.l_type = F_RDLCK, .l_start = 0};
    ANSWERS(0, fcntl(other, F_OFD_GETLK, &asked));
    check("the lock", asked.l_type == F_WRLCK && asked.l_start == 5 && asked.l_len == 5 && asked.l_pid == -1);
    ANSWERS(EINVAL, fcntl(other, F_OFD_GETLK, &(struct flock64){.l_type = F_RDLCK, .l_pid = 1}));
    int copy = dup(file);
    close(file);
    ANSWERS(EAGAIN, lock(other, F_OFD_SETLK, F_RDLCK, 0, 6));
    check("a copy of the descriptor in a child", IN_CHILD(close(copy)) == 0);
    ANSWERS(EAGAIN, lock(other, F_OFD_SETLK, F_RDLCK, 0, 6));
    close(copy);
    ANSWERS(0, lock(other, F_OFD_SETLK, F_RDLCK, 0, 6));
    /* A pipe, which has no bytes that could be written twice. */
    ANSWERS(0, lock(ready[0], F_SETLK64, F_RDLCK, 0, 1));
    close(ready[0]);
    close(ready[1]);

    /* flock. */
    file = open("locked", O_RDWR);
    ANSWERS(0, flock(file, LOCK_EX));
    ANSWERS(0, lock(file, F_SETLK64, F_WRLCK, 50, 1));
    ANSWERS(EAGAIN, flock(other, LOCK_SH | LOCK_NB));
    ANSWERS(EINVAL, flock(other, 0));
    ANSWERS(EINVAL, flock(other, LOCK_SH | LOCK_EX));
    ANSWERS(EBADF, flock(99, LOCK_SH));
    check("the child's copy is the same lock", IN_CHILD(ANSWERS(0, flock(file, LOCK_SH | LOCK_NB))) == 0);
    ANSWERS(0, flock(other, LOCK_SH | LOCK_NB));
    ANSWERS(EAGAIN, flock(other, LOCK_EX | LOCK_NB));
    /* The one that was there has been lost. */
    ANSWERS(0, flock(file, LOCK_EX | LOCK_NB));
    child = fork();
    if (child == 0) {
        close(file);
        failures = 0;
        ANSWERS(0, flock(other, LOCK_EX));
        _exit(failures);
    }
    a_little();
    check("it waits", waitpid(child, &status, WNOHANG) == 0);
    close(file);
    check("it waits no more", waitpid(child, &status, 0) == child && status == 0);
    close(other);
    close(reader);
    close(writer);
    unlink("locked");
}

static off_t size(int file) {
    struct stat facts;
    return fstat(file, &facts) == 0 ? facts.st_size : -1;
}

/* How many bytes of a page are not zero. */
static int filled(int file, int page) {
    static unsigned char bytes[PAGE];
    int n = 0;
    if (pread(file, bytes, PAGE, (off_t)page * PAGE) != PAGE)
        return -1;
    for (int i = 0; i < PAGE; i++)
        n += bytes[i] != 0;
    return n;
}

static void contents(void) {
    int file = open("contents", O_RDWR | O_CREAT | O_TRUNC, 0600), reader = open("contents", O_RDONLY);
    int directory = open(".", O_RDONLY), ends[2];
    static char page[4 * PAGE], back[4 * PAGE];
    memset(page, 7, sizeof page);
    check("a pipe", pipe(ends) == 0);
    ANSWERS(0, fsync(file));
    ANSWERS(0, fdatasync(reader));
    ANSWERS(0, fsync(directory));
    ANSWERS(EBADF, fsync(99));
    ANSWERS(EINVAL, fsync(ends[0]));
    ANSWERS(0, syncfs(file));
    ANSWERS(EBADF, syncfs(99));
    ANSWERS(0, sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
    ANSWERS(EINVAL, sync_file_range(file, 0, 0, 64));
    ANSWERS(ESPIPE, sync_file_range(ends[0], 0, 0, 0));
    sync();

    ANSWERS(EINVAL, fallocate(file, 0, -1, 1));
    ANSWERS(EINVAL, fallocate(file, 0, 0, 0));
    ANSWERS(EOPNOTSUPP, fallocate(file, 0x80, 0, 1));
    ANSWERS(EOPNOTSUPP, fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 1));
    ANSWERS(EOPNOTSUPP, fallocate(file, FALLOC_FL_ZERO_RANGE, 0, 1));
    ANSWERS(EOPNOTSUPP, fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE));
    ANSWERS(EBADF, fallocate(reader, 0, 0, 1));
    ANSWERS(EBADF, fallocate(99, 0, 0, 1));
    ANSWERS(EBADF, fallocate(directory, 0, 0, 1));
    ANSWERS(ESPIPE, fallocate(ends[1], 0, 0, 1));
    ANSWERS(EFBIG, fallocate(file, 0, INT64_MAX - 1, 2));
    ANSWERS(0, fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 3 * PAGE));
    check("the size stays", size(file) == 0);
    ANSWERS(0, fallocate(file, 0, 10, 2 * PAGE));
    check("the size grows", size(file) == 2 * PAGE + 10);
    ANSWERS(0, fallocate(file, 0, 0, PAGE));
    check("the size does not shrink", size(file) == 2 * PAGE + 10);
    check("4 pages", pwrite(file, page, sizeof page, 0) == sizeof page);
    ANSWERS(0, fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE - 100, PAGE + 200));
    check("a hole", filled(file, 0) == PAGE - 100 && filled(file, 1) == 0 && filled(file, 2) == PAGE - 100 && filled(file, 3) == PAGE);
    check("data and holes", lseek(file, 0, SEEK_DATA) == 0 && lseek(file, 0, SEEK_HOLE) == PAGE && lseek(file, 0, SEEK_CUR) == PAGE);
    check("data behind the hole", lseek(file, PAGE + 1, SEEK_DATA) == 2 * PAGE && lseek(file, 2 * PAGE + 7, SEEK_DATA) == 2 * PAGE + 7);
    check("the end is a hole", lseek(file, 2 * PAGE, SEEK_HOLE) == 4 * PAGE && lseek(file, PAGE + 5, SEEK_HOLE) == PAGE + 5);
    ANSWERS(ENXIO, lseek(file, 4 * PAGE, SEEK_HOLE));
    ANSWERS(ENXIO, lseek(file, 4 * PAGE, SEEK_DATA));
    ANSWERS(ENXIO, lseek(file, -1, SEEK_DATA));
    ANSWERS(0, ftruncate(file, 64 << 20));
    ANSWERS(ENXIO, lseek(file, 4 * PAGE, SEEK_DATA));
    check("far data", pwrite(file, "x", 1, (60 << 20) + 9) == 1 && lseek(file, 4 * PAGE, SEEK_DATA) == 60 << 20);
    check("a hole behind it", lseek(file, 60 << 20, SEEK_HOLE) == (60 << 20) + PAGE);
    /* A hole in memory that is shared: it is there at once, and stores to it are in the file. */
    char *memory = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check("a mapping", memory[3 * PAGE] == 7);
    ANSWERS(0, fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * PAGE, 20 * PAGE));
    check("a hole in it", memory[3 * PAGE] == 0 && memory[3 * PAGE - 1] == 7);
    memory[3 * PAGE] = 9;
    check("a byte in the hole", filled(file, 3) == 1);
    munmap(memory, 4 * PAGE);
    ANSWERS(EINVAL, ftruncate(file, -1));
    ANSWERS(EINVAL, ftruncate(reader, 0));
    ANSWERS(EINVAL, ftruncate(directory, 0));
    ANSWERS(EINVAL, truncate("contents", -1));
    ANSWERS(EISDIR, truncate(".", 0));
    ANSWERS(ENOENT, truncate("nothing", 0));
    ANSWERS(0, truncate("contents", 5));
    check("cut off", size(file) == 5);
    ANSWERS(0, ftruncate(file, 2 * PAGE));
    check("zeroes behind it", filled(file, 0) == 5 && filled(file, 1) == 0);

    /* Positions. */
    struct iovec parts[2] = {{page, 10}, {page, 20}}, others[2] = {{back, 15}, {back + 100, 100}};
    check("pwritev", lseek(file, 0, SEEK_SET) == 0 && pwritev(file, parts, 2, PAGE) == 30 && lseek(file, 0, SEEK_CUR) == 0);
    check("preadv", preadv(file, others, 2, PAGE + 5) == 115 && back[14] == 7 && back[109] == 7 && back[110] == 0);
    check("preadv at the end", preadv(file, others, 2, 2 * PAGE) == 0 && preadv(file, others, 2, 2 * PAGE - 20) == 20);
    check("preadv2", preadv2(file, others, 1, -1, 0) == 15 && lseek(file, 0, SEEK_CUR) == 15);
    check("pwritev2", pwritev2(file, parts, 1, 40, RWF_DSYNC) == 10 && lseek(file, 0, SEEK_CUR) == 15);
    ANSWERS(EOPNOTSUPP, preadv2(file, others, 1, 0, 0x4000));
    ANSWERS(EINVAL, preadv(file, others, 1, -5));
    ANSWERS(EINVAL, pread(file, back, 1, -1));
    ANSWERS(EINVAL, preadv(file, others, -1, 0));
    ANSWERS(ESPIPE, pread(ends[0], back, 1, 0));
    ANSWERS(ESPIPE, pwritev(ends[1], parts, 1, 0));
    ANSWERS(EBADF, pwrite(reader, page, 1, 0));
    ANSWERS(EFAULT, preadv(file, (void *)8, 1, 0));

    /* Copies. */
    int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600), end = open("copy", O_WRONLY | O_APPEND);
    loff_t from = 3, to = 1;
    lseek(file, 0, SEEK_SET);
    check("copy_file_range", copy_file_range(file, &from, copy, &to, 100, 0) == 100 && from == 103 && to == 101);
    check("the copy", pread(copy, back, 200, 0) == 101 && back[0] == 0 && back[1] == 7 && back[2] == 7 && back[3] == 0 && back[38] == 7);
    check("positions stay", lseek(file, 0, SEEK_CUR) == 0 && lseek(copy, 0, SEEK_CUR) == 0);
    check("to the end", copy_file_range(file, 0, copy, 0, 1 << 20, 0) == 2 * PAGE && lseek(copy, 0, SEEK_CUR) == 2 * PAGE);
    check("behind the end", copy_file_range(file, 0, copy, 0, 10, 0) == 0);
    from = 0, to = PAGE;
    check("in one file", copy_file_range(file, &from, file, &to, PAGE, 0) == PAGE && filled(file, 1) == 15);
    from = 0, to = 10;
    ANSWERS(EINVAL, copy_file_range(file, &from, file, &to, 11, 0));
    ANSWERS(EINVAL, copy_file_range(file, 0, copy, 0, 1, 1));
    ANSWERS(EBADF, copy_file_range(file, 0, reader, 0, 1, 0));
    ANSWERS(EBADF, copy_file_range(file, 0, end, 0, 1, 0));
    ANSWERS(EBADF, copy_file_range(file, 0, 99, 0, 1, 0));
    ANSWERS(EISDIR, copy_file_range(directory, 0, copy, 0, 1, 0));
    ANSWERS(EINVAL, copy_file_range(ends[0], 0, copy, 0, 1, 0));
    off_t offset = 2;
    lseek(copy, 0, SEEK_SET);
    check("sendfile", sendfile(copy, file, &offset, 100) == 100 && offset == 102 && lseek(copy, 0, SEEK_CUR) == 100);
    lseek(file, 5, SEEK_SET);
    check("sendfile from the position", sendfile(copy, file, 0, 10) == 10 && lseek(file, 0, SEEK_CUR) == 15);
    ANSWERS(EBADF, sendfile(reader, file, 0, 1));
    ANSWERS(EINVAL, sendfile(end, file, 0, 1));
    for (int *each = (int[]){file, reader, directory, ends[0], ends[1], copy, end, -1}; *each >= 0; each++)
        close(*each);
    unlink("copy");
    unlink("contents");
}

static void attributes(void) {
    int file = open("attributes", O_RDWR | O_CREAT | O_TRUNC, 0640), ends[2];
    check("a link", symlink("attributes", "link") == 0 && pipe(ends) == 0);
    struct timespec times[2] = {{1000, 1}, {86400 * 365 * 50ll, 123456789}}, kept[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    struct stat facts;
    struct statx wide;
    ANSWERS(0, write(file, "four", 4));
    ANSWERS(0, utimensat(AT_FDCWD, "attributes", times, 0));
    check("its time", stat("attributes", &facts) == 0 && facts.st_mtim.tv_sec == times[1].tv_sec && facts.st_mtim.tv_nsec == 123456789);
    ANSWERS(0, futimens(file, kept));
    check("it stays", fstat(file, &facts) == 0 && facts.st_mtim.tv_sec == times[1].tv_sec);
    ANSWERS(0, statx(AT_FDCWD, "link", 0, STATX_BASIC_STATS, &wide));
    check("statx", wide.stx_mode == (S_IFREG | 0640) && wide.stx_size == 4 && wide.stx_nlink == 1 && wide.stx_ino == facts.st_ino &&
        wide.stx_mtime.tv_sec == times[1].tv_sec && wide.stx_mtime.tv_nsec == 123456789 && (wide.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    ANSWERS(0, statx(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &wide));
    check("statx of a link", wide.stx_mode == (S_IFLNK | 0777) && wide.stx_size == 10);
    ANSWERS(0, statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &wide));
    check("statx of a descriptor", wide.stx_size == 4);
    ANSWERS(0, statx(AT_FDCWD, "/dev/null", 0, STATX_BASIC_STATS, &wide));
    check("statx of a device", S_ISCHR(wide.stx_mode) && wide.stx_rdev_major == 1 && wide.stx_rdev_minor == 3);
    ANSWERS(0, statx(ends[0], "", AT_EMPTY_PATH, STATX_BASIC_STATS, &wide));
    check("statx of a pipe", S_ISFIFO(wide.stx_mode));
    ANSWERS(EINVAL, statx(AT_FDCWD, "link", AT_STATX_SYNC_TYPE, STATX_SIZE, &wide));
    ANSWERS(EINVAL, statx(AT_FDCWD, "link", 1, STATX_SIZE, &wide));
    ANSWERS(EINVAL, statx(AT_FDCWD, "link", 0, 0x80000000, &wide));
    ANSWERS(ENOENT, statx(AT_FDCWD, "nothing", 0, STATX_SIZE, &wide));
    ANSWERS(EBADF, statx(99, "nothing", 0, STATX_SIZE, &wide));
    ANSWERS(EFAULT, statx(AT_FDCWD, "link", 0, STATX_SIZE, (void *)8));
    times[0].tv_nsec = 1000000000;
    ANSWERS(EINVAL, utimensat(AT_FDCWD, "attributes", times, 0));
    ANSWERS(EINVAL, utimensat(AT_FDCWD, "attributes", 0, 1));
    ANSWERS(EFAULT, syscall(SYS_utimensat, AT_FDCWD, 0, 0, 0));
    ANSWERS(EBADF, futimens(99, 0));
    ANSWERS(ENOENT, utimensat(AT_FDCWD, "nothing", 0, 0));
    ANSWERS(0, futimens(file, 0));
    check("now", fstat(file, &facts) == 0 && facts.st_mtim.tv_sec != times[1].tv_sec);

    ANSWERS(0, access("attributes", R_OK | W_OK));
    ANSWERS(EACCES, access("attributes", X_OK));
    ANSWERS(EINVAL, access("attributes", 8));
    ANSWERS(0, access(".", X_OK));
    ANSWERS(0, fchmod(file, 0755));
    ANSWERS(0, access("link", X_OK));
    ANSWERS(0, syscall(SYS_faccessat2, file, "", X_OK, AT_EMPTY_PATH | AT_EACCESS));
    ANSWERS(EINVAL, syscall(SYS_faccessat2, file, "", X_OK, 2));
    ANSWERS(ENOENT, syscall(SYS_faccessat2, file, "", X_OK, 0));
    ANSWERS(ENOTDIR, faccessat(file, "x", F_OK, 0));
    ANSWERS(EBADF, faccessat(99, "x", F_OK, 0));
    ANSWERS(0, chown("attributes", 0, 0));
    ANSWERS(0, lchown("link", 0, 0));
    ANSWERS(0, fchown(file, -1, -1));
    ANSWERS(0, fchownat(file, "", 0, 0, AT_EMPTY_PATH));
    ANSWERS(EINVAL, fchownat(AT_FDCWD, "attributes", 0, 0, 1));
    ANSWERS(EBADF, fchown(99, 0, 0));
    ANSWERS(EBADF, fchmod(99, 0));
    ANSWERS(ENOENT, chmod("nothing", 0));
    close(ends[0]);
    close(ends[1]);
    close(file);
    unlink("link");
    unlink("attributes");
}

/* Owners, which the superuser may change, and of which nobody is asked here. */
static void owners(void) {
    struct stat facts;
    struct statx wide;
    int file = open("owned", O_RDWR | O_CREAT | O_TRUNC, 0755), ends[2];
    check("a link and a pipe", symlink("owned", "link") == 0 && pipe(ends) == 0);
    if (geteuid() == 0) {
        ANSWERS(0, chown("link", 7, 70000));
        check("its owner", stat("owned", &facts) == 0 && facts.st_uid == 7 && facts.st_gid == 70000);
        check("the link's", lstat("link", &facts) == 0 && facts.st_uid == 0 && facts.st_gid == 0);
        ANSWERS(0, lchown("link", 1, 2));
        check("the link's own", lstat("link", &facts) == 0 && facts.st_uid == 1 && facts.st_gid == 2);
        ANSWERS(0, fchown(file, -1, 9));
        ANSWERS(0, statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &wide));
        check("one of both", wide.stx_uid == 7 && wide.stx_gid == 9);
        ANSWERS(0, chmod("owned", 06755));
        ANSWERS(0, fchownat(AT_FDCWD, "owned", 1u << 31, -1, 0));
        check("no more a program of its owner's", stat("owned", &facts) == 0 && facts.st_mode == (S_IFREG | 0755) && facts.st_uid == 1u << 31);
        ANSWERS(0, chmod("owned", 06705));
        ANSWERS(0, chown("owned", -1, -1));
        check("a group that may not execute it", stat("owned", &facts) == 0 && facts.st_mode == (S_IFREG | 02705));
        ANSWERS(0, fchown(ends[0], 0, 0));
    }
    close(file);
    close(ends[0]);
    close(ends[1]);
    unlink("link");
    unlink("owned");
}

/* Files by `mknod`, advice, facts of the file system, and the length that a file may have. */
static void nodes(void) {
    struct stat facts;
    struct statfs system, same;
    int ends[2], file;
    umask(022);
    ANSWERS(0, mknod("node", S_IFREG | 0666, 0));
    check("a file", stat("node", &facts) == 0 && facts.st_mode == (S_IFREG | 0644) && facts.st_size == 0);
    ANSWERS(EEXIST, mknod("node", S_IFREG | 0666, 0));
    ANSWERS(EEXIST, mknod("node", S_IFCHR | 0666, 0x103));
    ANSWERS(ENOENT, mknod("other/", S_IFREG | 0666, 0));
    ANSWERS(ENOENT, mknod("nowhere/node", 0, 0));
    ANSWERS(EPERM, mknod("other", S_IFDIR | 0777, 0));
    ANSWERS(EINVAL, mknod("other", 0030000, 0));
    ANSWERS(0, mknodat(AT_FDCWD, "other", 0600, 0));
    ANSWERS(0, unlink("other"));
    file = open("node", O_RDWR);
    check("a pipe", pipe(ends) == 0);

    for (int advice = 0; advice < 6; advice++)
        check("advice", posix_fadvise(file, 0, 0, advice) == 0);
    check("no advice", posix_fadvise(file, 0, 0, 6) == EINVAL && posix_fadvise(file, 0, -1, 0) == EINVAL);
    check("advice on no file", posix_fadvise(ends[0], 0, 0, 0) == ESPIPE && posix_fadvise(99, 0, 0, 0) == EBADF);

    ANSWERS(0, statfs("node", &system));
    ANSWERS(0, fstatfs(file, &same));
    check("one file system", system.f_type == same.f_type && system.f_bsize == 4096 && system.f_blocks == same.f_blocks && system.f_blocks > 0);
    ANSWERS(ENOENT, statfs("nothing", &system));
    ANSWERS(EBADF, fstatfs(99, &system));
    ANSWERS(EFAULT, fstatfs(file, (void *)8));

    int directory = open(".", O_RDONLY);
    ANSWERS(0, fcntl(directory, F_NOTIFY, DN_MULTISHOT));
    close(directory);

    struct rlimit before, limit;
    check("no limit", getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = (struct rlimit){100, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ANSWERS(0, setrlimit(RLIMIT_FSIZE, &limit));
    char bytes[120] = {0};
    check("bytes up to the limit", pwrite(file, bytes, sizeof bytes, 0) == 100 && pwrite(file, bytes, 1, 99) == 1);
    ANSWERS(EFBIG, pwrite(file, bytes, 1, 100));
    ANSWERS(0, pwrite(file, bytes, 0, 100));
    ANSWERS(EFBIG, ftruncate(file, 101));
    ANSWERS(0, ftruncate(file, 50));
    ANSWERS(EFBIG, fallocate(file, 0, 0, 101));
    ANSWERS(EFBIG, fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 101));
    ANSWERS(0, fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 101));
    loff_t from = 0, to = 90;
    check("a copy up to the limit", copy_file_range(file, &from, file, &to, 30, 0) == 10 && to == 100);
    ANSWERS(EFBIG, copy_file_range(file, &from, file, &to, 1, 0));
    check("a pipe has none", write(ends[1], bytes, 120) == 120);
    signal(SIGXFSZ, SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        pwrite(file, bytes, 1, 100);
        _exit(0);
    }
    int status;
    check("its signal", waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    ANSWERS(0, setrlimit(RLIMIT_FSIZE, &before));
    close(file);
    close(ends[0]);
    close(ends[1]);
    unlink("node");
}

/* The status of a child that begins a program by a descriptor, or the error of that. */
static int runs(int directory, const char *path, int flags) {
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {"files", "ends", 0};
        syscall(SYS_execveat, directory, path, arguments, arguments + 2, flags);
        _exit(errno);
    }
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum { ENDED = 99 };

/* Programs that are begun by a descriptor. */
static void descriptors(void) {
    int own = open("/proc/self/exe", O_RDONLY), here = open(".", O_RDONLY), ends[2];
    char link[4096];
    ssize_t n = readlink("/proc/self/exe", link, sizeof link - 1);
    if (own < 0)
        own = open("/init", O_RDONLY), n = sprintf(link, "/init");
    check("this program", own >= 0 && n > 0 && pipe(ends) == 0);
    link[n] = 0;
    check("a link", symlink(link, "link") == 0);
    check("by the descriptor", runs(own, "", AT_EMPTY_PATH) == ENDED);
    check("by a path", runs(99, link, 0) == ENDED && runs(here, "link", 0) == ENDED && runs(AT_FDCWD, "link", 0) == ENDED);
    check("without the flag", runs(own, "", 0) == ENOENT);
    check("other flags", runs(AT_FDCWD, link, 1) == EINVAL);
    check("a link is not followed", runs(here, "link", AT_SYMLINK_NOFOLLOW) == ELOOP);
    check("no descriptor", runs(99, "", AT_EMPTY_PATH) == EBADF);
    check("a directory", runs(here, "", AT_EMPTY_PATH) == EACCES);
    check("a pipe", runs(ends[0], "", AT_EMPTY_PATH) == EACCES);
    /* A script is read by the name of the descriptor, which has to stay open. */
    int script = open("script", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    check("a script", script >= 0 && dprintf(script, "#!%s ends\n", link) > 0);
    close(script);
    script = open("script", O_RDONLY);
    check("it is read", runs(script, "", AT_EMPTY_PATH) == ENDED && runs(here, "script", 0) == ENDED);
    fcntl(script, F_SETFD, FD_CLOEXEC);
    check("it would be closed", runs(script, "", AT_EMPTY_PATH) == ENOENT);
    close(script);
    close(own);
    close(here);
    close(ends[0]);
    close(ends[1]);
    unlink("script");
    unlink("link");
}

/* Names that lead to one file. */
static void names(void) {
    struct stat one, other;
    int file = open("one", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check("a file and a directory", file >= 0 && write(file, "text", 4) == 4 && mkdir("room", 0700) == 0);
    ANSWERS(0, link("one", "room/other"));
    ANSWERS(EEXIST, link("one", "room/other"));
    ANSWERS(EEXIST, link("room", "one"));
    ANSWERS(EPERM, link("room", "chamber"));
    ANSWERS(ENOENT, link("nothing", "two"));
    ANSWERS(ENOENT, link("one", "nowhere/two"));
    ANSWERS(ENOENT, link("one", "two/"));
    ANSWERS(ENOTDIR, link("one", "one/two"));
    ANSWERS(EINVAL, linkat(AT_FDCWD, "one", AT_FDCWD, "two", 1));
    check("they are one", stat("one", &one) == 0 && stat("room/other", &other) == 0 && one.st_ino == other.st_ino && one.st_nlink == 2 && other.st_size == 4);
    ANSWERS(0, rename("one", "room/other"));
    check("both are still there", access("one", F_OK) == 0 && access("room/other", F_OK) == 0);
    ANSWERS(0, rename("room/other", "second"));
    ANSWERS(0, linkat(file, "", AT_FDCWD, "third", AT_EMPTY_PATH));
    check("three names", fstat(file, &one) == 0 && one.st_nlink == 3);
    ANSWERS(0, unlink("one"));
    char text[5] = "";
    int again = open("second", O_RDWR);
    check("its first name has gone", again >= 0 && read(again, text, 4) == 4 && !strcmp(text, "text"));
    ANSWERS(0, link("second", "one"));
    ANSWERS(0, rename("third", "one"));
    ANSWERS(0, unlink("third"));
    check("two names", fstat(file, &one) == 0 && one.st_nlink == 2);
    DIR *here = opendir(".");
    int seen = 0;
    for (struct dirent *each; (each = readdir(here));)
        if (!strcmp(each->d_name, "one") || !strcmp(each->d_name, "second"))
            seen += each->d_ino == one.st_ino && each->d_type == DT_REG;
    closedir(here);
    check("a directory tells them", seen == 2);
    ANSWERS(0, symlink("second", "way"));
    ANSWERS(0, link("way", "way2"));
    check("a link has names, too", lstat("way2", &other) == 0 && S_ISLNK(other.st_mode) && other.st_nlink == 2);
    ANSWERS(0, linkat(AT_FDCWD, "way", AT_FDCWD, "way3", AT_SYMLINK_FOLLOW));
    check("and its file, if it is followed", lstat("way3", &other) == 0 && other.st_ino == one.st_ino);
    const char *all[] = {"one", "second", "way", "way2", "way3"};
    for (int i = 0; i < 5; i++)
        ANSWERS(0, unlink(all[i]));
    check("no name", fstat(file, &one) == 0 && one.st_nlink == 0);
    ANSWERS(ENOENT, linkat(file, "", AT_FDCWD, "one", AT_EMPTY_PATH));
    ANSWERS(0, rmdir("room"));
    close(again);
    close(file);
}

/* The memory of a file, in units of 512 bytes. */
static long blocks(int file) {
    struct stat facts;
    return fstat(file, &facts) == 0 ? (long)facts.st_blocks : -1;
}

static void memory_of_files(void) {
    int file = open("/blocks", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct stat facts;
    check("an empty file", blocks(file) == 0);
    check("a hole", ftruncate(file, 1 << 20) == 0 && blocks(file) == 0);
    check("a byte", pwrite(file, "x", 1, 5000) == 1 && blocks(file) == 8);
    check("another page", pwrite(file, "xy", 2, 3 * 4096 - 1) == 2 && blocks(file) == 24);
    check("bytes that are there", pwrite(file, "xy", 2, 4096) == 2 && blocks(file) == 24);
    char byte;
    check("a hole that is read", pread(file, &byte, 1, 100000) == 1 && blocks(file) == 24);
    ANSWERS(0, fallocate(file, 0, 0, 16384));
    check("memory that is allocated", blocks(file) == 32);
    ANSWERS(0, fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
    check("a hole that is made", blocks(file) == 16);
    char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memory[1 << 19] = 1;
    check("a store", blocks(file) == 24);
    munmap(memory, 1 << 20);
    check("a file that is cut", ftruncate(file, 4097) == 0 && blocks(file) == 8);
    check("a file that is empty again", ftruncate(file, 0) == 0 && blocks(file) == 0);
    close(file);
    unlink("/blocks");
    check("a directory", stat(".", &facts) == 0 && facts.st_blocks == 0);
    check("a link", symlink("somewhere", "/link-blocks") == 0 && lstat("/link-blocks", &facts) == 0 &&
                        facts.st_blocks == 0 && facts.st_size == 9);
    unlink("/link-blocks");
}

/* No file has extended attributes of a kind that no file system knows. */
static void extended(void) {
    char byte, name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    int file = open("extended", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check("a link", symlink("nothing", "extended-link") == 0);
    ANSWERS(EOPNOTSUPP, getxattr("extended", "none.x", &byte, 1));
    ANSWERS(EOPNOTSUPP, lgetxattr("extended-link", "none.x", &byte, 1));
    ANSWERS(EOPNOTSUPP, fgetxattr(file, "none.x", 0, 0));
    ANSWERS(EOPNOTSUPP, setxattr("extended", "none.x", "y", 1, 0));
    ANSWERS(EOPNOTSUPP, fsetxattr(file, "none.x", "y", 1, 0));
    ANSWERS(EOPNOTSUPP, removexattr("extended", "none.x"));
    ANSWERS(EOPNOTSUPP, fremovexattr(file, "none.x"));
    ANSWERS(ENOENT, getxattr("nothing", "none.x", &byte, 1));
    ANSWERS(ENOENT, getxattr("extended-link", "none.x", &byte, 1));
    ANSWERS(ENOENT, listxattr("extended-link", &byte, 1));
    ANSWERS(EBADF, fgetxattr(99, "none.x", &byte, 1));
    ANSWERS(EBADF, flistxattr(99, &byte, 1));
    ANSWERS(ERANGE, getxattr("extended", "", &byte, 1));
    ANSWERS(ERANGE, getxattr("extended", name, &byte, 1));
    ANSWERS(EFAULT, getxattr("extended", (char *)8, &byte, 1));
    check("an empty list", listxattr("extended", &byte, 1) == 0 && llistxattr("extended-link", &byte, 1) == 0);
    check("an empty list of a descriptor", flistxattr(file, &byte, 1) == 0);
    close(file);
    unlink("extended");
    unlink("extended-link");
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "ends"))
        return ENDED;
    setvbuf(stdout, 0, _IONBF, 0);
    if (getpid() == 1) {
        mkdir("/dev", 0755);
        mkdir("/files", 0755);
    }
    check("a directory", chdir(getpid() == 1 ? "/files" : "/dev/shm") == 0);
    records();
    contents();
    attributes();
    owners();
    nodes();
    descriptors();
    extended();
    names();
    memory_of_files();
    printf("FILES %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
