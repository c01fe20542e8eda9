/*
 * ptsan: a page-table sanitizer, for kernels whose page-table code is C, C++ or Zig.
 *
 * Compile the page-table code as a host program, call these functions where it talks to hardware
 * and to its frame allocator, and link with -lptsan_c -lpthread -ldl -lm.
 *
 * Addresses are bytes, physical unless they are called `va`. Functions that return int32_t return
 * PTSAN_OK, a negative ptsan_error, or where they say so a positive ptsan_fault. A call that makes
 * no sense is refused with an error, or is a finding of the kind "misuse"; ptsan_end counts both.
 *
 * Every function may be called from every thread. It takes the sanitizer's lock, which is the
 * innermost: call a hook before another thread can act on what it tells. No function may be called
 * from a signal handler or from a ptsan_read. No Rust panic leaves the library, if it was built
 * with unwinding, which is the default.
 */

#ifndef PTSAN_H
#define PTSAN_H

/* Generated from the Rust source by tests/header.rs; changes here are lost. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First in a hook: reports leave the function out and name the line that called it. */
#define PTSAN_HARNESS(san) ((void)ptsan_mark_harness((san), __func__))

/* Once in a file that has nothing but hooks and tests: reports leave all of its functions out. */
#define PTSAN_HARNESS_FILE(san) ((void)ptsan_mark_harness((san), __FILE__))

// The result of functions that carried out the call. Errors are negative (`ptsan_error`), the
// faults of an access positive (`ptsan_fault`).
#define PTSAN_OK 0

// In place of a CPU's number: the CPU that stands for the calling thread. See `ptsan_run_on`.
#define PTSAN_THIS_CPU -1

// In place of a CPU's number, for flushes: one that hardware broadcasts to every CPU.
#define PTSAN_EVERY_CPU -2

// In place of a table's level: not known.
#define PTSAN_ANY_LEVEL -1

// An access that loads.
#define PTSAN_READ 0

// An access that stores.
#define PTSAN_WRITE 1

// An access that fetches an instruction.
#define PTSAN_EXEC 2

// In place of the address of a device's entry: all of its entries.
#define PTSAN_ALL_ENTRIES UINT64_MAX

// The result of `ptsan_watch_run_on` if the code executed `hlt`. It is positive, as faults are.
#define PTSAN_HALTED 100

// The value of members of `ptsan_finding` that do not apply; and the answer of a refused call that
// returns a number.
#define PTSAN_NONE UINT64_MAX

// Page-table formats, with the caching rules of their hardware.
typedef enum ptsan_arch {
    // 32-bit x86 without PAE (i386): 2 levels, entries of 4 bytes.
    PTSAN_ARCH_X86 = 1,
    // 32-bit x86 with PAE (i686): 3 levels.
    PTSAN_ARCH_X86_PAE = 2,
    // x86-64 with 4 levels.
    PTSAN_ARCH_X86_64 = 3,
    // x86-64 with 5 levels.
    PTSAN_ARCH_X86_64_LA57 = 4,
    // RISC-V Sv32.
    PTSAN_ARCH_RISCV_SV32 = 5,
    // RISC-V Sv39.
    PTSAN_ARCH_RISCV_SV39 = 6,
    // RISC-V Sv48.
    PTSAN_ARCH_RISCV_SV48 = 7,
    // RISC-V Sv57.
    PTSAN_ARCH_RISCV_SV57 = 8,
    // AArch64 stage 1, pages of 4 KiB. `va_bits` counts.
    PTSAN_ARCH_AARCH64_4K = 9,
    // AArch64 stage 1, pages of 16 KiB. `va_bits` counts.
    PTSAN_ARCH_AARCH64_16K = 10,
    // AArch64 stage 1, pages of 64 KiB. `va_bits` counts.
    PTSAN_ARCH_AARCH64_64K = 11,
    // AArch64 stage 2, pages of 4 KiB. `va_bits` and `start_level` count.
    PTSAN_ARCH_AARCH64_STAGE2_4K = 12,
    // AArch64 stage 2, pages of 16 KiB. `va_bits` and `start_level` count.
    PTSAN_ARCH_AARCH64_STAGE2_16K = 13,
    // AArch64 stage 2, pages of 64 KiB. `va_bits` and `start_level` count.
    PTSAN_ARCH_AARCH64_STAGE2_64K = 14,
    // 32-bit PowerPC with a hash table: see `ptsan_hash_table`.
    PTSAN_ARCH_POWERPC = 15,
    // Intel's extended page tables, 4 levels. Addresses are guest-physical; see
    // `PTSAN_FLAG_TWO_STAGES`.
    PTSAN_ARCH_EPT = 16,
    // AMD's nested page tables, 4 levels. Addresses are guest-physical.
    PTSAN_ARCH_NPT = 17,
    // The G-stage of RISC-V, Sv39x4. Addresses are guest-physical.
    PTSAN_ARCH_RISCV_SV39_X4 = 18,
    // The G-stage of RISC-V, Sv48x4. Addresses are guest-physical.
    PTSAN_ARCH_RISCV_SV48_X4 = 19,
    // LoongArch, 64 bits, 16 KiB pages. Software fills the TLB.
    PTSAN_ARCH_LOONGARCH64 = 20,
} ptsan_arch;

