/* Process 1, or any process of Linux: devices, and what /proc says of a process. Every answer here
 * is Linux's: the program ends with status 0 there, too. */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

enum { PAGE = 4096 };

static char text[1 << 20];

/* Reads a file in steps of some bytes; returns its length. */
static int whole(const char *path, int step) {
    int file = open(path, O_RDONLY), done = 0;
    ssize_t n;
    while (file >= 0 && (n = read(file, text + done, step)) > 0)
        done += n;
    close(file);
    text[done] = 0;
    return file < 0 ? -1 : done;
}

/* The number behind a name in the text that was read, -1 without it. */
static long value(const char *name) {
    const char *found = strstr(text, name);
    return found ? strtol(found + strlen(name), 0, 10) : -1;
}

static void devices(void) {
    static char bytes[3 * PAGE], others[3 * PAGE];
    struct stat facts;
    struct { const char *name; unsigned minor; } all[] = {{"/dev/null", 3}, {"/dev/zero", 5}, {"/dev/full", 7}, {"/dev/random", 8}, {"/dev/urandom", 9}};
    for (unsigned i = 0; i < 5; i++)
        check(all[i].name, stat(all[i].name, &facts) == 0 && S_ISCHR(facts.st_mode) && facts.st_rdev == makedev(1, all[i].minor));
    int file = open("/dev/full", O_RDWR);
    memset(bytes, 1, sizeof bytes);
    check("/dev/full is read", read(file, bytes, sizeof bytes) == sizeof bytes && !bytes[0] && !bytes[sizeof bytes - 1]);
    ANSWERS(ENOSPC, write(file, bytes, 1));
    ANSWERS(ENOSPC, write(file, bytes, 0));
    close(file);
    file = open("/dev/urandom", O_RDWR);
    check("/dev/urandom is read", read(file, bytes, sizeof bytes) == sizeof bytes);
    int zeroes = 0, equal = 0;
    for (unsigned i = 0; i < sizeof bytes; i++)
        zeroes += !bytes[i], equal += bytes[i] == bytes[i % 256];
    check("it is random", zeroes < 200 && equal < 600);
    check("it takes bytes", write(file, bytes, 10) == 10);
    int full = open("/dev/full", O_RDWR);
    check("a device has no position", lseek(full, 77, SEEK_END) == 0 && lseek(full, -5, SEEK_SET) == 0);
    close(full);
    ANSWERS(EFAULT, read(file, (void *)8, 10));
    close(file);
}

static void descriptors(void) {
    char link[100], name[100];
    int ends[2], file = open("/tmp/own", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct stat facts, others;
    check("a file", write(file, "text", 4) == 4 && pipe(ends) == 0);
    ssize_t n = readlink("/dev/fd", link, sizeof link);
    check("/dev/fd", n == 13 && !memcmp(link, "/proc/self/fd", 13));
    snprintf(name, sizeof name, "/dev/fd/%d", file);
    n = readlink(name, link, sizeof link);
    check("the file's name", n == 8 && !memcmp(link, "/tmp/own", 8));
    check("it is a link", lstat(name, &facts) == 0 && S_ISLNK(facts.st_mode));
    check("to the file", stat(name, &facts) == 0 && fstat(file, &others) == 0 && facts.st_ino == others.st_ino);
    int again = open(name, O_RDONLY);
    check("a position of its own", read(again, link, 10) == 4 && !memcmp(link, "text", 4));
    ANSWERS(EBADF, write(again, "x", 1));
    close(again);
    snprintf(name, sizeof name, "/proc/%d/fd/%d", getpid(), file);
    again = open(name, O_RDWR | O_TRUNC);
    check("cut off by the other name", fstat(file, &facts) == 0 && facts.st_size == 0);
    close(again);
    unlink("/tmp/own");
    n = readlink(name, link, sizeof link);
    check("without a name", n > 10 && !memcmp(link + n - 10, " (deleted)", 10));
    again = open(name, O_RDONLY);
    check("it is opened all the same", again >= 0);
    close(again);
    ANSWERS(ENOTDIR, (snprintf(link, sizeof link, "%s/x", name), open(link, O_RDONLY)));
    close(file);
    ANSWERS(ENOENT, open(name, O_RDONLY));
    ANSWERS(ENOENT, readlink(name, link, sizeof link));
    ANSWERS(ENOENT, open("/dev/fd/99", O_RDONLY));
    ANSWERS(ENOENT, open("/dev/fd/x", O_RDONLY));
    ANSWERS(ENOENT, open("/dev/fd/00", O_RDONLY));

    /* A pipe, opened by the name of either end. */
    snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
    n = readlink(name, link, sizeof link);
    check("the pipe's name", n > 6 && !memcmp(link, "pipe:[", 6));
    check("it is a pipe", stat(name, &facts) == 0 && S_ISFIFO(facts.st_mode));
    int writer = open(name, O_WRONLY);
    check("another end", write(writer, "abc", 3) == 3 && read(ends[0], link, 10) == 3);
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ANSWERS(EAGAIN, read(ends[0], link, 1));
    ANSWERS(0, access(name, R_OK));
    close(writer);
    check("the end of file", read(ends[0], link, 1) == 0);
    close(ends[0]);

    /* The names of all of them: those of a directory's listing. */
    DIR *directory = opendir("/dev/fd");
    int count = 0, right = 1;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_name[0] != '.') {
            count++;
            right &= fcntl(atoi(entry->d_name), F_GETFD) >= 0 && entry->d_type == DT_LNK;
        }
    int open_ones = 0;
    for (int i = 0; i < 1024; i++)
        open_ones += fcntl(i, F_GETFD) >= 0;
    check("a listing", directory && right && count == open_ones);
    closedir(directory);
    check("a child's", ({
        int mine = open("/dev/null", O_RDONLY), status;
        pid_t child = fork();
        if (child == 0) {
            close(mine);
            snprintf(name, sizeof name, "/proc/%d/fd/%d", getppid(), mine);
            int theirs = access(name, F_OK);
            snprintf(name, sizeof name, "/proc/self/fd/%d", mine);
            _exit(theirs != 0 || access(name, F_OK) == 0);
        }
        waitpid(child, &status, 0);
        close(mine);
        status == 0;
    }));
}

