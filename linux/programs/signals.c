/* Process 1, or any process of Linux: signals, what is said of them, and the calls that they
 * interrupt. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "arch.h"
#include "answers.h"

static volatile sig_atomic_t handled;
static sigjmp_buf before;

static void plain(int number) { (void)number; handled++; }
static void with_context(int number, siginfo_t *info, void *context) {
    (void)number;
    handled += info && context ? 100 : 1000;
}
static void jump(int number) { (void)number; siglongjmp(before, 1); }

/* A child that sends this process a signal after a while, and then writes a byte, if it is to. */
static pid_t sender(int file) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(20000);
        kill(parent, SIGUSR1);
        usleep(20000);
        if (file >= 0)
            (void)!write(file, "x", 1);
        _exit(0);
    }
    return child;
}

/* What the last handler was told. */
static volatile struct {
    int signal, code, pid, status, on_stack;
    char *address;
    unsigned long trap, error, accessed;
} told;
static char stack[65536] __attribute__((aligned(16)));

static void tell(int number, siginfo_t *info, void *context) {
    mcontext_t *registers = &((ucontext_t *)context)->uc_mcontext;
    char here;
    told.signal = number == info->si_signo ? number : -1;
    told.code = info->si_code;
    told.address = info->si_addr;
    told.pid = info->si_pid;
    told.status = info->si_status;
#ifdef HAS_PORTS
    told.trap = registers->gregs[REG_TRAPNO];
    told.error = registers->gregs[REG_ERR];
#endif
#ifdef __x86_64__
    told.accessed = registers->gregs[REG_CR2];
#elif defined __i386__
    told.accessed = registers->cr2;
#elif defined __aarch64__
    told.accessed = registers->fault_address;
#else
    /* Nothing says so but `si_addr`. */
    told.accessed = (unsigned long)info->si_addr;
#endif
    told.on_stack = &here > stack && &here < stack + sizeof stack;
    if (number != SIGCHLD && number != SIGUSR1)
        siglongjmp(before, 1);
}

/* Does something that ends in the handler; whether it was told this. */
#define TELLS(name, number, kind, at, does) \
    do { \
        memset((void *)&told, 0, sizeof told); \
        if (!sigsetjmp(before, 1)) { \
            does; \
        } \
        if (told.signal != (number) || told.code != (kind) || told.address != (char *)(at)) \
            printf("told signal %d, code %d, address %p\n", told.signal, told.code, told.address); \
        check(name, told.signal == (number) && told.code == (kind) && told.address == (char *)(at)); \
    } while (0)
/* After it, what the processor said: on x86, its trap, too. */
#ifdef HAS_PORTS
#define PROCESSOR(name, number, bits, at) \
    check(name, told.trap == (number) && told.error == (bits) && told.accessed == (unsigned long)(at))
#else
#define PROCESSOR(name, number, bits, at) check(name, told.accessed == (unsigned long)(at))
#endif

#ifdef __aarch64__
static void changes_registers(int number) {
    (void)number;
    __asm__ volatile("movi v20.2d, #0\n\tmsr fpsr, xzr" ::: "v20");
}
#elif defined __riscv
static void changes_registers(int number) {
    (void)number;
    __asm__ volatile("fmv.d.x ft8, zero\n\tfscsr zero" ::: "ft8");
}
#endif
#ifndef HAS_PORTS

/* Sends this process a signal, whose handler changes registers of floating point; whether they are
 * as they were. */
static int registers_stay(void) {
    signal(SIGUSR2, changes_registers);
    unsigned long low = 5ul << 40, high = 1, status;
#ifdef __aarch64__
    register long number __asm__("x8") = SYS_kill, process __asm__("x0") = getpid(), sent __asm__("x1") = SIGUSR2;
    __asm__ volatile("ins v20.d[0], %[low]\n\tins v20.d[1], %[high]\n\tmsr fpsr, %[high]\n\tsvc #0\n\t"
                     "umov %[low], v20.d[0]\n\tumov %[high], v20.d[1]\n\tmrs %[status], fpsr"
                     : [low] "+r"(low), [high] "+r"(high), [status] "=&r"(status), "+r"(process) : "r"(number), "r"(sent)
                     : "v20", "memory");
#else
    register long number __asm__("a7") = SYS_kill, process __asm__("a0") = getpid(), sent __asm__("a1") = SIGUSR2;
    __asm__ volatile("fmv.d.x ft8, %[low]\n\tfscsr %[high]\n\tecall\n\tfmv.x.d %[low], ft8\n\tfrcsr %[status]"
                     : [low] "+r"(low), [high] "+r"(high), [status] "=&r"(status), "+r"(process) : "r"(number), "r"(sent)
                     : "ft8", "memory");
#endif
    return low == 5ul << 40 && high == 1 && status == 1;
}
#endif