// Flags for `ptsan_options.flags`, combined with `|`.
typedef enum ptsan_flag {
    // Cached entries are tagged with their address space and survive a switch to another (PCID,
    // ASID).
    PTSAN_FLAG_ASIDS = 1,
    // Entries of the root may point at the root itself.
    PTSAN_FLAG_RECURSIVE = 2,
    // When an access makes one CPU walk, every other CPU with the same root walks too.
    PTSAN_FLAG_EAGER_WALKERS = 4,
    // Reports old entries in a table that a walk reaches first, for kernels that tell no stores.
    PTSAN_FLAG_INFER_LEFTOVERS = 8,
    // Findings name the callers that allocated and freed the table. Costs microseconds a table.
    PTSAN_FLAG_TRACK_ORIGINS = 16,
    // AArch64: the upper of the two trees (`TTBR1`).
    PTSAN_FLAG_UPPER = 32,
    // Findings name no callers.
    PTSAN_FLAG_NO_BACKTRACES = 64,
    // Barriers are told (`ptsan_barrier`), and one that is missing is a finding. For AArch64 and
    // RISC-V; other formats need no barrier.
    PTSAN_FLAG_BARRIERS = 128,
    // The kernel relies on the accessed and dirty bits that hardware sets. A plain store over an
    // entry through which another CPU may write then loses a dirty bit: exchange it
    // (`ptsan_entry_exchanged`). An entry that was not accessed when it was exchanged owes no
    // flush.
    PTSAN_FLAG_ACCESSED_DIRTY = 256,
    // Reports a frame that user mode may write at one address and execute at another. Needs stores
    // that are told or watched.
    PTSAN_FLAG_WRITE_XOR_EXECUTE = 512,
    // The tables are those of stage 2, a hypervisor's with a guest's tables on top, and CPUs cache
    // translations that are combined of both stages. A flush by address then needs
    // `ptsan_stage1_flushed` after it. Flushes of the whole space drop both.
    PTSAN_FLAG_TWO_STAGES = 1024,
    // AArch64 stage 1: both trees in one sanitizer. `ptsan_switch` loads `TTBR0`,
    // `ptsan_switch_upper` `TTBR1`; a flush is told once. Not with memory that is watched.
    PTSAN_FLAG_BOTH_TREES = 2048,
    // A number of a space stands for the same root on all CPUs (AArch64 with `TTBR.CnP`): two that
    // run different roots under one number are a finding.
    PTSAN_FLAG_COMMON_NUMBERS = 4096,
    // Locks are told (`ptsan_lock_guards`, `ptsan_lock_taken`, `ptsan_lock_released`): a store
    // without the lock of its table is a finding. Needs stores that are told or watched.
    PTSAN_FLAG_LOCKS = 8192,
    // Erratum: `invlpg` beside PCIDs leaves global translations (some Intel processors with two
    // kinds of cores).
    PTSAN_FLAG_INVLPG_SPARES_GLOBALS = 16384,
    // Erratum: `sfence.vma` with operands may drop nothing (SiFive CIP-1200).
    PTSAN_FLAG_SFENCE_DROPS_ONLY_ALL = 32768,
    // Erratum: after `tlbi` and `dsb` another `tlbi` and `dsb` are needed (CVE-2025-10263). With
    // `PTSAN_FLAG_BARRIERS`.
    PTSAN_FLAG_DSB_MISSES_STORES = 65536,
    // CPUs and devices keep entries that were not valid when a walk read them: an access that
    // memory allows may fault (`PTSAN_FAULT_NOT_PRESENT`) until the handler flushes, and a second
    // fault is a finding. It is on for RISC-V.
    PTSAN_FLAG_KEEPS_INVALID = 131072,
    // They keep none (RISC-V with Svvptc).
    PTSAN_FLAG_DROPS_INVALID = 262144,
    // Walkers set accessed and dirty bits in the tables, as those of x86 do, and those of AArch64
    // with FEAT_HAFDBS and of RISC-V with Svadu. The sanitizer then stores to the memory of
    // `ptsan_new`; that of `ptsan_new_reading` will not do.
    PTSAN_FLAG_WALKERS_SET_BITS = 524288,
} ptsan_flag;

// The content of a frame when it is announced as a table.
typedef enum ptsan_content {
    // Zero, as the allocator promised. It is checked at once.
    PTSAN_CONTENT_ZERO = 0,
    // Anything. The kernel clears it before it links it, which is checked when the table becomes
    // reachable.
    PTSAN_CONTENT_UNKNOWN = 1,
    // Not checked, at no cost.
    PTSAN_CONTENT_UNCHECKED = 2,
} ptsan_content;

// How the entries of a hash table are laid out, big-endian.
typedef enum ptsan_hash_layout {
    // Entries of 8 bytes in groups of 64, at least 64 KiB (604, 750).
    PTSAN_HASH_LAYOUT_BITS32 = 1,
    // Entries of 16 bytes in groups of 128, at least 256 KiB (POWER3).
    PTSAN_HASH_LAYOUT_BITS64 = 2,
} ptsan_hash_layout;

// A barrier that a CPU carries out.
typedef enum ptsan_barrier_kind {
    // AArch64 `dsb ish`: orders stores before it and completes invalidations.
    PTSAN_BARRIER_KIND_DATA = 1,
    // AArch64 `isb`, after the load of a root.
    PTSAN_BARRIER_KIND_INSTRUCTION = 2,
    // RISC-V `fence rw, rw`, before another CPU is asked to flush.
    PTSAN_BARRIER_KIND_FENCE = 3,
    // AArch64 `dsb ishst`, which orders stores and completes no invalidation.
    PTSAN_BARRIER_KIND_STORES = 4,
} ptsan_barrier_kind;

// Permissions for `ptsan_expected.perms`, combined with `|`.
typedef enum ptsan_perm {
    // Loads.
    PTSAN_PERM_READ = 1,
    // Stores.
    PTSAN_PERM_WRITE = 2,
    // Instruction fetches in user mode, with `PTSAN_PERM_USER`.
    PTSAN_PERM_USER_EXEC = 4,
    // Loads and stores in user mode too.
    PTSAN_PERM_USER = 8,
    // Instruction fetches in supervisor mode.
    PTSAN_PERM_KERNEL_EXEC = 16,
    // No access at all, in place of any of these.
    PTSAN_PERM_NOTHING = 32,
} ptsan_perm;

