/* Process 1: everything a program can do wrong. The kernel answers with errors and signals, and goes on. */
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
#include <sys/wait.h>
#include <unistd.h>

static int failures;

static void check(const char *what, int right) {
    if (!right) {
        printf("WRONG %s (errno %d)\n", what, errno);
        failures++;
    }
}

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
#else
        case SYS_exit: case SYS_exit_group: case SYS_sigreturn: case SYS_rt_sigreturn: case SYS_fork: case SYS_vfork:
        case SYS_clone: case SYS_pause: case SYS_rt_sigsuspend: case SYS_reboot: case SYS_munmap: case SYS_brk:
        case SYS_close: case SYS_set_thread_area: case SYS_dup2: case SYS__newselect: case SYS_kill: case SYS_tkill:
        case SYS_tgkill: case SYS_waitpid: case SYS_wait4: case SYS_rt_sigprocmask: case SYS_mprotect:
        case SYS_madvise: case SYS_mremap: case SYS_mmap2: case SYS_setpgid: case SYS_ftruncate64: case SYS_fcntl:
        case SYS_fcntl64: case SYS_umask: case SYS_poll: case SYS_ppoll:
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
static void run_data(void) { static char data[16]; ((void (*)(void))(uintptr_t)data)(); }
static void beyond_addresses(void) { (void)*(volatile int *)(sizeof(long) == 8 ? ~0ul << 47 : 3ul << 30); }
static void privileged(void) { __asm__ volatile("hlt"); }
static void port(void) { __asm__ volatile("outb %%al, $0x80" ::: "memory"); }
static void no_instruction(void) { __asm__ volatile("ud2"); }
static void divide(void) { volatile int zero = 0; zero = 100 / zero; }
static int deep(int n) { volatile char room[4096]; room[0] = (char)n; return deep(n + 1) + room[0]; }
static void stack_overflow(void) { deep(0); }
#ifdef __x86_64__
static void bad_stack(void) { __asm__ volatile("mov $16, %rsp\n\tpush %rax"); }
#else
static void bad_stack(void) { __asm__ volatile("mov $16, %esp\n\tpush %eax"); }
#endif
static void beyond_file(void) {
    int file = open("/short", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *memory = mmap(0, 8192, PROT_READ, MAP_PRIVATE, file, 0);
    (void)*(volatile char *)memory;
}
static void jump_nowhere(void) { ((void (*)(void))(sizeof(long) == 8 ? 1ul << 47 : 3ul << 30))(); }

static volatile int handled;
static void handler(int number) { handled = number; }

static void bad_programs(void) {
    char bytes[4096];
    for (int kind = 0; kind < 6; kind++) {
        int file = open("/bad", O_RDWR | O_CREAT | O_TRUNC, 0755);
        size_t size = kind == 0 ? 20 : sizeof bytes;
        memset(bytes, 0, sizeof bytes);
        ElfW(Ehdr) *header = (void *)bytes;
        ElfW(Phdr) *segment = (void *)(bytes + sizeof *header);
        memcpy(header->e_ident, ELFMAG, SELFMAG);
        header->e_ident[EI_CLASS] = sizeof(long) == 8 ? ELFCLASS64 : ELFCLASS32;
        header->e_ident[EI_DATA] = ELFDATA2LSB;
        header->e_ident[EI_VERSION] = EV_CURRENT;
        header->e_type = ET_EXEC;
        header->e_machine = sizeof(long) == 8 ? EM_X86_64 : EM_386;
        header->e_entry = kind == 5 && sizeof(long) == 8 ? 1ul << (sizeof(long) * 8 - 1) : 0x400000;
        header->e_phoff = kind == 1 ? ~0ul : sizeof *header;
        header->e_phentsize = sizeof *segment;
        header->e_phnum = kind == 2 || kind == 5 && sizeof(long) == 4 ? 0xffff : 1;
        segment->p_type = PT_LOAD;
        segment->p_flags = PF_R | PF_X;
        segment->p_vaddr = kind == 3 ? ~0ul << 12 : 0x400000;
        segment->p_filesz = segment->p_memsz = kind == 4 ? 1 << 20 : 4096;
        check("write a program", write(file, bytes, size) == (ssize_t)size);
        close(file);
        errno = 0;
        char *arguments[] = {"/bad", 0};
        check("a bad program", execve("/bad", arguments, arguments) == -1 && errno == ENOEXEC);
    }
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
                  (long)(sizeof(long) == 8 ? (1ul << 47) - 1 : (3ul << 30) - 1)};
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
    check("SIGSEGV of an instruction", ends_with(SIGSEGV, privileged));
    check("SIGSEGV of a port", ends_with(SIGSEGV, port));
    check("SIGILL", ends_with(SIGILL, no_instruction));
    check("SIGFPE", ends_with(SIGFPE, divide));
    check("SIGSEGV of a stack", ends_with(SIGSEGV, stack_overflow));
    check("SIGSEGV of a bad stack", ends_with(SIGSEGV, bad_stack));
    check("SIGBUS", ends_with(SIGBUS, beyond_file));
    check("SIGSEGV of a jump", ends_with(SIGSEGV, jump_nowhere));
    check("SIGABRT", ends_with(SIGABRT, abort));
    signal(SIGUSR1, handler);
    check("a handler", kill(getpid(), SIGUSR1) == 0 && handled == SIGUSR1);
    bad_programs();

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
    check("no more tasks", errno == EAGAIN && tasks > 100);
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