static void processes(const char *program) {
    char link[4100], name[100];
    int number = getpid();
    ssize_t n = readlink("/proc/self", link, sizeof link);
    check("/proc/self", n > 0 && (link[n] = 0, atoi(link) == number));
    n = readlink("/proc/self/exe", link, sizeof link);
    check("exe", n > 0 && (link[n] = 0, strrchr(link, '/') && !strcmp(strrchr(link, '/') + 1, program)));
    check("cwd", chdir("/tmp") == 0 && readlink("/proc/self/cwd", link, sizeof link) == 4 && !memcmp(link, "/tmp", 4));
    check("root", readlink("/proc/self/root", link, sizeof link) == 1 && link[0] == '/');
    check("through cwd", access("/proc/self/cwd/../tmp", F_OK) == 0 && access("/proc/self/root/tmp", F_OK) == 0);
    ANSWERS(ENOENT, open("/proc/99999/stat", O_RDONLY));
    ANSWERS(ENOENT, open("/proc/self/nothing", O_RDONLY));
    ANSWERS(ELOOP, open("/proc/self/exe", O_RDONLY | O_NOFOLLOW));
    check("no directory is made", mkdir("/proc/self/x", 0700) == -1 && mkdir("/proc/x", 0700) == -1);
    check("no file is removed", unlink("/proc/self/maps") == -1 && access("/proc/self/maps", R_OK) == 0);
    snprintf(name, sizeof name, "/proc/%d", number);
    int listed = 0, own = open(name, O_RDONLY | O_DIRECTORY);
    DIR *directory = opendir("/proc");
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        listed += atoi(entry->d_name) == number && entry->d_type == DT_DIR;
    closedir(directory);
    check("it is listed", listed == 1);
    int file = openat(own, "comm", O_RDONLY);
    n = read(file, link, sizeof link);
    check("comm", n > 1 && link[n - 1] == '\n' && !strncmp(link, program, n - 1 < 15 ? n - 1 : 15));
    close(file);
    close(own);

    /* Arguments, with the zeroes behind them. */
    int length = whole("/proc/self/cmdline", 7);
    check("cmdline", length > 0 && text[length - 1] == 0 && strstr(text, program));

    /* A child that waits: its numbers are those of the parent's calls; its end. */
    int hold[2];
    check("a pipe", pipe(hold) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(hold[1]);
        (void)!read(hold[0], link, 1);
        _exit(3);
    }
    usleep(50000);
    snprintf(name, sizeof name, "/proc/%d/stat", child);
    int open_file = open(name, O_RDONLY), pid, parent, group;
    char state;
    whole(name, 4096);
    check("stat", sscanf(text, "%d (%*[^)]) %c %d %d", &pid, &state, &parent, &group) == 4 && pid == child && state == 'S' &&
        parent == number && group == getpgrp());
    int fields = 1;
    for (char *at = strrchr(text, ')'); at && *at; at++)
        fields += *at == ' ';
    check("stat has 52 fields", fields == 51 && text[strlen(text) - 1] == '\n');
    snprintf(name, sizeof name, "/proc/%d/status", child);
    whole(name, 100);
    check("status", value("Pid:\t") == child && value("PPid:\t") == number && value("Threads:\t") == 1 && value("Tgid:\t") == child &&
        strstr(text, "State:\tS (sleeping)"));
    close(hold[1]);
    usleep(50000);
    whole(name, 4096);
    check("a zombie", strstr(text, "State:\tZ (zombie)") && !strstr(text, "VmSize"));
    waitpid(child, 0, 0);
    close(hold[0]);
    ANSWERS(ESRCH, read(open_file, link, 10));
    close(open_file);
    ANSWERS(ENOENT, open(name, O_RDONLY));

    /* Signals. */
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, 0);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGHUP, (void (*)(int))processes);
    kill(number, SIGUSR1);
    whole("/proc/self/status", 4096);
    check("signals", strstr(text, "SigBlk:\t0000000000000200\n") && strstr(text, "ShdPnd:\t0000000000000200\n") &&
        strstr(text, "SigIgn:\t0000000000000800\n") && strstr(text, "SigCgt:\t0000000000000001\n"));
}