// The reason why a call was refused. A refused call has no other effect. `ptsan_last_error` says
// more, and `ptsan_end` counts refused calls as findings.
typedef enum ptsan_error {
    // The sanitizer is NULL, was destroyed, or never existed.
    PTSAN_ERROR_NO_SANITIZER = -1,
    // An argument has no meaning: a number of no enum, a pointer that must not be NULL, text that
    // cannot be read.
    PTSAN_ERROR_BAD_ARGUMENT = -2,
    // A callback that reads memory called a function of this library.
    PTSAN_ERROR_REENTERED = -3,
    // Internal error in ptsan. Please report it.
    PTSAN_ERROR_INTERNAL = -4,
    // The operating system refused, or the sanitizer has no memory to watch.
    PTSAN_ERROR_SYSTEM = -5,
} ptsan_error;

// Why an access cannot be translated.
typedef enum ptsan_fault {
    // An entry on the way is empty.
    PTSAN_FAULT_NOT_PRESENT = 1,
    // The page is mapped, but not for this access.
    PTSAN_FAULT_PERMISSION = 2,
    // The page is mapped, and its access flag is clear (AArch64).
    PTSAN_FAULT_NOT_ACCESSED = 3,
    // Reserved bits are set in an entry on the way.
    PTSAN_FAULT_MALFORMED = 4,
    // A table on the way lies outside memory.
    PTSAN_FAULT_OUTSIDE_MEMORY = 5,
    // The page is not in the hash table (32-bit PowerPC).
    PTSAN_FAULT_NOT_HASHED = 6,
    // The address is not canonical.
    PTSAN_FAULT_NON_CANONICAL = 7,
    // The CPU does not exist or has no root loaded.
    PTSAN_FAULT_NO_ROOT = 8,
} ptsan_fault;

// How a report prints. The README of ptsan describes each.
typedef enum ptsan_format {
    // Sentences within 80 columns.
    PTSAN_FORMAT_TEXT = 1,
    // A line of at most 80 columns for each finding.
    PTSAN_FORMAT_SHORT = 2,
    // Commands of GitHub Actions, which mark the innermost caller in the code under test.
    PTSAN_FORMAT_GITHUB = 3,
    // An object on a line for the run, and one for each finding.
    PTSAN_FORMAT_JSON = 4,
} ptsan_format;

// A sanitizer. Programs only have pointers to it, which they must not look behind.
typedef struct ptsan ptsan;

// The simulated machine. Set all members to zero, then those that matter:
// `ptsan_options options = { .arch = PTSAN_ARCH_X86_64, .cpus = 2 };`
typedef struct ptsan_options {
    // The page-table format, an `enum ptsan_arch`.
    uint32_t arch;
    // The number of CPUs, at most 65535. 0 means 1.
    uint32_t cpus;
    // Values of `enum ptsan_flag`, combined with `|`.
    uint32_t flags;
    // AArch64: the number of address bits that are translated. 0 means 48, for stage 2 40.
    uint32_t va_bits;
    // AArch64 stage 2: the level at which walks start, as the manual numbers it (0 to 3).
    uint32_t start_level;
    // CPUs walk speculatively at random moments: this many times in 1000 calls, at most 65535. 0
    // means never; 500 is a good start.
    uint32_t adversary_rate;
    // The seed of these moments. The environment variable `PTSAN_SEED` replaces it.
    uint64_t seed;
    // The number of findings kept in full; all are counted. 0 means 64.
    uint32_t keep;
    // The most flushes that CPUs may owe at a time; further ones are counted
    // (`ptsan_debts_dropped`) and not checked. One takes some 150 bytes. 0 means 65536.
    uint32_t debts;
    // The most entries whose stores are remembered with their events, at 16 bytes each; beyond it
    // a table takes some 4 KiB. 0 means 1048576.
    uint32_t told;
    // The number of devices that walk the tables too: see `ptsan_device`.
    uint32_t devices;
    // The number of CPUs is 0: the tables are those of devices alone.
    bool devices_only;
    // Findings that are known and do not count, or NULL. One a line: `kind`, `kind/Rule`, either
    // with `:part of a caller's name`. Text after ` #` is a comment. It is copied.
    const char *suppressions;
    // AArch64: the exception level whose translations the tables describe, 1 to 3. 0 means 1. See
    // `ptsan_flush_of`.
    uint32_t exception_level;
} ptsan_options;

// Reads `bytes` bytes (4 or 8) at physical address `phys`, a multiple of `bytes`, into `*value`,
// and returns true. Returns false if there is no memory at that address.
//
// It is called on the thread that called the library, one call at a time. It must not call the
// library, and must return (no `longjmp`, no exception).
typedef bool (*ptsan_read)(void *user, uint64_t phys, uint8_t bytes, uint64_t *value);

// The kernel's answer about an address. Members that are 0 are not compared, except `phys`.
typedef struct ptsan_expected {
    // The physical address of the byte, not of its page.
    uint64_t phys;
    // The size of the page in bytes, or 0.
    uint64_t size;
    // The exact permissions, values of `enum ptsan_perm`; or 0.
    uint32_t perms;
} ptsan_expected;

// Code under test: called with the `user` that was given with it. It must return (no `longjmp`, no
// exception).
typedef void (*ptsan_code)(void *user);

// A finding: one for each cause, with its first place. The strings are the library's. `note` lives
// until the sanitizer is destroyed, the others forever.
typedef struct ptsan_finding {
    // The name of the kind, such as "free-before-flush".
    const char *kind;
    // The name of the rule, such as "HeldInTlb", as lists of suppressions have it.
    const char *rule;
    // The sentence of the rule.
    const char *text;
    // Particulars of the first time, or "".
    const char *note;
    // The number of the call that found it first, counted from 1.
    uint64_t event;
    // How often it was made: a loop that breaks a rule at many places is one finding.
    uint64_t count;
    // How often it was made together with other findings of its cause, such as other kinds.
    uint64_t total;
    // Physical address of the frame, or `PTSAN_NONE`.
    uint64_t frame;
    // Virtual address, or `PTSAN_NONE`.
    uint64_t va;
    // The address space, or `PTSAN_NONE`.
    uint64_t space;
    // The CPU, or -1.
    int32_t cpu;
    // The level of the table, or -1.
    int32_t level;
} ptsan_finding;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns a text about the last refused call of this thread: function, reason and correction. The
// text is empty if no call was refused. It is never NULL, and valid until the next refused call of
// this thread.
const char *ptsan_last_error(void);

