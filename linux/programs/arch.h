/* What programs need of the architecture. */

/* The CPU says that it waits. Where CPUs take turns and instructions are counted, QEMU goes on with
 * the next one, to which a CPU that never says so may leave no turn. */
static inline void give_way(void) {
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

#if defined __x86_64__ || defined __i386__
#include <sys/io.h>
#include <x86intrin.h>

/* Counts of the time-stamp counter. */
static inline unsigned long long counter(void) { return __rdtsc(); }

/* Ends the machine through QEMU's exit device, if this may write to ports. */
static inline void end_machine(void) {
    if (iopl(3) == 0)
        outb(0x10, 0xf4);
}
#else
#ifdef __aarch64__
static inline unsigned long long ticks(void) {
    unsigned long long now;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(now));
    return now;
}

static inline unsigned long long ticks_in_a_second(void) {
    unsigned long long hertz;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
    return hertz;
}
#elif defined __riscv
static inline unsigned long long ticks(void) {
    unsigned long long now;
    __asm__ volatile("rdtime %0" : "=r"(now));
    return now;
}

/* Of QEMU's board. */
static inline unsigned long long ticks_in_a_second(void) { return 10000000; }
#endif

/* Nanoseconds: under QEMU's -icount shift=0 these are instructions, too. */
static inline unsigned long long counter(void) { return ticks() * (1000000000 / ticks_in_a_second()); }

/* The board has no exit device for programs. */
static inline void end_machine(void) {}
#endif

/* END_OF_ADDRESSES: the first address above those of programs. MACHINE: its number in ELF files.
 * EXITS_WITH: code that ends with a status, in little-endian words. Then instructions, as text: one
 * that programs may not execute, and its signal; none; a breakpoint; one on a bad stack; and one
 * that does nothing, with a number. */
#if defined __x86_64__ || defined __i386__
#define HAS_PORTS
#define PRIVILEGED "hlt"
#define PRIVILEGED_SIGNAL SIGSEGV
#define NO_INSTRUCTION "ud2"
/* `nopl` with a displacement. */
#define MARKS_WITH ".byte 0x0f, 0x1f, 0x80, %c0, 0x41, 0x54, 0x50"
#endif
#ifdef __x86_64__
#define END_OF_ADDRESSES (1ul << 47)
#define MACHINE EM_X86_64
#define EXITS_WITH(status) 0x00003cb8, 0xbf00 | (status) << 16, 0x050f0000
#define BAD_STACK "mov $16, %rsp\n\tpush %rax"
#elif defined __i386__
#define END_OF_ADDRESSES (3ul << 30)
#define MACHINE EM_386
#define EXITS_WITH(status) 0x000001b8, 0xbb00 | (status) << 16, 0x80cd0000
#define BAD_STACK "mov $16, %esp\n\tpush %eax"
#elif defined __aarch64__
#define END_OF_ADDRESSES (1ul << 48)
#define MACHINE EM_AARCH64
#define EXITS_WITH(status) 0xd2800ba8, 0xd2800000 | (status) << 5, 0xd4000001
#define PRIVILEGED "mrs x0, sctlr_el1"
#define PRIVILEGED_SIGNAL SIGILL
#define NO_INSTRUCTION ".inst 0"
#define BREAKPOINT "brk #0"
#define BAD_STACK "mov x0, #16\n\tmov sp, x0\n\tstr x0, [sp]"
/* A number for the register of zeroes. */
#define MARKS_WITH "movz xzr, #(0x5400 + %c0)"
#elif defined __riscv
#define END_OF_ADDRESSES (1ul << 38)
#define MACHINE EM_RISCV
#define EXITS_WITH(status) 0x05d00893, 0x00000513 | (status) << 20, 0x00000073
#define PRIVILEGED "csrr t0, sstatus"
#define PRIVILEGED_SIGNAL SIGILL
#define NO_INSTRUCTION ".half 0"
#define BREAKPOINT "ebreak"
#define BAD_STACK "li sp, 16\n\tsd sp, 0(sp)"
/* A number for the register of zeroes. */
#define MARKS_WITH "lui zero, 0x54000 + %c0"
#endif