static int deep(int n) { volatile char room[4096]; room[0] = (char)n; return deep(n + 1) + room[0]; }

static void what_is_said(void) {
    enum { PAGE = 4096 };
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGUSR1, SIGCHLD};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, 0);
    char *area = mmap((void *)0x50000000, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    munmap(area + 3 * PAGE, PAGE);
    (void)*(volatile char *)area;
    TELLS("a write to what may be read", SIGSEGV, SEGV_ACCERR, area + 5, *(volatile char *)(area + 5) = 1);
    PROCESSOR("of a write to what may be read", 14, 7, area + 5);
    TELLS("a read where nothing is", SIGSEGV, SEGV_MAPERR, area + 3 * PAGE + 7, (void)*(volatile char *)(area + 3 * PAGE + 7));
    PROCESSOR("of a read where nothing is", 14, 4, area + 3 * PAGE + 7);
    mprotect(area + PAGE, PAGE, PROT_NONE);
    TELLS("a read of what may not be read", SIGSEGV, SEGV_ACCERR, area + PAGE, (void)*(volatile char *)(area + PAGE));
    TELLS("a fetch of what is no code", SIGSEGV, SEGV_ACCERR, area, ((void (*)(void))(uintptr_t)area)());
    char *kernel = (char *)(sizeof(long) == 8 ? -END_OF_ADDRESSES : 0xc1000000ul);
    TELLS("address 0", SIGSEGV, SEGV_MAPERR, 0, (void)*(volatile char *)0);
    PROCESSOR("of address 0", 14, 4, 0);
    TELLS("a read of the kernel", SIGSEGV, SEGV_MAPERR, kernel, (void)*(volatile char *)kernel);
#ifdef __x86_64__
    PROCESSOR("of a read of the kernel", 14, 5, kernel);
    TELLS("an address that is none", SIGSEGV, SI_KERNEL, 0, (void)*(volatile char *)0x8000123412341234ul);
    PROCESSOR("of an address that is none", 13, 0, told.accessed);
#endif
#ifdef HAS_PORTS
    TELLS("a privileged instruction", SIGSEGV, SI_KERNEL, 0, __asm__ volatile("hlt"));
    TELLS("a breakpoint", SIGTRAP, SI_KERNEL, 0, __asm__ volatile("int3"));
    TELLS("no instruction", SIGILL, ILL_ILLOPN, told.address, __asm__ volatile("ud2"));
    check("where it is", told.address && !memcmp(told.address, "\x0f\x0b", 2) && told.trap == 6);
    memset((void *)&told, 0, sizeof told);
    if (!sigsetjmp(before, 1)) {
        volatile int zero = 0;
        zero = 100 / zero;
    }
    check("a division by 0", told.signal == SIGFPE && told.code == FPE_INTDIV && told.address && told.trap == 0);
    memset((void *)&told, 0, sizeof told);
    /* Of the x87: QEMU raises no exceptions of vectors. */
    if (!sigsetjmp(before, 1)) {
        unsigned short control = 0x37f & ~4;
        __asm__ volatile("fldcw %0\n\tfld1\n\tfldz\n\tfdivrp\n\tfwait" ::"m"(control));
    }
    __asm__ volatile("fninit");
    check("a division of floating point by 0", told.signal == SIGFPE && told.code == FPE_FLTDIV && told.trap == 16);
#else
    TELLS("a privileged instruction", SIGILL, ILL_ILLOPC, told.address, __asm__ volatile(PRIVILEGED));
    check("where that is", told.address != 0);
    TELLS("a breakpoint", SIGTRAP, TRAP_BRKPT, told.address, __asm__ volatile(BREAKPOINT));
    TELLS("no instruction", SIGILL, ILL_ILLOPC, told.address, __asm__ volatile(NO_INSTRUCTION));
    check("where it is", told.address && !memcmp(told.address, "\0\0", 2));
#endif
#ifdef __aarch64__
    TELLS("an address that is not aligned", SIGBUS, BUS_ADRALN, stack + 1,
          __asm__ volatile("ldxr x0, [%0]" ::"r"(stack + 1) : "x0"));
#endif
#ifndef HAS_PORTS
    check("registers that a handler changes", registers_stay());
#endif
    mkdir("/tmp", 0777);
    int file = open("/tmp/short", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *beyond = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    TELLS("beyond the end of a file", SIGBUS, BUS_ADRERR, beyond + 9, (void)*(volatile char *)(beyond + 9));
    close(file);
    unlink("/tmp/short");
    /* Who has sent it. */
    memset((void *)&told, 0, sizeof told);
    kill(getpid(), SIGUSR1);
    check("by kill", told.signal == SIGUSR1 && told.code == SI_USER && told.pid == getpid());
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
    check("by tgkill", told.signal == SIGUSR1 && told.code == SI_TKILL && told.pid == getpid());
    pid_t child = fork();
    if (child == 0)
        _exit(37);
    while (told.signal != SIGCHLD)
        usleep(1000);
    check("a child's end", told.code == CLD_EXITED && told.pid == child && told.status == 37);
    waitpid(child, 0, 0);
    memset((void *)&told, 0, sizeof told);
    child = fork();
    if (child == 0)
        for (;;)
            pause();
    kill(child, SIGKILL);
    while (told.signal != SIGCHLD)
        usleep(1000);
    check("a child that was killed", told.code == CLD_KILLED && told.pid == child && told.status == SIGKILL);
    waitpid(child, 0, 0);
    signal(SIGCHLD, SIG_DFL);

    /* Handlers on a stack of their own. */
    stack_t own = {.ss_sp = stack, .ss_size = 100}, seen;
    check("a stack that is too small", sigaltstack(&own, 0) == -1 && errno == ENOMEM);
    own.ss_size = sizeof stack;
    own.ss_flags = 77;
    check("flags that are none", sigaltstack(&own, 0) == -1 && errno == EINVAL);
    own.ss_flags = 0;
    check("a stack for handlers", sigaltstack(&own, 0) == 0 && sigaltstack(0, &seen) == 0 && seen.ss_sp == stack &&
                                      seen.ss_size == sizeof stack && seen.ss_flags == 0);
    kill(getpid(), SIGUSR1);
    check("a handler that does not want it", !told.on_stack);
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGSEGV, &action, 0);
    kill(getpid(), SIGUSR1);
    check("a handler that wants it", told.on_stack);
    TELLS("a stack that overflows", SIGSEGV, told.code, told.address, deep(0));
    check("of a stack that overflows", told.on_stack && told.signal == SIGSEGV);
    child = fork();
    if (child == 0) {
        told.on_stack = 0;
        kill(getpid(), SIGUSR1);
        _exit(told.on_stack ? 7 : 8);
    }
    int status;
    waitpid(child, &status, 0);
    check("a child has it, too", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    own.ss_flags = SS_DISABLE;
    check("no stack any more", sigaltstack(&own, 0) == 0 && sigaltstack(0, &seen) == 0 && seen.ss_flags == SS_DISABLE);
    kill(getpid(), SIGUSR1);
    check("a handler without one", !told.on_stack);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], SIG_DFL);
}