// Creates a sanitizer that reads tables from the program's memory: `bytes` bytes at `base`, whose
// first has physical address `start`. `base` and `start` are multiples of 8.
//
// Returns NULL if it cannot (`ptsan_last_error`). The caller ends it with `ptsan_end` or
// `ptsan_destroy`.
//
// # Safety
// 1. `options` is NULL, which is refused, or points at options that stay as they are during the
//    call.
// 2. The memory is readable, on every thread, until the sanitizer is gone, and with
//    `PTSAN_FLAG_WALKERS_SET_BITS` writable. Entries are stored in one piece.
struct ptsan *ptsan_new(const struct ptsan_options *options,
                        const void *base,
                        size_t bytes,
                        uint64_t start);

// Creates a sanitizer that reads tables by calling `read` with `user`. Otherwise as `ptsan_new`.
//
// # Safety
// 1. As point 1 of `ptsan_new`.
// 2. `read` is NULL, which is refused, or keeps to `ptsan_read`, until the sanitizer is gone.
struct ptsan *ptsan_new_reading(const struct ptsan_options *options,
                                ptsan_read read,
                                void *user);

// Creates a sanitizer with memory of its own in which it sees every store: `bytes` bytes of zero,
// rounded up to pages of 4096. The first has physical address `start`, a multiple of 4096. See
// `ptsan_watch_run`. Otherwise as `ptsan_new`.
//
// It needs Linux on x86-64 and returns NULL elsewhere. It takes the signals SIGSEGV and SIGTRAP,
// and passes on those that are not its own.
//
// # Safety
// As point 1 of `ptsan_new`.
struct ptsan *ptsan_watch_new(const struct ptsan_options *options,
                              size_t bytes,
                              uint64_t start);

// Does the same as `ptsan_watch_new`, with memory that is mapped one to one: the address of each
// byte is its physical address (`ptsan_watch_base`). A kernel that takes physical addresses for
// pointers, as under an identity map, runs as it is. See `ptsan_watch_run_on`.
//
// `start` is a multiple of 4096; it fails if these addresses are in use. 0 chooses the lowest
// multiple of 4 GiB that is free, the same in each run.
//
// # Safety
// As point 1 of `ptsan_new`.
struct ptsan *ptsan_watch_new_identity(const struct ptsan_options *options,
                                       size_t bytes,
                                       uint64_t start);

// Destroys a sanitizer without a report. `ptsan_end` is for the end of a test.
//
// NULL is legal. Destroying twice, or using it afterwards, is `PTSAN_ERROR_NO_SANITIZER`. Calls
// that other threads are in go on; the memory that the sanitizer reads must stay until these have
// returned, and the memory of a watch stays as long.
int32_t ptsan_destroy(struct ptsan *san);

// Tells that the `size` bytes at `phys` were allocated to hold a table. Call it when the allocator
// returns the frame, before the kernel clears it.
//
// `level` counts from 0, the level of the smallest pages; `PTSAN_ANY_LEVEL` if it is not known.
// `content` is an `enum ptsan_content`.
int32_t ptsan_table_allocated(struct ptsan *san,
                              uint64_t phys,
                              uint64_t size,
                              int32_t level,
                              uint32_t content);

// Tells that the table at `phys` of `size` bytes was freed: given to an allocator, or to any list
// from which it may be allocated again. By then no CPU may hold it, and no entry may point at it.
int32_t ptsan_table_freed(struct ptsan *san,
                          uint64_t phys,
                          uint64_t size);

// Tells that the table was given to a list from which frames are taken only after the next full
// flush: the allocator promises the order, not the caller. The free is checked as by
// `ptsan_table_freed`, but when the frame is allocated as a table or handed out
// (`ptsan_frame_reused`).
//
// A flush of everything or of a space, or a load of a root, makes it final without a finding if
// after it no CPU can hold the table and no entry points at it. A free that is not final at the
// end of the run is no leak.
int32_t ptsan_table_freed_at_flush(struct ptsan *san, uint64_t phys, uint64_t size);

// Tells that the entry at physical address `entry` was stored to. Optional: tell all stores, or
// leave all out. It finds a table that is linked before it is cleared. A watch tells all stores by
// itself.
int32_t ptsan_entry_written(struct ptsan *san,
                            uint64_t entry);

// Tells that the entry at physical address `entry` was exchanged: stored to by an atomic
// instruction that returned the old value, with the bits that hardware had set. Otherwise as
// `ptsan_entry_written`. It makes a difference with `PTSAN_FLAG_ACCESSED_DIRTY`. A watch knows
// atomic instructions by itself.
int32_t ptsan_entry_exchanged(struct ptsan *san, uint64_t entry);

// Tells that entry `index` of the table at `parent` was made to point at the table at `table`, for
// kernels that tell of links alone.
int32_t ptsan_table_linked(struct ptsan *san,
                           uint64_t parent,
                           uint64_t index,
                           uint64_t table);

// Tells that a page was just mapped at `va` in a space. Each CPU that has the space loaded then
// walks for it, as hardware may at any time. Not needed where stores are told or watched.
int32_t ptsan_frame_mapped(struct ptsan *san, uint64_t space, uint64_t va);

// Tells that the `size` bytes of data at `phys` were freed: given to an allocator, or to any list
// from which they may be handed out again. Call it when the last user is gone; no references are
// counted. By then no CPU may translate to them in a space that it runs in, and no entry of such a
// space may map them to user mode.
//
// With stores told or watched, this holds for each CPU that could have cached a translation.
// Otherwise only for those that did.
int32_t ptsan_frame_freed(struct ptsan *san,
                          uint64_t phys,
                          uint64_t size);

// Tells that a data frame is handed out again, for kernels whose frees are not told. The same is
// checked. A frame that is announced as a table (`ptsan_table_allocated`) is checked without it.
int32_t ptsan_frame_reused(struct ptsan *san,
                           uint64_t phys,
                           uint64_t size);