/* Finds the line of /proc/self/maps that has an address; returns its end, or 0. */
static char *line_of(void *address, uintptr_t *start, uintptr_t *end) {
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long first, last;
        if (sscanf(line, "%lx-%lx", &first, &last) == 2 && first <= (uintptr_t)address && (uintptr_t)address < last) {
            *start = first, *end = last;
            return line;
        }
    }
    return 0;
}

static int says(void *address, size_t size, const char *rights, const char *name) {
    uintptr_t start, end;
    char found[5], given[100] = "";
    char *line = line_of(address, &start, &end);
    if (!line || sscanf(line, "%*x-%*x %4s %*x %*x:%*x %*d%*[ ]%99[^\n]", found, given) < 1)
        return 0;
    return (!size || end - start == size) && !strcmp(found, rights) && !strcmp(given, name);
}

static void memory(void) {
    int local = 0;
    int file = open("/tmp/mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check("a file", ftruncate(file, 8 * PAGE) == 0);
    char *hole = mmap(0, 40 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, 40 * PAGE);
#define AT(n) (hole + (n) * PAGE)
    mmap(AT(1), 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mmap(AT(6), 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 2 * PAGE);
    mmap(AT(12), 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
    mmap(AT(16), PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mmap(AT(20), 5 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    char *heap = malloc(1000);
    AT(1)[0] = AT(3)[0] = 1;
    (void)*(volatile char *)AT(2);
    AT(6)[0] = AT(7)[0] = AT(8)[0] = 1;
    int one = whole("/proc/self/maps", 1 << 20);
    static char copy[1 << 16];
    strcpy(copy, text);
    check("maps in small steps", whole("/proc/self/maps", 61) == one && !strcmp(copy, text));
    check("private memory", says(AT(1), 3 * PAGE, "rw-p", ""));
    check("a shared file", says(AT(6), 4 * PAGE, "rw-s", "/tmp/mapped"));
    char *line = line_of(AT(6), &(uintptr_t){0}, &(uintptr_t){0});
    unsigned long offset = 0, inode = 0;
    struct stat facts;
    check("its place", line && sscanf(line, "%*x-%*x %*s %lx %*x:%*x %lu", &offset, &inode) == 2 && offset == 2 * PAGE &&
        fstat(file, &facts) == 0 && inode == facts.st_ino);
    /* On a kernel of 64 bits programs of 32 bits have its column, too. */
    check("the column of its name", sizeof(long) == 4 || line && strstr(line, "/tmp/mapped") - line == 25 + 6 * sizeof(long));
    check("a private file", says(AT(12), 2 * PAGE, "r-xp", "/tmp/mapped"));
    check("shared memory", says(AT(16), PAGE, "r--s", "/dev/zero (deleted)"));
    check("no access", says(AT(20), 5 * PAGE, "---p", ""));
    check("the heap", says(heap, 0, "rw-p", "[heap]"));
    check("the stack", says(&local, 0, "rw-p", "[stack]"));
    check("the program", (line = line_of((void *)(uintptr_t)memory, &(uintptr_t){0}, &(uintptr_t){0})) && strchr(line, '/') < strchr(line, '\n'));

    /* Pages that are there: the zero page is none. */
    whole("/proc/self/smaps", 1 << 20);
    char *smaps = line_of(AT(1), &(uintptr_t){0}, &(uintptr_t){0});
    check("smaps of private memory", smaps && atol(strstr(smaps, "\nSize:") + 6) == 12 && atol(strstr(smaps, "\nRss:") + 5) == 8 &&
        atol(strstr(smaps, "\nAnonymous:") + 11) == 8 && strstr(smaps, "VmFlags: rd wr "));
    smaps = line_of(AT(6), &(uintptr_t){0}, &(uintptr_t){0});
    check("smaps of a file", smaps && atol(strstr(smaps, "\nSize:") + 6) == 16 && atol(strstr(smaps, "\nRss:") + 5) == 12 &&
        atol(strstr(smaps, "\nAnonymous:") + 11) == 0);
    /* A number for each page. */
    int map = open("/proc/self/pagemap", O_RDONLY);
    uint64_t numbers[3] = {0};
#define NUMBERS(at, count) (pread(map, numbers, (count) * 8, (uintptr_t)(at) / PAGE * 8) == (count) * 8)
    check("pages that are there", NUMBERS(AT(3), 2) && numbers[0] >> 63 == 1 && (numbers[0] >> 61 & 1) == 0 && numbers[1] == 0);
    check("pages of a file", NUMBERS(AT(6), 2) && numbers[0] >> 63 == 1 && (numbers[0] >> 61 & 1) == 1);
    check("no access", NUMBERS(AT(20), 2) && numbers[0] == 0 && numbers[1] == 0);
    ANSWERS(EINVAL, pread(map, numbers, 8, (uintptr_t)AT(3) / PAGE * 8 + 1));
    check("behind all pages", pread(map, numbers, 8, 1l << (sizeof(long) == 8 ? 50 : 30)) == 0);
    close(map);
    whole("/proc/self/status", 1 << 20);
    long size = value("VmSize:"), resident = value("VmRSS:"), own = value("RssAnon:"), tables = value("VmPTE:"), data = value("VmData:");
    enum { MANY = 64, FAR = 4 << 20 };
    char *wide = mmap(0, (size_t)MANY * FAR, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < MANY; i++)
        wide[(size_t)i * FAR] = 1;
    whole("/proc/self/status", 1 << 20);
    check("VmSize", value("VmSize:") == size + MANY * (FAR >> 10));
    check("VmData", value("VmData:") == data + MANY * (FAR >> 10));
    check("VmRSS", value("VmRSS:") - resident >= 4 * MANY && value("VmRSS:") - resident <= 4 * MANY + 64);
    check("RssAnon", value("RssAnon:") - own >= 4 * MANY && value("RssAnon:") - own <= 4 * MANY + 64);
    check("VmPTE counts a table for each", value("VmPTE:") - tables >= 4 * MANY && value("VmPTE:") - tables <= 4 * MANY + 16);
    long pages[7] = {0};
    whole("/proc/self/statm", 1 << 20);
    check("statm", sscanf(text, "%ld %ld %ld %ld %ld %ld %ld", pages, pages + 1, pages + 2, pages + 3, pages + 4, pages + 5, pages + 6) == 7 &&
        pages[0] * 4 == size + MANY * (FAR >> 10) && pages[1] * 4 - resident >= 4 * MANY && pages[2] < pages[1]);
    munmap(wide, (size_t)MANY * FAR);
    whole("/proc/self/status", 1 << 20);
    check("all of it goes", value("VmSize:") == size && value("VmPTE:") - tables <= 16);

    /* More areas than a read returns lines. */
    char *many = mmap(0, 4000 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4000; i += 2)
        mprotect(many + i * PAGE, PAGE, PROT_READ);
    int lines = 0;
    whole("/proc/self/maps", 1 << 20);
    for (char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    check("4,000 areas", lines >= 4000 && says(many + 2000 * PAGE, PAGE, "r--p", "") && says(many + 3999 * PAGE, 0, "---p", ""));
    munmap(many, 4000 * PAGE);
    munmap(hole, 40 * PAGE);
    close(file);
    unlink("/tmp/mapped");
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (getpid() == 1) {
        mkdir("/tmp", 0777);
        mkdir("/proc", 0555);
        mount("proc", "/proc", "proc", 0, 0);
        /* Process 1 has signals of its own. */
        int status;
        pid_t child = fork();
        if (child != 0)
            return waitpid(child, &status, 0) != child || status != 0;
    }
    devices();
    descriptors();
    processes(strrchr(arguments[0], '/') ? strrchr(arguments[0], '/') + 1 : arguments[0]);
    memory();
    printf("PROC %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
