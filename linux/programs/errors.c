/* Process 1: everything a program can do wrong. The kernel answers with errors and signals, and
 * goes on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"
#include "answers.h"

/* Every call with the same bad argument in each place: nothing is to come of it but an error. */
static void every_call(long bad) {
    for (int number = 0; number < 460; number++) {
        switch (number) {
#ifdef __x86_64__
        case SYS_exit: case SYS_exit_group: case SYS_rt_sigreturn: case SYS_fork: case SYS_vfork: case SYS_clone:
        case SYS_pause: case SYS_rt_sigsuspend: case SYS_reboot: case SYS_munmap: case SYS_brk: case SYS_close:
        case SYS_arch_prctl: case SYS_dup2: case SYS_select: case SYS_kill: case SYS_tkill: case SYS_tgkill:
        case SYS_wait4: case SYS_rt_sigprocmask: case SYS_mprotect: case SYS_madvise: case SYS_mremap:
        case SYS_mmap: case SYS_setpgid: case SYS_ftruncate: case SYS_fcntl: case SYS_umask: case SYS_poll: case SYS_ppoll:
            continue;
#elif defined __i386__
        case SYS_exit: case SYS_exit_group: case SYS_sigreturn: case SYS_rt_sigreturn: case SYS_fork: case SYS_vfork:
        case SYS_clone: case SYS_pause: case SYS_rt_sigsuspend: case SYS_reboot: case SYS_munmap: case SYS_brk:
        case SYS_close: case SYS_set_thread_area: case SYS_dup2: case SYS__newselect: case SYS_kill: case SYS_tkill:
        case SYS_tgkill: case SYS_waitpid: case SYS_wait4: case SYS_rt_sigprocmask: case SYS_mprotect:
        case SYS_madvise: case SYS_mremap: case SYS_mmap2: case SYS_setpgid: case SYS_ftruncate64: case SYS_fcntl:
        case SYS_fcntl64: case SYS_umask: case SYS_poll: case SYS_ppoll:
            continue;
#else
        case SYS_exit: case SYS_exit_group: case SYS_rt_sigreturn: case SYS_clone: case SYS_rt_sigsuspend: case SYS_reboot:
        case SYS_munmap: case SYS_brk: case SYS_close: case SYS_pselect6: case SYS_kill: case SYS_tkill: case SYS_tgkill:
        case SYS_wait4: case SYS_rt_sigprocmask: case SYS_mprotect: case SYS_madvise: case SYS_mremap: case SYS_mmap:
        case SYS_setpgid: case SYS_ftruncate: case SYS_fcntl: case SYS_umask: case SYS_ppoll:
            continue;
#endif
        }
        syscall(number, bad, bad, bad, bad, bad, bad);
    }
}

static int ends_with(int signal_number, void (*action)(void)) {
    pid_t child = fork();
    if (child == 0) {
        action();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == signal_number;
}

static void read_nothing(void) { (void)*(volatile int *)8; }
static void write_code(void) { *(volatile char *)(uintptr_t)&read_nothing = 1; }
static void run_data(void) { static volatile char data[16]; data[0] = 0; ((void (*)(void))(uintptr_t)data)(); }
static void beyond_addresses(void) { (void)*(volatile int *)(sizeof(long) == 8 ? -END_OF_ADDRESSES : END_OF_ADDRESSES); }
static void privileged(void) { __asm__ volatile(PRIVILEGED); }
static void no_instruction(void) { __asm__ volatile(NO_INSTRUCTION); }
#ifdef HAS_PORTS
static void port(void) { __asm__ volatile("outb %%al, $0x80" ::: "memory"); }
static void divide(void) { volatile int zero = 0; zero = 100 / zero; }
#endif
static int deep(int n) { volatile char room[4096]; room[0] = (char)n; return deep(n + 1) + room[0]; }
static void stack_overflow(void) { deep(0); }
static void bad_stack(void) { __asm__ volatile(BAD_STACK); }
static void beyond_file(void) {
    int file = open("/short", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *memory = mmap(0, 8192, PROT_READ, MAP_PRIVATE, file, 0);
    (void)*(volatile char *)memory;
}
static void jump_nowhere(void) { ((void (*)(void))END_OF_ADDRESSES)(); }

static volatile int handled;
static void handler(int number) { handled = number; }

/* A file of two pages, which is a program of one segment that ends with status 77. */
static char image[8192] __attribute__((aligned(16)));
static size_t image_size;
#define HEADER ((ElfW(Ehdr) *)image)
#define SEGMENTS ((ElfW(Phdr) *)(image + sizeof(ElfW(Ehdr))))
enum { WIDE = sizeof(long) == 8, GOOD = 77 };

static void good_program(void) {
    static const unsigned code[] = {EXITS_WITH(GOOD)};
    memset(image, 0, image_size = sizeof image);
    memcpy(image + 0x800, code, sizeof code);
    memcpy(HEADER->e_ident, ELFMAG, SELFMAG);
    HEADER->e_ident[EI_CLASS] = WIDE ? ELFCLASS64 : ELFCLASS32;
    HEADER->e_ident[EI_DATA] = ELFDATA2LSB;
    HEADER->e_ident[EI_VERSION] = EV_CURRENT;
    HEADER->e_type = ET_EXEC;
    HEADER->e_machine = MACHINE;
    HEADER->e_entry = 0x400800;
    HEADER->e_phoff = sizeof *HEADER;
    HEADER->e_phentsize = sizeof *SEGMENTS;
    HEADER->e_phnum = 1;
    for (int i = 0; i < 4; i++)
        SEGMENTS[i] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_flags = PF_R | PF_W | PF_X, .p_vaddr = 0x400000,
                                   .p_filesz = sizeof image, .p_memsz = sizeof image};
}

/* Makes a file of the image. */
static void save(const char *name, mode_t mode) {
    unlink(name);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, mode);
    check("write a program", write(file, image, image_size) == (ssize_t)image_size);
    close(file);
}