// Tells that everything that was unmapped, remapped or restricted so far has been flushed, as far
// as it belongs to no operation under way, and that no handler of a fault is running. A CPU that
// may still hold any of it is a finding, for which stores must be told or watched; and so is one
// that has faulted on an entry which it keeps from before it was valid, and has not flushed since.
// `ptsan_finish` does the same, and `ptsan_operation_ends` the first.
int32_t ptsan_flushes_done(struct ptsan *san);

// Makes the calling thread stand for the CPU from now on, as when a thread migrates. Where a
// function takes a CPU, `PTSAN_THIS_CPU` means it. A thread that never called this stands for the
// lowest CPU that no thread has.
//
// With `PTSAN_FLAG_BARRIERS` or `PTSAN_FLAG_ACCESSED_DIRTY`, a store that the thread tells is one
// of this CPU.
int32_t ptsan_run_on(struct ptsan *san,
                     int32_t cpu);

// Returns the CPU that the calling thread stands for, or a negative `ptsan_error`.
int32_t ptsan_this_cpu(struct ptsan *san);

// Tells that the CPU loads the root table at physical address `root` (CR3, satp, TTBR) and runs in
// address space `space`, any number. Where every root is a space of its own, its address will do.
//
// Call it only for real loads of the root. Without `PTSAN_FLAG_ASIDS` this drops all entries of
// the CPU except global translations.
int32_t ptsan_switch(struct ptsan *san,
                     int32_t cpu,
                     uint64_t root,
                     uint64_t space);

// Tells that the CPU runs kernel code and keeps the root loaded. Its walker may still walk.
int32_t ptsan_lazy(struct ptsan *san, int32_t cpu);

// Tells that a lazy CPU runs in its space again, without a new load of the root.
int32_t ptsan_resume(struct ptsan *san, int32_t cpu);

// Tells that the CPU loads a root of the kernel alone, which is not under the sanitizer.
int32_t ptsan_leave(struct ptsan *san, int32_t cpu);

// Tells that the CPU loads the root of the upper tree (`TTBR1`), of a sanitizer with
// `PTSAN_FLAG_BOTH_TREES`. Otherwise as `ptsan_switch`, which loads that of the lower tree.
// `space` is the number with which upper addresses are flushed, such as 0.
int32_t ptsan_switch_upper(struct ptsan *san, int32_t cpu, uint64_t root, uint64_t space);

// Tells that the CPU walks the upper tree no more (`TCR_EL1.EPD1`, or the MMU is off). Otherwise
// as `ptsan_leave`, which is about the lower tree.
int32_t ptsan_leave_upper(struct ptsan *san,
                          int32_t cpu);

// Announces an address space. Only needed before a flush of one that no CPU has loaded yet.
int32_t ptsan_space_created(struct ptsan *san, uint64_t space);

// Tells that the address space is gone and its number will not stand for another. Kernels that
// reuse hardware ASIDs must not call it.
int32_t ptsan_space_destroyed(struct ptsan *san, uint64_t space);

// Tells that the CPU invalidates the translations of the page at `va` in a space, and global ones
// (x86 `invlpg`, AArch64 `tlbi vae1`). For a shootdown, tell each CPU's part when that CPU carries
// it out; `PTSAN_EVERY_CPU` is for hardware that broadcasts.
//
// `leaf_only` spares the paging-structure caches where hardware can (AArch64 `vale1`).
int32_t ptsan_flush_page(struct ptsan *san,
                         int32_t cpu,
                         uint64_t space,
                         uint64_t va,
                         bool leaf_only);

// Tells that the CPU invalidates by address in a space at `start`, `start + stride` and so on
// below `end`. All are bytes. CPUs and `leaf_only` as for `ptsan_flush_page`.
int32_t ptsan_flush_range(struct ptsan *san,
                          int32_t cpu,
                          uint64_t space,
                          uint64_t start,
                          uint64_t end,
                          uint64_t stride,
                          bool leaf_only);

// Tells that the CPU invalidates by address in every space, as `ptsan_flush_range` in one (AArch64
// `tlbi vaae1`, RISC-V `sfence.vma` without an ASID). Without `PTSAN_FLAG_ASIDS` a CPU holds one
// space: then this is an x86 `invlpg` where the space is not known.
int32_t ptsan_flush_every_space(struct ptsan *san,
                                int32_t cpu,
                                uint64_t start,
                                uint64_t end,
                                uint64_t stride,
                                bool leaf_only);

// Tells that the CPU invalidates by address in a space, as `ptsan_flush_range`, and names the
// level whose entries map the pages, counted from the leaves (AArch64 with FEAT_TTL): pages of
// level 0 are the smallest. The flush drops no page of another level and no table.
int32_t ptsan_flush_level(struct ptsan *san,
                          int32_t cpu,
                          uint64_t space,
                          uint64_t start,
                          uint64_t end,
                          uint64_t stride,
                          uint8_t level);

// Tells that the CPU invalidates by address in every space, as `ptsan_flush_every_space`, and
// names the level of the pages, as `ptsan_flush_level`.
int32_t ptsan_flush_every_space_level(struct ptsan *san,
                                      int32_t cpu,
                                      uint64_t start,
                                      uint64_t end,
                                      uint64_t stride,
                                      uint8_t level);

// Tells that the CPU invalidates a space except global translations (x86: a reload of CR3).
int32_t ptsan_flush_space(struct ptsan *san, int32_t cpu, uint64_t space);

// Tells that the CPU invalidates everything, global translations too.
int32_t ptsan_flush_all(struct ptsan *san, int32_t cpu);

// Tells that the CPU invalidates by address as `ptsan_flush_range` does, for an exception level of
// AArch64: 1 (`vae1`, `ipas2e1`), 2 (`vae2`) or 3 (`vae3`). It drops nothing of tables of another
// one: see `ptsan_options.exception_level`.
int32_t ptsan_flush_of(struct ptsan *san,
                       int32_t cpu,
                       uint32_t exception_level,
                       uint64_t space,
                       uint64_t start,
                       uint64_t end,
                       uint64_t stride,
                       bool leaf_only);