static int waits(int number) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

/* A signal that is masked waits, whatever its action is: that may change before it is delivered. */
static void masked(void) {
    sigset_t mask, old, none;
    sigemptyset(&none);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, &old);
    int begin = handled, status;
    signal(SIGUSR1, SIG_DFL);
    kill(getpid(), SIGUSR1);
    check("a masked signal with its default action", waits(SIGUSR1));
    signal(SIGUSR1, plain);
    sigprocmask(SIG_SETMASK, &old, 0);
    check("it is delivered with the action of then", handled == begin + 1 && !waits(SIGUSR1));
    sigprocmask(SIG_BLOCK, &mask, 0);
    signal(SIGUSR1, SIG_IGN);
    kill(getpid(), SIGUSR1);
    check("a masked signal that is ignored", waits(SIGUSR1));
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    check("one that is to be ignored goes", !waits(SIGUSR1));
    kill(getpid(), SIGUSR1);
    sigprocmask(SIG_SETMASK, &old, 0);
    check("one that is ignored has no effect", handled == begin + 1 && !waits(SIGUSR1));
    sigprocmask(SIG_BLOCK, &mask, 0);
    signal(SIGCHLD, SIG_DFL);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, &status, 0);
    check("SIGCHLD that is masked", waits(SIGCHLD));
    sigprocmask(SIG_SETMASK, &old, 0);
    check("and has no effect", !waits(SIGCHLD));
    /* One that is ignored ends no wait. */
    signal(SIGUSR2, plain);
    sigprocmask(SIG_BLOCK, &mask, 0);
    kill(getpid(), SIGUSR1);
    pid_t parent = getpid();
    child = fork();
    if (child == 0) {
        usleep(20000);
        kill(parent, SIGUSR2);
        _exit(0);
    }
    check("a wait that an ignored signal does not end", sigsuspend(&none) == -1 && errno == EINTR && handled == begin + 2);
    waitpid(child, &status, 0);
    sigprocmask(SIG_SETMASK, &old, 0);
    /* Process 1 has no default actions. */
    if (getpid() == 1) {
        sigprocmask(SIG_BLOCK, &mask, 0);
        kill(1, SIGTERM);
        check("a masked signal of process 1", waits(SIGTERM));
        sigprocmask(SIG_SETMASK, &old, 0);
        check("it does not end process 1", !waits(SIGTERM));
        kill(1, SIGTERM);
        kill(1, SIGKILL);
        kill(1, SIGSTOP);
        raise(SIGTERM);
        check("nor do others", !waits(SIGTERM));
    }
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    int ends[2], status;
    char byte = 0;
    check("pipe", pipe(ends) == 0);
    struct sigaction action = {.sa_handler = plain};
    sigaction(SIGUSR1, &action, 0);
    pid_t child = sender(-1);
    check("a read that is interrupted", read(ends[0], &byte, 1) == -1 && errno == EINTR && handled == 1);
    waitpid(child, 0, 0);
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    child = sender(ends[1]);
    check("a read that is made again", read(ends[0], &byte, 1) == 1 && byte == 'x' && handled == 2);
    waitpid(child, 0, 0);

    struct sigaction detailed = {.sa_sigaction = with_context, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR2, &detailed, 0);
    volatile double number = 1.5;
    raise(SIGUSR2);
    check("a handler with context", handled == 102 && number * 2 == 3.0);

    sigset_t mask, old;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, &old);
    kill(getpid(), SIGUSR1);
    check("a signal that is masked", handled == 102);
    sigsuspend(&old);
    check("a signal that is waited for", handled == 103);
    sigprocmask(SIG_SETMASK, &old, 0);

    signal(SIGSEGV, jump);
    if (!sigsetjmp(before, 1)) {
        *(volatile int *)16 = 1;
        check("a write to nowhere", 0);
    }
    child = fork();
    if (child == 0)
        for (;;) {
        }
    usleep(10000);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    check("the end of a loop", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);

    struct pollfd poller = {.fd = ends[0], .events = POLLIN};
    check("a poll that ends", poll(&poller, 1, 30) == 0);
    check("a write", write(ends[1], "y", 1) == 1);
    check("a poll that finds", poll(&poller, 1, -1) == 1 && poller.revents == POLLIN);
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    check("a pipe that nobody reads", write(ends[1], "z", 1) == -1 && errno == EPIPE);
    child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        (void)!write(ends[1], "z", 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    check("SIGPIPE", WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    what_is_said();
    masked();
    printf("SIGNALS %s\n", failures ? "wrong" : "right");
    return failures != 0;
}