/* Runs the file as a program; returns how it ends: with a status, or with a signal if that is
 * below 0. An error of execve is a status, too. */
static int run(void) {
    save("/bad", 0755);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {"/bad", 0};
        execve("/bad", arguments, arguments);
        _exit(errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void attempt(const char *what, int ends) {
    int ended = run();
    if (ended != ends)
        printf("a program ended with %d, not %d\n", ended, ends);
    check(what, ended == ends);
}

#define ATTEMPT(what, ends, ...) (good_program(), __VA_ARGS__, attempt(what, ends))

/* A program that names an interpreter. */
static void interpreted_program(const char *name) {
    good_program();
    HEADER->e_phnum = 2;
    memcpy(image + 0xc00, name, strlen(name) + 1);
    SEGMENTS[1] = (ElfW(Phdr)){.p_type = PT_INTERP, .p_offset = 0xc00, .p_filesz = strlen(name) + 1};
}

/* An interpreter, in the file /loader: a movable program that ends with another status. */
enum { LOADED = 78 };
static void good_loader(void) {
    static const unsigned code[] = {EXITS_WITH(LOADED)};
    good_program();
    memcpy(image + 0x800, code, sizeof code);
    HEADER->e_type = ET_DYN;
    SEGMENTS[0].p_vaddr = 0;
    HEADER->e_entry = 0x800;
}

#define LOADER(what, ends, ...) \
    (good_loader(), __VA_ARGS__, save("/loader", 0755), interpreted_program("/loader"), attempt(what, ends))
#define NAMED(what, ends, name, ...) (interpreted_program(name), __VA_ARGS__, attempt(what, ends))

static void bad_interpreters(void) {
    const ElfW(Addr) kernel = END_OF_ADDRESSES, end = ~(ElfW(Addr))0;
    ElfW(Phdr) *first = SEGMENTS, *second = SEGMENTS + 1;
    LOADER("an interpreter", LOADED, (void)0);
    /* Its name. */
    NAMED("two interpreters", LOADED, "/loader", HEADER->e_phnum = 3, second[1] = *second, second[1].p_offset = end);
    NAMED("an interpreter that is missing", ENOENT, "/missing", (void)0);
    NAMED("a directory", EACCES, "/", (void)0);
    NAMED("a path through a file", ENOTDIR, "/loader/x", (void)0);
    NAMED("no name", ENOEXEC, "", (void)0);
    NAMED("a name without an end", ENOEXEC, "/loader", second->p_filesz--);
    NAMED("a name of no bytes", ENOEXEC, "/loader", second->p_filesz = 0);
    NAMED("a long name", ENOEXEC, "/loader", second->p_filesz = 8192);
    NAMED("a name beyond the file", EIO, "/loader", second->p_offset = sizeof image - 4);
    NAMED("a name beyond all files", EIO, "/loader", second->p_offset = end - 4);
    /* The file. */
    good_loader();
    save("/loader", 0644);
    NAMED("one that may not be executed", EACCES, "/loader", (void)0);
    LOADER("an empty file", EIO, image_size = 0);
    LOADER("half a header", EIO, image_size = 20);
    LOADER("no program", ELIBBAD, HEADER->e_ident[0] = 'x');
    LOADER("another machine's", ELIBBAD, HEADER->e_machine = WIDE ? EM_386 : EM_X86_64);
    LOADER("an object file", ELIBBAD, HEADER->e_type = ET_REL);
    LOADER("headers beyond the file", ELIBBAD, HEADER->e_phoff = sizeof image);
    LOADER("headers beyond all files", ELIBBAD, HEADER->e_phoff = end);
    LOADER("no segment that is loaded", ELIBBAD, first->p_type = PT_NOTE);
    LOADER("memory that wraps", WIDE ? ELIBBAD : ENOMEM, first->p_memsz = end - 1);
    LOADER("more memory than there are addresses", ENOMEM, first->p_memsz = kernel);
    LOADER("addresses that begin above all others", ELIBBAD, first->p_vaddr = end & ~(ElfW(Addr))0xffff);
    LOADER("an entry beyond all addresses", ELIBBAD, HEADER->e_entry = end);
    LOADER("a bad segment after a good one", ELIBBAD, HEADER->e_phnum = 2, second->p_memsz = 16);
    /* Odd, and still interpreters. */
    LOADER("bytes beyond the file", LOADED, first->p_filesz = first->p_memsz = 1 << 20);
    LOADER("one that names another", LOADED, HEADER->e_phnum = 2, second->p_type = PT_INTERP, second->p_filesz = 4);
    LOADER("one that is not movable", LOADED, HEADER->e_type = ET_EXEC, first->p_vaddr = 0x600000, HEADER->e_entry = 0x600800);
    LOADER("one that is not in order", LOADED, HEADER->e_phnum = 2, first->p_vaddr = 0x10000, HEADER->e_entry = 0x10800);
    /* It takes the place of the program. */
    LOADER("one at the program's addresses", LOADED, HEADER->e_type = ET_EXEC, first->p_vaddr = 0x400000,
           HEADER->e_entry = 0x400800);
    interpreted_program("/bad");
    attempt("a program that names itself", GOOD);
}

static void bad_programs(void) {
    const ElfW(Addr) kernel = END_OF_ADDRESSES, end = ~(ElfW(Addr))0;
    ElfW(Phdr) *first = SEGMENTS, *second = SEGMENTS + 1;
    ATTEMPT("a program", GOOD, (void)0);
    /* No program of this machine's. */
    ATTEMPT("an empty file", ENOEXEC, image_size = 0);
    ATTEMPT("half a header", ENOEXEC, image_size = 20);
    ATTEMPT("another machine", ENOEXEC, HEADER->e_machine = WIDE ? EM_386 : EM_X86_64);
    ATTEMPT("an object file", ENOEXEC, HEADER->e_type = ET_REL);
    /* Which Linux does not look at. */
    ATTEMPT("another class", GOOD, HEADER->e_ident[EI_CLASS] = WIDE ? ELFCLASS32 : ELFCLASS64);
    ATTEMPT("another byte order", GOOD, HEADER->e_ident[EI_DATA] = ELFDATA2MSB);
    ATTEMPT("another version", GOOD, HEADER->e_ident[EI_VERSION] = 2);
    /* Headers of segments. */
    ATTEMPT("headers beyond the file", ENOEXEC, HEADER->e_phoff = sizeof image);
    ATTEMPT("headers beyond all files", ENOEXEC, HEADER->e_phoff = end);
    ATTEMPT("headers that are cut", ENOEXEC, HEADER->e_phoff = sizeof image - 8);
    ATTEMPT("65,535 headers", ENOEXEC, HEADER->e_phnum = 0xffff);
    ATTEMPT("no headers", ENOEXEC, HEADER->e_phnum = 0);
    ATTEMPT("headers of no bytes", ENOEXEC, HEADER->e_phentsize = 0);
    ATTEMPT("headers of many bytes", ENOEXEC, HEADER->e_phentsize = 0xffff);
    ATTEMPT("no segment that is loaded", ENOEXEC, first->p_type = PT_NOTE);
    /* Bytes of the file: there may be fewer, which the program notices when it touches them. */
    ATTEMPT("a file that is cut", GOOD, image_size--);
    ATTEMPT("bytes beyond the file", GOOD, first->p_filesz = first->p_memsz = 1 << 20);
    ATTEMPT("bytes beyond the file, and a tail", GOOD, HEADER->e_phnum = 2, second->p_vaddr = 0x600000,
            second->p_offset = 1 << 20, second->p_filesz = 16);
    ATTEMPT("code beyond the file", -SIGBUS, image_size = 0x7f0, first->p_offset = 4096, first->p_filesz = first->p_memsz = 4096);
    ATTEMPT("bytes far beyond the file", ENOEXEC, first->p_offset = end & ~(ElfW(Addr))4095);
    ATTEMPT("bytes that wrap", ENOEXEC, first->p_filesz = first->p_memsz = end);
    ATTEMPT("more in the file than in memory", ENOEXEC, first->p_memsz = 4096);
    ATTEMPT("bytes at another place of the page", ENOEXEC, first->p_offset = 1, first->p_filesz = 4096);
    /* Addresses. */
    ATTEMPT("page 0", ENOEXEC, first->p_vaddr = 0);
    ATTEMPT("the kernel's addresses", ENOEXEC, first->p_vaddr = kernel);
    ATTEMPT("the last page", ENOEXEC, first->p_vaddr = end & ~(ElfW(Addr))4095);
    ATTEMPT("memory into the kernel's addresses", ENOEXEC, first->p_memsz = kernel - 0x400000 + 1);
    ATTEMPT("memory near the stack", GOOD, HEADER->e_phnum = 2, second->p_vaddr = kernel - (1 << 20));
    ATTEMPT("memory into the stack", ENOEXEC, first->p_memsz = kernel - 0x400000 - 65536);
    ATTEMPT("memory that wraps", ENOEXEC, first->p_memsz = end - 0x400000);
    ATTEMPT("memory that wraps to 0", ENOEXEC, first->p_memsz = end - 0x400000 + 1);
    ATTEMPT("a movable program at the last page", ENOEXEC, HEADER->e_type = ET_DYN, first->p_vaddr = end & ~(ElfW(Addr))4095);
    ATTEMPT("an entry among the kernel's addresses", ENOEXEC, HEADER->e_entry = kernel);
    ATTEMPT("the last entry", ENOEXEC, HEADER->e_entry = end);
    ATTEMPT("an entry that is not mapped", -SIGSEGV, HEADER->e_entry = 0x800000);
    ATTEMPT("an entry that is no code", -SIGSEGV, first->p_flags = PF_R | PF_W);
    ATTEMPT("an entry that may not be read", -SIGSEGV, first->p_flags = 0);
    /* The second of two is in order only if the first is undone. */
    ATTEMPT("a bad segment after a good one", ENOEXEC, HEADER->e_phnum = 2, second->p_vaddr = kernel);
    /* Odd, and still programs. */
    ATTEMPT("segments one over the other", GOOD, HEADER->e_phnum = 4, second->p_vaddr += 4096);
    ATTEMPT("segments in descending order", GOOD, HEADER->e_phnum = 2, first->p_vaddr = 0x600000);
    ATTEMPT("odd alignments", GOOD, first->p_align = 3, first->p_paddr = end);
    ATTEMPT("memory alone, beyond the file", GOOD, HEADER->e_phnum = 2, second->p_filesz = 0, second->p_vaddr = 0x600001,
            second->p_offset = end);
    ATTEMPT("more memory than there is", GOOD, first->p_memsz = WIDE ? END_OF_ADDRESSES / 2 : 0xb0000000);
    ATTEMPT("a movable program", GOOD, HEADER->e_type = ET_DYN, first->p_vaddr = 0, HEADER->e_entry = 0x800);
    /* Fields at random: the program ends somehow. */
    unsigned seed = 1;
    for (int i = 0; i < 400; i++) {
        good_program();
        HEADER->e_phnum = 1 + i % 4;
        for (int changes = 1 + i % 3; changes > 0; changes--) {
            static const ElfW(Addr) values[] = {0, 1, 0xfff, 0x1000, 0x3ff000, 0x400800, 0x7fffffff, 0x80000000,
                                                0xb0000000, 0xbf000000, (ElfW(Addr))0x7ffffeff0000, ~(ElfW(Addr))0};
            seed = seed * 1103515245 + 12345;
            ElfW(Addr) value = values[(seed >> 16) % (sizeof values / sizeof *values)];
            seed = seed * 1103515245 + 12345;
            /* Behind what says which machine it is. */
            memcpy(image + 24 + (seed >> 16) % 32 * sizeof value, &value, sizeof value);
        }
        run();
    }
    static char text[140000];
    memset(text, 'x', sizeof text - 1);
    char *long_arguments[] = {text, 0};
    check("long arguments", execve("/init", long_arguments, 0) == -1 && errno == E2BIG);
    char *arguments[] = {"/bad", (char *)-1, 0};
    check("bad arguments", execve("/init", arguments, 0) == -1 && errno == EFAULT);
    check("a bad list", execve("/init", (char **)-8, 0) == -1 && errno == EFAULT);
    check("a bad name", execve((char *)-1, 0, 0) == -1 && errno == EFAULT);
}

int main(int count, char **arguments) {
    if (getpid() != 1)
        return count == 2 && !strcmp(arguments[1], "again") ? 0 : 9;
    setvbuf(stdout, 0, _IONBF, 0);
    long bad[] = {-1, 1, 4096, (long)(~0ul >> 1), (long)~(~0ul >> 1),
                  (long)(END_OF_ADDRESSES - 1)};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        if (fork() == 0) {
            /* What is read from the console would have to be typed. */
            for (int file = 0; file < 3; file++) {
                close(file);
                open("/short", O_RDWR | O_CREAT, 0600);
            }
            every_call(bad[i]);
            _exit(0);
        }
    while (wait(0) > 0) {
    }
    errno = 0;
    check("read", read(0, (void *)-1, 0) == 0);
    check("write", write(1, (void *)8, 100) == -1 && errno == EFAULT);
    check("pipe", pipe((int *)8) == -1 && errno == EFAULT);
    check("nothing there", syscall(999) == -1 && errno == ENOSYS);
    check("SIGSEGV of a read", ends_with(SIGSEGV, read_nothing));
    check("SIGSEGV of a write", ends_with(SIGSEGV, write_code));
    check("SIGSEGV of a fetch", ends_with(SIGSEGV, run_data));
    check("SIGSEGV beyond addresses", ends_with(SIGSEGV, beyond_addresses));
    check("the signal of a privileged instruction", ends_with(PRIVILEGED_SIGNAL, privileged));
    check("SIGILL", ends_with(SIGILL, no_instruction));
#ifdef HAS_PORTS
    check("SIGSEGV of a port", ends_with(SIGSEGV, port));
    check("SIGFPE", ends_with(SIGFPE, divide));
#endif
    check("SIGSEGV of a stack", ends_with(SIGSEGV, stack_overflow));
    check("SIGSEGV of a bad stack", ends_with(SIGSEGV, bad_stack));
    check("SIGBUS", ends_with(SIGBUS, beyond_file));
    check("SIGSEGV of a jump", ends_with(SIGSEGV, jump_nowhere));
    check("SIGABRT", ends_with(SIGABRT, abort));
    signal(SIGUSR1, handler);
    check("a handler", kill(getpid(), SIGUSR1) == 0 && handled == SIGUSR1);
    handled = 0;
    check("nobody else to signal", kill(-1, SIGUSR1) == -1 && errno == ESRCH && !handled);
    bad_programs();
    bad_interpreters();

    /* Memory until there is none: the program ends, or fork says so. */
    pid_t child = fork();
    if (child == 0) {
        for (;;) {
            char *memory = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED)
                _exit(7);
            memset(memory, 1, 64 << 20);
        }
    }
    int status = 0;
    waitpid(child, &status, 0);
    check("out of memory", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    /* A child has most of the memory, and this process, which is number 1, wants more than is left:
     * the child ends. */
    int ready[2];
    check("a pipe", pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        struct sysinfo info;
        while (sysinfo(&info) == 0 && info.freeram > 4096)
            memset(mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 4 << 20);
        (void)!write(ready[1], "x", 1);
        for (;;)
            pause();
    }
    char byte;
    check("a child with most of the memory", read(ready[0], &byte, 1) == 1);
    char *large = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(large, 1, 32 << 20);
    munmap(large, 32 << 20);
    waitpid(child, &status, 0);
    check("the largest one ends, not process 1", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ready[0]);
    close(ready[1]);
    /* Tasks until there are none. */
    int tasks = 0;
    int hold[2];
    check("a pipe", pipe(hold) == 0);
    for (;; tasks++) {
        pid_t more = fork();
        if (more < 0)
            break;
        if (more == 0) {
            char byte;
            close(hold[1]);
            (void)!read(hold[0], &byte, 1);
            _exit(0);
        }
    }
    check("no more tasks", (errno == EAGAIN || errno == ENOMEM) && tasks > 300);
    close(hold[1]);
    while (wait(0) > 0)
        tasks--;
    check("all tasks ended", tasks == 0);
    child = fork();
    if (child == 0) {
        execl("/init", "/init", "again", (char *)0);
        _exit(1);
    }
    waitpid(child, &status, 0);
    check("exec afterwards", status == 0);
    printf("ERRORS %s\n", failures ? "wrong" : "right");
    return failures != 0;
}