// Tells that the CPU invalidates everything of an exception level of AArch64 (`vmalle1`, `alle2`,
// `alle3`), as `ptsan_flush_of`.
int32_t ptsan_flush_all_of(struct ptsan *san,
                           int32_t cpu,
                           uint32_t exception_level);

// Tells that the CPU invalidates all that it has cached of stage 1 for the guest that it runs
// (AArch64 `tlbi vmalle1`, `PTSAN_EVERY_CPU` for `vmalle1is`; RISC-V `hfence.vvma` without
// operands; x86 `invvpid` of the guest's number). For sanitizers of stage 2 with
// `PTSAN_FLAG_TWO_STAGES`: on AArch64 a flush by intermediate physical address (`tlbi ipas2e1`)
// does not drop translations that are combined of both stages, so that it has to be followed by
// this one.
int32_t ptsan_stage1_flushed(struct ptsan *san, int32_t cpu);

// Tells that the CPU carries out a barrier, an `enum ptsan_barrier_kind`. Only checked with
// `PTSAN_FLAG_BARRIERS`.
//
// On AArch64 a store is ordered before an invalidation only by a data barrier between them, and
// the invalidation has taken effect only after another one. On RISC-V a store is ordered before
// the `sfence.vma` of another CPU only by a fence. A flush without its barriers counts as missing.
int32_t ptsan_barrier(struct ptsan *san,
                      int32_t cpu,
                      uint32_t barrier);

// Begins an operation that changes tables. Until it ends, an access through an old translation is
// not reported at once: another CPU may use the entries that it holds until the flush has reached
// it.
//
// Only needed where several CPUs work at the same time. Returns the number of the operation for
// `ptsan_operation_ends`, or 0 if the call is refused.
uint64_t ptsan_operation_begins(struct ptsan *san);

// Ends the operation: every CPU that held a page which it unmapped must have flushed it by now.
int32_t ptsan_operation_ends(struct ptsan *san, uint64_t operation);

// Translates an access to `va` as the CPU does: from its TLB, or by a walk that fills its caches.
// An answer that memory no longer gives is a finding. `kind` is `PTSAN_READ`,
// `PTSAN_WRITE` or `PTSAN_EXEC`; `user` says that it is made in user mode.
//
// Returns `PTSAN_OK` and the physical address of the byte in `*phys`, or a positive `ptsan_fault`
// or a negative `ptsan_error`, and then leaves `*phys` alone.
//
// # Safety
// `phys` is NULL, or may be written to.
int32_t ptsan_access(struct ptsan *san,
                     int32_t cpu,
                     uint64_t va,
                     uint32_t kind,
                     bool user,
                     uint64_t *phys);

// Lets the CPU walk speculatively for `va`, as hardware may at any time. It fills the caches and
// raises no fault.
int32_t ptsan_probe_walk(struct ptsan *san,
                         int32_t cpu,
                         uint64_t va);

// Lets the adversary of `ptsan_options.adversary_rate` act now, besides at other calls.
int32_t ptsan_adversary_step(struct ptsan *san);

// Compares the kernel's answer about `va` with the tables of the root that the CPU has loaded.
// `says` is the answer of the kernel's own lookup; NULL means not mapped. A difference is a
// finding.
//
// Returns `PTSAN_OK` if the tables map the address, else the positive `ptsan_fault` of the walk or
// a negative `ptsan_error`.
//
// # Safety
// `says` is NULL, or points at the kernel's answer.
int32_t ptsan_expect(struct ptsan *san,
                     int32_t cpu,
                     uint64_t va,
                     const struct ptsan_expected *says);

// Compares as `ptsan_expect` with the tables of the root at physical address `root`, whether a CPU
// has it loaded or not.
//
// # Safety
// As `ptsan_expect`.
int32_t ptsan_expect_below(struct ptsan *san,
                           uint64_t root,
                           uint64_t va,
                           const struct ptsan_expected *says);

// Tells that the tables at `root` were given the number `space` (ASID, PCID, VMID). From then on a
// load of the root with another number, and of another root with this one, is a finding.
int32_t ptsan_number_given(struct ptsan *san,
                           uint64_t root,
                           uint64_t space);

// Tells that all numbers were taken back (a rollover), except those of roots that CPUs have
// loaded.
int32_t ptsan_numbers_taken_back(struct ptsan *san);

// Tells that the CPU invalidates its entries of stage 1 for space `number` of the guest
// that it runs, at `va` (AArch64 `tlbi vae1`, AMD `invlpga`). It helps against no change of stage
// 2.
int32_t ptsan_stage1_page_flushed(struct ptsan *san,
                                  int32_t cpu,
                                  uint64_t number,
                                  uint64_t va);

// Translates an access of a guest to `va`, in its space `number`, that stage 1 has translated to
// the guest-physical address `gpa`. The CPU caches it as one, combined of both stages. `kind`,
// `phys` and the result are those of `ptsan_access`.
//
// # Safety
// `phys` is NULL, or may be written to.
int32_t ptsan_access_combined(struct ptsan *san,
                              int32_t cpu,
                              uint64_t number,
                              uint64_t va,
                              uint64_t gpa,
                              uint32_t kind,
                              uint64_t *phys);

// Returns the number by which other functions name device `device`, counted from 0
// (`ptsan_options.devices`), in place of a CPU. Negative: a `ptsan_error`.
//
// `ptsan_switch` attaches a device to the tables at a root, under the number of a domain or a
// PASID, and `ptsan_leave` detaches it; its caches survive both. `ptsan_access` is an
// access of the device. `ptsan_flush_page` and its like are invalidations that are over when they
// return. `PTSAN_EVERY_CPU` is no device.
int32_t ptsan_device(struct ptsan *san,
                     uint32_t device);

// Tells that an invalidation of `start`, `start + stride` and so on below `end` in a domain was
// put into the queue of a device. It helps when `ptsan_queue_completed` says that it was waited
// for, and only against earlier stores.
int32_t ptsan_queue_range(struct ptsan *san,
                          int32_t device,
                          uint64_t space,
                          uint64_t start,
                          uint64_t end,
                          uint64_t stride,
                          bool leaf_only);

// Tells that an invalidation of a range that names the level of its pages was put into the queue
// of a device (SMMUv3 commands with TTL): see `ptsan_queue_range` and `ptsan_flush_level`.
int32_t ptsan_queue_level(struct ptsan *san,
                          int32_t device,
                          uint64_t space,
                          uint64_t start,
                          uint64_t end,
                          uint64_t stride,
                          uint8_t level);

// Tells that an invalidation of a domain was put into the queue of a device: see
// `ptsan_queue_range`.
int32_t ptsan_queue_space(struct ptsan *san, int32_t device, uint64_t space);

// Tells that an invalidation of everything was put into the queue of a device: see
// `ptsan_queue_range`.
int32_t ptsan_queue_all(struct ptsan *san, int32_t device);

// Tells that the kernel has waited until a device carried out all of its queue: a wait
// descriptor's status was written (VT-d), `COMPLETION_WAIT` has stored (AMD), `CMD_SYNC` is
// consumed (SMMU).
int32_t ptsan_queue_completed(struct ptsan *san, int32_t device);

// Tells that a device reads the entry of `bytes` bytes (8, 16, 32, 64) at `phys` from now on: a
// context entry, a PASID entry, a device-table entry, a stream-table entry. It is valid if any bit
// of `valid_bits` is set in its word `valid_word`, of 8 bytes.
int32_t ptsan_device_entry(struct ptsan *san,
                           int32_t device,
                           uint64_t phys,
                           uint8_t bytes,
                           uint8_t valid_word,
                           uint64_t valid_bits);

// Tells that bytes of such an entry were stored to at `phys`, by one instruction: call it once for
// each. A valid entry that is changed in pieces is torn.
int32_t ptsan_device_entry_written(struct ptsan *san,
                                   uint64_t phys);

// Tells that a device forgot the entry at `phys`, or with `PTSAN_ALL_ENTRIES` all of its entries.
// Its cached tables are another matter.
int32_t ptsan_device_entries_flushed(struct ptsan *san,
                                     int32_t device,
                                     uint64_t phys);

// Tells that software begins to walk the tables at `root` without their lock: a fast
// `get_user_pages`, a profiler. Until it ends, a table that it may have reached is not to be
// freed.
//
// Returns the number of the reader, or 0 if the call is refused.
uint64_t ptsan_reader_begins(struct ptsan *san, uint64_t root);

// Tells that a reader reads an entry of the table at `table`. Only needed where stores are not
// told.
int32_t ptsan_reader_reads(struct ptsan *san, uint64_t reader, uint64_t table);

// Tells that a reader has ended.
int32_t ptsan_reader_ends(struct ptsan *san, uint64_t reader);

// Tells that lock `lock`, any number, guards the entries of the table at `table` and of all tables
// below it that have no lock of their own. With `flush_first`, flushes of changes under the lock
// have to be over when it is released.
int32_t ptsan_lock_guards(struct ptsan *san,
                          uint64_t table,
                          uint64_t lock,
                          bool flush_first);

// Tells that the CPU has taken a lock, alone or `shared` with others. Under a lock that is held
// shared, entries are exchanged (`ptsan_entry_exchanged`).
int32_t ptsan_lock_taken(struct ptsan *san, int32_t cpu, uint64_t lock, bool shared);

// Tells that the CPU is about to release a lock.
int32_t ptsan_lock_released(struct ptsan *san, int32_t cpu, uint64_t lock);

// Tells that the CPUs look pages up in the hash table of `bytes` bytes at `phys`, a multiple of
// its size, from now on. `layout` is an `enum ptsan_hash_layout`. For `PTSAN_ARCH_POWERPC`.
int32_t ptsan_hash_table(struct ptsan *san, uint64_t phys, uint64_t bytes, uint32_t layout);

// Tells which virtual segments (VSIDs) a space has, whose tree has its root at `root`: 16 numbers
// at `vsids`. Call it before the space is loaded, and again when its segments change.
//
// # Safety
// `vsids` is NULL, which is refused, or points at 16 numbers.
int32_t ptsan_segments(struct ptsan *san,
                       uint64_t space,
                       uint64_t root,
                       const uint64_t *vsids);

// Tells that the entry of the hash table that holds the byte at `phys` was stored to. Optional:
// without it, an entry of the hash table is checked when a CPU finds it.
int32_t ptsan_hash_written(struct ptsan *san, uint64_t phys);

// Checks all entries of the hash table. Returns how many are valid, or `PTSAN_NONE`. Call it when
// no flush is under way.
uint64_t ptsan_check_hash_table(struct ptsan *san);

// Returns the memory of a sanitizer made by `ptsan_watch_new`, for the kernel to keep its tables
// in, or NULL. It goes when the sanitizer is destroyed.
void *ptsan_watch_base(struct ptsan *san);

// Runs `code(user)` with every store to the memory seen, also those of other threads. Each store
// is checked before the next instruction, so `ptsan_entry_written` is not needed. A store takes
// microseconds. Calls may be nested.
//
// System calls do not write to the memory meanwhile: they fail with EFAULT. `code` calls the other
// functions as usual.
//
// # Safety
// `code` is NULL, which is refused, or keeps to `ptsan_code`.
int32_t ptsan_watch_run(struct ptsan *san,
                        ptsan_code code,
                        void *user);

// Runs `code(user)` as kernel code of the CPU, with every store seen as by `ptsan_watch_run`. The
// privileged instructions of page-table code (`invlpg`, `invpcid`, `mov` to and from CR0, CR2, CR3
// and CR4, `rdmsr`, `wrmsr`, `wbinvd`, `cli`, `sti`) are emulated, and tell of loads of the root
// and of flushes. So no other hook than those of frames is needed. Without `PTSAN_FLAG_ASIDS` a
// space is known by the physical address of its root, otherwise by its PCID.
//
// The calling thread stands for the CPU meanwhile. Calls may be nested, for other CPUs too: so a
// test plays an interrupt.
//
// Returns `PTSAN_OK` if the code returned, `PTSAN_HALTED` if it executed `hlt`, and an error if an
// instruction was refused, which ends the run, or if another thread stands for the CPU.
//
// # Safety
// 1. `code` is NULL, which is refused, or keeps to `ptsan_code`, except that it may end with
//    `hlt`.
// 2. A run that is ended abandons its frames, as `longjmp` does: between the call of `code` and
//    the instruction there are only frames that may be abandoned, such as those of C.
// 3. The code does not depend on other effects of an instruction, such as memory that appears when
//    CR3 is loaded.
int32_t ptsan_watch_run_on(struct ptsan *san,
                           int32_t cpu,
                           ptsan_code code,
                           void *user);

// Runs `code(user)` with stores not seen, of all threads: for bulk work, such as clearing a pool
// of frames. It may be called inside `ptsan_watch_run`.
//
// # Safety
// As `ptsan_watch_run`.
int32_t ptsan_watch_unseen(struct ptsan *san,
                           ptsan_code code,
                           void *user);

// Returns the number of stores seen, or `PTSAN_NONE`.
uint64_t ptsan_watch_stores(struct ptsan *san);

// Marks a file or a function of the test as harness: hooks, allocators of frames, drivers. Reports
// leave it out and name the first caller outside, for findings that are made from now on.
//
// A pattern with a `/` or a `.` is the end of a file's path, in whole components: `"hooks.h"`,
// `"host/hooks.h"`, `"tests/"` for all files in such a directory, `__FILE__`. Another pattern is
// the name of a function. A `*` stands for anything: `"hw_*"`. It is copied, and a pattern that is
// marked again has no effect, so that a hook may begin with `PTSAN_HARNESS(san)`.
//
// # Safety
// `pattern` is NULL, which is refused, or a string.
int32_t ptsan_mark_harness(struct ptsan *san,
                           const char *pattern);

// Lets every function of this library call `code(user)` first, on the calling thread, before it
// takes the sanitizer's lock. For harnesses that learn of a store before it is made, such as
// `ptsan_stores.c`: they tell of it here, so that no flush overtakes it. Calls that `code` makes
// itself do not call it again. NULL ends that.
//
// # Safety
// `code` is NULL or keeps to `ptsan_code`, on every thread, until it is replaced and the calls
// under way have returned.
int32_t ptsan_before_calls(struct ptsan *san,
                           ptsan_code code,
                           void *user);

// Returns the number of findings so far, repetitions included, or `PTSAN_NONE`.
uint64_t ptsan_total(struct ptsan *san);

// Returns the number of findings of a kind so far, repetitions included, or `PTSAN_NONE`. `kind`
// is a name, such as "stale-use"; one that does not exist is refused.
//
// # Safety
// `kind` is NULL, which is refused, or a string.
uint64_t ptsan_count(struct ptsan *san,
                     const char *kind);

// Returns the name of the kind of findings with this index, the worst first, or NULL after the
// last. The string lives forever.
const char *ptsan_kind_name(size_t index);

// Returns the number of suppressed findings, which count nowhere else, or `PTSAN_NONE`.
uint64_t ptsan_allowed(struct ptsan *san);

// Returns the number of refused calls, or `PTSAN_NONE`.
uint64_t ptsan_refused(struct ptsan *san);

// Returns the number of tables that are allocated now, or `PTSAN_NONE`.
uint64_t ptsan_live_tables(struct ptsan *san);

// Returns the number of flushes that CPUs owed beyond `ptsan_options.debts`, which were not
// checked, or `PTSAN_NONE`.
uint64_t ptsan_debts_dropped(struct ptsan *san);

// Writes the finding with this index, in the order in which they were made, to `*finding`. Returns
// false after the last finding kept, or if the call is refused, and then leaves it alone:
// `for (size_t i = 0; ptsan_finding_at(san, i, &finding); i++)`
//
// # Safety
// `finding` is NULL, which is refused, or may be written to.
bool ptsan_finding_at(struct ptsan *san,
                      size_t index,
                      struct ptsan_finding *finding);

// Prints the finding with this index: kind, place, history of the frame, callers. Returns a string
// for `ptsan_free_text`, or NULL as `ptsan_finding_at` returns false.
char *ptsan_finding_text(struct ptsan *san,
                         size_t index);

// Prints the report: counts, all findings kept, and the refused calls. The environment variable
// `PTSAN_FORMAT` chooses the format of the findings; the rest of the report is text. Returns a
// string for `ptsan_free_text`, or NULL if the call is refused.
char *ptsan_report(struct ptsan *san);

// Prints the findings in a format, an `enum ptsan_format`, whatever the environment variable
// `PTSAN_FORMAT` says. Refused calls are not in it: see `ptsan_refused`. Returns a string for
// `ptsan_free_text`, or NULL if the call is refused.
char *ptsan_report_as(struct ptsan *san, uint32_t format);

// Prints the counts of the findings in one sentence, and how to repeat the run if an adversary
// took part. Returns a string for `ptsan_free_text`, or NULL if the call is refused.
char *ptsan_summary(struct ptsan *san);

// Frees a string that this library gave for it. NULL is legal.
//
// # Safety
// `text` is NULL or came from a function that names this one, and was not freed before.
void ptsan_free_text(char *text);

// Ends the run: tables that were not freed are leaks, flushes that CPUs still owe are findings as
// by `ptsan_flushes_done`, and the report lists suppressions that were not needed. Calls after the
// first have no effect.
int32_t ptsan_finish(struct ptsan *san);

// Ends a test: finishes the run, prints the report to standard error if there is anything to say,
// and destroys the sanitizer.
//
// Returns the number of findings and refused calls, at most 100, as the exit code of `main`. It is
// 0 only if a sanitizer was there and has no finding.
int32_t ptsan_end(struct ptsan *san);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PTSAN_H */
