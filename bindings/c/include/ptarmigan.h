/*
 * ptarmigan: page-table memory for kernels in C.
 *
 * One configuration for each target: x86-64, AArch64 (4 KiB, 48 bits) and RISC-V (Sv48) with four
 * levels and all memory in a direct map; i386 with PAE, a direct map of low memory and slots for
 * the rest (pt_kmap).
 *
 * The caller allocates every object. Set it to zero before its first use, leave it where it is, and
 * do not look into it. No function allocates from a heap, and none sleeps.
 *
 * Functions return PT_OK or a negative enum pt_error, unless they say so. What can be checked
 * cheaply is an error: NULL and misaligned pointers, objects that are not initialised or were
 * moved, pages that came from elsewhere or were given back before. What cannot be checked is under
 * "Safety": a call that breaks it may do anything.
 *
 * A struct pt_cpu stands for being on that CPU. Code that hands it to a function runs there and is
 * not preempted until the function returns. The handler of an interrupt calls pt_cpu_serve and
 * nothing else.
 *
 * While a call makes or ends an object, no other call names that object. While a call hands out,
 * maps or takes back a page, no other call names that page. The checks take no turns, so they do
 * not find two such calls.
 */

#ifndef PTARMIGAN_H
#define PTARMIGAN_H

/* Generated from the Rust source by tests/header.rs; changes here are lost. */

#include <stddef.h>
#include <stdint.h>
#if !defined(__GNUC__)
#error "ptarmigan.h needs __attribute__((aligned)): gcc or clang"
#endif
#define PT_ALIGNED(n) __attribute__((aligned(n)))

// The result of functions that succeeded. Errors are negative, see `enum pt_error`.
#define PT_OK 0

#if !defined(__i386__)
// The number of levels of a tree. Level 0 are the tables that hold pages; the root is the highest.
#define PT_LEVELS 4
#endif

#if defined(__i386__)
// The number of levels of a tree. Level 0 are the tables that hold pages; the root is the highest.
#define PT_LEVELS 3
#endif

#if (defined(__x86_64__) || defined(__riscv))
// The first address that is not the user's.
#define PT_USER_END 140737488355328
#endif

#if defined(__i386__)
// The first address that is not the user's.
#define PT_USER_END 3221225472
#endif

#if defined(__aarch64__)
// The first address that is not the user's.
#define PT_USER_END 281474976710656
#endif

#if (defined(__x86_64__) || defined(__i386__))
// The value of `IA32_PAT` (0x277) with which memory types are what they are called. The kernel
// loads it on each CPU.
#define PT_MEMORY_TYPES 290206224317088006
#endif

#if defined(__aarch64__)
// The value of `MAIR_EL1` with which memory types are what they are called. The kernel loads it on
// each CPU.
#define PT_MEMORY_TYPES 3141797119
#endif

// The bytes of a page.
#define PT_PAGE_SIZE 4096

// An entry of a table of each level maps `1 << PT_LEVEL_BITS` times as much as one of the level
// below.
#define PT_LEVEL_BITS 9

// With `largest` of `pt_tree_map_range_large`: groups, too. Entries of 16 pages that follow each
// other, or of 16 large pages, have a hint there with which the MMU may keep them as one. AArch64
// alone.
#define PT_GROUPS 256

// The most runs of memory.
#define PT_MAX_RUNS 32

// Words of 8 bytes in a `pt_machine`.
#define PT_MACHINE_WORDS 384

// Words of 8 bytes in a `pt_cpu`.
#define PT_CPU_WORDS 16

// Words of 8 bytes in a `pt_tree`.
#define PT_TREE_WORDS 32

// Words of 8 bytes in a `pt_space`.
#define PT_SPACE_WORDS 24

// Words of 8 bytes in a `pt_gather`.
#define PT_GATHER_WORDS 64

// Why a call was refused. A refused call has no effect, unless its function says so.
// `pt_error_text` says more.
enum pt_error {
    // A pointer is NULL where it must not be, or misaligned.
    PT_ERROR_POINTER = -1,
    // The object was not initialised, has ended, was copied or moved, or is of another kind. Or it
    // is to be initialised and is neither zero nor ended.
    PT_ERROR_OBJECT = -2,
    // An argument has no meaning.
    PT_ERROR_ARGUMENT = -3,
    // `config.size` is not the library's: header and library are of different versions.
    PT_ERROR_SIZE = -4,
    // The boot memory is smaller than `pt_machine_bytes` says.
    PT_ERROR_BOOT_MEMORY = -5,
    // The runs of memory are empty, not in order, overlap each other or something that the library
    // was told of, or are of nodes that are not numbered from 0 without gaps.
    PT_ERROR_RUNS = -6,
    // There is no free frame.
    PT_ERROR_NO_MEMORY = -7,
    // An address is beyond those that the call is for, or not at the border of a page.
    PT_ERROR_RANGE = -8,
    // Something is mapped there already.
    PT_ERROR_MAPPED = -9,
    // No page is mapped there.
    PT_ERROR_NOT_MAPPED = -10,
    // The page did not come from the library, or not from the function that goes with this one.
    PT_ERROR_FOREIGN = -11,
    // The page was given back already, or waits in a gather for its flush.
    PT_ERROR_FREED = -12,
    // The page is mapped, the space is loaded, gathers are open, or frames are out.
    PT_ERROR_IN_USE = -13,
    // The table was written to, so that a TLB may know it: give it to a gather.
    PT_ERROR_UNFLUSHED = -14,
    // The table is not zero: note each entry that is written, or clear it.
    PT_ERROR_DIRTY = -15,
    // The CPU is in the middle of a flush, a switch, or another call for the same object.
    PT_ERROR_BUSY = -16,
    // The objects are of different machines.
    PT_ERROR_MACHINE = -17,
    // No slot of the window for high memory is free.
    PT_ERROR_NO_SLOT = -18,
    // Pages of this architecture cannot have the memory type.
    PT_ERROR_MEMORY_TYPE = -19,
    // Pages are not mapped as one large page would map them.
    PT_ERROR_DIFFERS = -20,
    // `config.kernel_root` is 0, not at the border of a root, or beyond the direct map.
    PT_ERROR_KERNEL_ROOT = -21,
    // `config.direct_map` or `config.direct_map_end` is not at the border of a page.
    PT_ERROR_DIRECT_MAP = -22,
    // An entry of the kernel's half of `config.kernel_root` is neither 0, nor a link, nor a page
    // of the kernel's.
    PT_ERROR_KERNEL_ENTRY = -23,
    // `config.kernel_root` does not map `config.direct_map` to the memory of `config.runs`: the
    // direct map is elsewhere, or the root is of another number of levels or format.
    PT_ERROR_WINDOW_SHOWS = -24,
};

// Permissions of a page, combined with `|`.
enum pt_attr {
    // It may be read. A page without permissions is not present for the MMU and keeps its frame.
    // Pages that may be written and not read are refused; those that may be executed and not read,
    // where the format has none.
    PT_ATTR_READ = 1,
    // It may be written.
    PT_ATTR_WRITE = 2,
    // Instructions may be fetched.
    PT_ATTR_EXEC = 4,
    // The user may use it.
    PT_ATTR_USER = 8,
    // The MMU has used it. Only in answers. AArch64 and RISC-V: set from the beginning, so that
    // MMUs that leave it to software do not fault.
    PT_ATTR_ACCESSED = 32,
    // The MMU has written through it. Only in answers. AArch64 and RISC-V: set from the beginning
    // for pages that may be written.
    PT_ATTR_DIRTY = 64,
    // Not cached; writes are collected, and may be reordered: buffers of pictures. This and the
    // next three are memory types, of which a page has one: two combined stand for another one.
    // Without one it is usual memory, which is written back. `PT_ERROR_MEMORY_TYPE` for a type
    // that pages cannot have: AArch64 has no `PT_ATTR_UNCACHED`, and RISC-V, where not every hart
    // has types, none of them. They stand for `PT_MEMORY_TYPES` in `IA32_PAT` or `MAIR_EL1` of
    // each CPU. Lines of a frame that is cached are written back and invalidated by the caller,
    // before it is mapped with another type.
    PT_ATTR_WRITE_COMBINING = 4096,
    // Not cached, and in order, unless an MTRR says otherwise. x86 alone.
    PT_ATTR_UNCACHED = 8192,
    // Registers of a device: each access is made once and in order.
    PT_ATTR_DEVICE = 12288,
    // Cached; writes go to memory as well.
    PT_ATTR_WRITE_THROUGH = 28672,
};

// A run of physical memory that the library manages from now on.
struct pt_run {
    // The physical address of its first byte, at the border of a page and not 0.
    uint64_t start;
    // Its bytes, whole pages.
    uint64_t bytes;
    // Its NUMA node, from 0.
    uint32_t node;
};

// Called with `pt_hooks.context`, the calling CPU and an address: see the member.
typedef void (*pt_address_hook)(void *context, uint32_t cpu, uint64_t address);

// Called with `pt_hooks.context` and the calling CPU: see the member.
typedef void (*pt_hook)(void *context, uint32_t cpu);

// Called with `pt_hooks.context`, the calling CPU, and the physical address and number of pages:
// see the member.
typedef void (*pt_frames_hook)(void *context, uint32_t cpu, uint64_t phys, uint64_t pages);

// Called with `pt_hooks.context`, the calling CPU and another number: see the member.
typedef void (*pt_number_hook)(void *context, uint32_t cpu, uint32_t number);

// Called when the library has found itself in a state that cannot be: text without a 0 at its end,
// and where in the library's source. It must not return; if it does, the CPU executes an undefined
// instruction.
typedef void (*pt_panic_hook)(void *context,
                              const char *text,
                              size_t length,
                              const char *file,
                              size_t file_length,
                              uint32_t line);

// The kernel's functions for the library. Every function acts on the CPU that it is called on,
// must not be left by `longjmp`, and calls no function of the library but `pt_cpu_serve`. It
// brings its own barriers: a walk after it finds the CPU's earlier stores to tables, and later
// accesses use no translation that it drops.
struct pt_hooks {
    // Passed to all of them.
    void *context;
    // Loads the root at the physical address: CR3, TTBR0_EL1 or satp. Afterwards the TLB may hold
    // global translations only: numbers of address spaces are not used.
    pt_address_hook load_root;
    // Drops the page at the address, global or not. x86: INVLPG, which drops all paging-structure
    // caches as well. AArch64: TLBI VAAE1, which drops those on the way to the address. RISC-V:
    // SFENCE.VMA with an address and without a number.
    //
    // AArch64 and RISC-V: called for pages that have become valid, too, as the TLB may know that
    // they were not.
    pt_address_hook invalidate_page;
    // Drops everything that is not global, paging-structure caches included. x86: loads CR3 with
    // its own value.
    pt_hook invalidate_all;
    // Drops everything, global pages too. x86: CR4.PGE off and on. If no page is global, as
    // `invalidate_all`.
    pt_hook invalidate_global;
    // The frames are about to be executable in a tree: called before the entry is written that
    // lets instructions be fetched, and after the library has written to the frames. Instruction
    // caches that do not see stores are made to agree here, on all CPUs. The frames need not be
    // the library's. Not called for pages of a kernel's own tree.
    //
    // May be NULL on x86, whose instruction caches see stores; nowhere else.
    pt_frames_hook before_executable;
    // Interrupts the CPU with the number. Its handler calls `pt_cpu_serve`. May be NULL if there
    // is one CPU.
    pt_number_hook send_ipi;
    // One turn, counted from 1, of a wait for other CPUs. May be NULL. A watchdog belongs here:
    // the library waits for ever.
    pt_number_hook wait;
    // See `pt_panic_hook`.
    pt_panic_hook panic;
};

// A kernel's description of its machine. Set all members to zero, then those that matter.
struct pt_config {
    // `sizeof(struct pt_config)`.
    size_t size;
    // Memory for the library's own arrays, `pt_machine_bytes` bytes or more. It is in no run.
    void *boot_memory;
    // Bytes of it.
    size_t boot_bytes;
    // The memory to manage, ascending.
    const struct pt_run *runs;
    // How many runs.
    size_t run_count;
    // Where physical address 0 is mapped in every space, at the border of a page.
    void *direct_map;
    // The first physical address that is not mapped there. Memory behind it in runs is high memory
    // on i386, and refused elsewhere.
    uint64_t direct_map_end;
    // The physical address of a root whose user half is empty. New roots copy its kernel half, and
    // a CPU that runs in no space has it loaded. It lies in the direct map and in no run. AArch64:
    // all of it is the user's; the kernel's own root is in TTBR1_EL1, and none of the library's.
    uint64_t kernel_root;
    // 1 if no hardware walks the tables: a test in a program, an emulator. 0 in a kernel: then
    // `pt_machine_init` walks `kernel_root` and refuses one that does not map `direct_map` to the
    // memory of `runs`.
    uint32_t hosted;
    // The number of CPUs, 1 to 256.
    uint32_t cpus;
    // Each CPU looks at the content of each so-many-th table that is given back: 1 looks at all, 0
    // never looks. 255 costs a tenth of a pair.
    uint32_t verify_every;
    // i386: the tables of the window for high memory, one after the other, in the direct map and
    // linked in the kernel's half of `kernel_root`. NULL if there is no window. The kernel does
    // not write to them, and no TLB holds a page of the window.
    uint64_t *kmap_tables;
    // i386: where the window begins.
    void *kmap_base;
    // i386: its pages, at most 512 for each table, and 65,536.
    uint32_t kmap_slots;
    // The kernel's functions for the library.
    struct pt_hooks hooks;
};

// A machine: its memory, its lists of table pages, its TLBs. Zero before `pt_machine_init`; not
// moved between that and `pt_machine_exit`.
struct PT_ALIGNED(64) pt_machine {
    // The library's.
    uint64_t opaque[PT_MACHINE_WORDS];
};

// A CPU of a machine. Zero before `pt_cpu_init`; not moved between that and `pt_cpu_exit`.
//
// It stands for being on the CPU: code that hands it to a function runs on that CPU and is not
// preempted until the function returns.
struct PT_ALIGNED(64) pt_cpu {
    // The library's.
    uint64_t opaque[PT_CPU_WORDS];
};

// A tree of tables, of one space. Zero before `pt_tree_init`; not moved between that and
// `pt_tree_exit`.
//
// Calls for one tree take turns: a CPU waits for the calls of others, and answers their requests
// meanwhile. From a callback, or from the handler of an interrupt that came in between, a call for
// the same tree returns `PT_ERROR_BUSY`.
struct PT_ALIGNED(64) pt_tree {
    // The library's.
    uint64_t opaque[PT_TREE_WORDS];
};

// A page of a tree, a large page, or a group of either that the MMU may keep as one: where it is
// mapped to and its permissions.
struct pt_page {
    // Its first address.
    uint64_t va;
    // The physical address of its first frame. The others follow it.
    uint64_t phys;
    // Its bytes: `PT_PAGE_SIZE << level * PT_LEVEL_BITS`, more for a group.
    uint64_t bytes;
    // Values of `enum pt_attr`, combined with `|`.
    uint32_t attr;
    // The level of the table that has its entry: 0 for a page of `PT_PAGE_SIZE`, more for a large
    // page.
    uint32_t level;
};

// Called for a page with the pointer passed beside it. It may call functions for other objects.
typedef void (*pt_visit)(void *context, const struct pt_page *page);

// The CPUs' use of a space whose tables are the kernel's own. Zero before `pt_space_init`; not
// moved between that and `pt_space_exit`.
struct PT_ALIGNED(64) pt_space {
    // The library's.
    uint64_t opaque[PT_SPACE_WORDS];
};

// The tables and frames that an operation has unlinked so far. Zero before `pt_gather_begin`; not
// moved between that and `pt_gather_finish`. Usually a local of the operation.
struct PT_ALIGNED(64) pt_gather {
    // The library's.
    uint64_t opaque[PT_GATHER_WORDS];
};

// The counts of a machine. Exact when no CPU is in a call. While no gather is open, `frames` is
// the sum of `free_frames`, `tables`, `cached_tables`, `pages`, `cached_pages` and `own_frames`.
struct pt_counts {
    // Frames under management.
    uint64_t frames;
    // Frames that are free: not in use, and not resting in a list.
    uint64_t free_frames;
    // Tables in use. i386: without roots, which are smaller than a page.
    uint64_t tables;
    // Table pages that rest in lists.
    uint64_t cached_tables;
    // Frames of `pt_page_alloc` in use, mapped or not. One that waits in a gather is no more.
    uint64_t pages;
    // Frames for data that rest in lists of CPUs.
    uint64_t cached_pages;
    // Frames that the library has for itself: the tables of the kernel's half, and on i386 those
    // that hold roots.
    uint64_t own_frames;
    // Table pages that were handed out from a list or an allocator.
    uint64_t allocs;
    // Of these, the ones that came from the allocator.
    uint64_t misses;
    // Flushes of one page of a space, of several, of a whole space, and of the kernel's half.
    uint64_t flushes[4];
    // CPUs that were asked by others to forget something.
    uint64_t ipis;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns how much boot memory a machine needs, in bytes, whole pages; 0 if the configuration is
// refused, for which `pt_machine_init` says why. `boot_memory` and `boot_bytes` need not be known
// yet.
//
// # Safety
//
// `config` is NULL or points to a configuration, and its `runs` to `run_count` runs.
size_t pt_machine_bytes(const struct pt_config *config);

// Sets a machine up. One CPU calls it, before all other calls.
//
// Fails with `PT_ERROR_SIZE` if the header is of another version, `PT_ERROR_RUNS`,
// `PT_ERROR_BOOT_MEMORY`, `PT_ERROR_RANGE` for addresses that are not at the border of a page or
// behind the direct map, `PT_ERROR_POINTER` for a function or a pointer that is missing,
// `PT_ERROR_ARGUMENT` for numbers, and `PT_ERROR_OBJECT` if `machine` is neither zero nor ended.
//
// Before it writes, it walks the kernel's half of `kernel_root`: `PT_ERROR_KERNEL_ENTRY` is for an
// entry that is not one of a kernel's half. Unless `hosted` says that no hardware walks it, it is
// `PT_ERROR_WINDOW_SHOWS` if the root does not map `direct_map` to each run, for the kernel alone
// and to be written to. On AArch64 the kernel has another root, and no walk is made.
// The memory is the caller's again after an error.
//
// # Safety
//
// - `machine` is NULL or points to a `struct pt_machine`, which stays where it is and is left
//   alone until `pt_machine_exit`; as long as that, the boot memory and the runs are the
//   library's.
// - `config` is NULL or points to a configuration that is true: memory below `direct_map_end` that
//   is in runs, the boot memory and the kernel's root are mapped from `direct_map` on in every
//   space, and reached in no other way by code in C; the kernel's half of the root is the kernel's
//   alone, its tables stay for ever, and its user's half is empty; the functions do as their
//   members say.
int32_t pt_machine_init(struct pt_machine *machine,
                        const struct pt_config *config);

// Ends a machine whose CPUs have all ended. Its boot memory and its runs are the caller's again.
//
// Fails with `PT_ERROR_IN_USE` if a CPU has not ended or frames are still out: `*missing` is how
// many. The machine stays as it was then.
//
// # Safety
//
// - `machine` is NULL or points to a `struct pt_machine`, and no other code uses it any more.
// - `missing` is NULL or may be written.
int32_t pt_machine_exit(struct pt_machine *machine,
                        uint64_t *missing);

// Makes the object of CPU `number`, from 0, of NUMA node `node`.
//
// Fails with `PT_ERROR_ARGUMENT` if the machine has no such CPU or node, and with
// `PT_ERROR_IN_USE` if the CPU has an object.
//
// # Safety
//
// - `cpu` is NULL or points to a `struct pt_cpu`, which stays where it is and is left alone until
//   `pt_cpu_exit`.
// - `machine` is NULL or points to a `struct pt_machine`.
// - From here on only code that runs on that CPU, and is not preempted meanwhile, hands the object
//   to functions. Handlers of interrupts hand it to `pt_cpu_serve` and to no other function.
int32_t pt_cpu_init(struct pt_cpu *cpu,
                    const struct pt_machine *machine,
                    uint32_t number,
                    uint32_t node);

// Gives back all that the CPU holds, and ends it: before it goes offline, and before the machine
// ends. The last CPU gives back the pages that rest for all of them.
//
// Fails with `PT_ERROR_IN_USE` while one of its gathers has not finished.
//
// # Safety
//
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU, which is in no other call:
//   no callback calls this.
// - The CPU has left every space: others would wait for its answer.
int32_t pt_cpu_exit(struct pt_cpu *cpu);

// Answers the requests of other CPUs: the handler of the interrupt that `send_ipi` causes calls
// it. It may be called at any moment, costs a few loads if no CPU asks, and is the only function
// that a handler may call.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_cpu_serve(struct pt_cpu *cpu);

// Does a bounded amount of work for an idle CPU: trims its lists, and clears up to `budget` free
// frames ahead of their use. Returns how many it cleared, or an error. An idle loop calls it until
// it returns 0; 16 frames are some 10 microseconds. On a machine with high memory it returns 0.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_cpu_idle(struct pt_cpu *cpu,
                    uint32_t budget);

// Returns why the last function on this CPU that returns a pointer or a physical address returned
// NULL or 0; `PT_OK` if no function has.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_cpu_error(const struct pt_cpu *cpu);

// Returns a page for a table of `level`, at its address in the direct map: all zero, or for a root
// with the kernel's half in place. If there is no page, returns NULL, and `pt_cpu_error` says why.
//
// A hit takes no lock and does not clear the page: it came back as it is. `level` is 0 for tables
// that hold pages, and below `PT_LEVELS`. On i386 roots are smaller than a page, and are made by
// `pt_tree_init` only: `PT_ERROR_ARGUMENT`.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
void *pt_quicklist_alloc(struct pt_cpu *cpu,
                         uint32_t level);

// Gives back a page that was never linked, or that no CPU can reach any more: no flush takes
// place. The page is as it was handed out.
//
// Fails, and does not take the page, with `PT_ERROR_POINTER` if `page` is not the beginning of a
// page, `PT_ERROR_FOREIGN` if it did not come from `pt_quicklist_alloc`, `PT_ERROR_FREED` if it
// was given back before or waits in a gather, `PT_ERROR_UNFLUSHED` if `pt_table_touched` was told
// of an entry in it, and `PT_ERROR_DIRTY` if its content was looked at (`verify_every`) and
// something is left.
//
// # Safety
//
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
// - Neither code nor an MMU uses a page that came from `pt_quicklist_alloc` any more, and its
//   content is as it was.
int32_t pt_quicklist_free(struct pt_cpu *cpu,
                          void *page);

// Tells that the entry at `entry`, in a page of `pt_quicklist_alloc`, is about to be written to
// something that is not 0. Mostly a neighbour came before, and it costs a load and a comparison.
//
// `pt_gather_table` clears the reported entries only. So an entry that is cleared need not be
// told, and the table need not be cleared.
//
// Fails with `PT_ERROR_FOREIGN` or `PT_ERROR_FREED` for another page, and with `PT_ERROR_RANGE`
// for an entry of the kernel's half of a root.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_table_touched(struct pt_cpu *cpu,
                         const void *entry);

// Gives back pages that rest in the lists of the CPU's node to the allocator: while more than
// `min_pages` rest, up to `max_free`. Returns how many, or an error. For when memory is short;
// idle CPUs (`pt_cpu_idle`) and the end of gathers trim by themselves.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int64_t pt_quicklist_trim(struct pt_cpu *cpu, uint64_t min_pages, uint64_t max_free);

// Returns how many pages rest in the lists of all CPUs and nodes; 0 for an object that is no
// machine.
//
// # Safety
//
// `machine` is NULL or points to a `struct pt_machine` that does not end meanwhile.
uint64_t pt_quicklist_total_size(const struct pt_machine *machine);

// Returns the physical address of a frame for data, all zero. If there is no frame, returns 0, and
// `pt_cpu_error` says why. On i386 it is mostly high memory: `pt_kmap` shows it.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
uint64_t pt_page_alloc(struct pt_cpu *cpu);

// Gives back a frame that is mapped nowhere.
//
// Fails, and does not take the frame, with `PT_ERROR_RANGE` if the address is not that of a page,
// `PT_ERROR_FOREIGN` if it did not come from `pt_page_alloc`, `PT_ERROR_FREED` if it was given
// back before or waits in a gather, and `PT_ERROR_IN_USE` if a tree maps it: then the tree's unmap
// gives it back, after the flush.
//
// # Safety
//
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
// - A frame that came from `pt_page_alloc` is not used any more, and no TLB knows it: one that was
//   mapped in a kernel's own tree goes to `pt_gather_page`.
int32_t pt_page_free(struct pt_cpu *cpu,
                     uint64_t phys);

// Returns an address at which a frame of `pt_page_alloc` can be read and written, on all CPUs,
// until `pt_kunmap`. If there is no address, returns NULL, and `pt_cpu_error` says why:
// `PT_ERROR_NO_SLOT` if the window for high memory is full.
//
// Low frames, and all frames on x86-64, are found in the direct map. A high frame that is mapped
// several times has one address.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
void *pt_kmap(struct pt_cpu *cpu,
              uint64_t phys);

// Ends a use of a frame that `pt_kmap` has mapped, without a flush. A frame need not be unmapped
// on the CPU that mapped it.
//
// Fails with `PT_ERROR_FOREIGN` for an address that `pt_kmap` never returns, and on i386 with
// `PT_ERROR_FREED` for a slot without users.
//
// # Safety
//
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
// - The address came from a `pt_kmap` whose use no other call has ended, and no code uses it for
//   that use any more.
int32_t pt_kunmap(struct pt_cpu *cpu,
                  void *address);

// Makes an empty tree, of a new space.
//
// Fails with `PT_ERROR_NO_MEMORY`.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, which stays where it is and is left alone
//   until `pt_tree_exit`.
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_init(struct pt_tree *tree, struct pt_cpu *cpu);

// Ends a tree: has every CPU leave its space, and gives back all tables and all frames of
// `pt_page_alloc` that it maps.
//
// Fails with `PT_ERROR_BUSY` in the middle of a flush or a switch of this CPU.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree` that no other code uses any more.
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_exit(struct pt_tree *tree, struct pt_cpu *cpu);

// Begins to run in the tree's space on this CPU: has its root loaded, unless it is loaded and up
// to date.
//
// Fails with `PT_ERROR_BUSY` in the middle of another switch of this CPU.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_activate(struct pt_tree *tree,
                         struct pt_cpu *cpu);

// Leaves the tree's space on this CPU: the kernel's own root is loaded.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_deactivate(struct pt_tree *tree,
                           struct pt_cpu *cpu);

// Returns the physical address of the tree's root; 0 if there is no tree.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
uint64_t pt_tree_root(struct pt_tree *tree,
                      struct pt_cpu *cpu);

// Returns how many tables of `level` the tree has, or an error.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
int64_t pt_tree_tables(struct pt_tree *tree,
                       struct pt_cpu *cpu,
                       uint32_t level);

// Maps the page at `va` to the frame at `phys`, with `attr` of `enum pt_attr`. A frame of
// `pt_page_alloc` belongs to the tree from then on: it is given back when it is unmapped, or with
// the tree. Any other frame that is not the library's may be mapped too: a device's, the kernel's
// own.
//
// Fails, without a change, with `PT_ERROR_MAPPED`, `PT_ERROR_NO_MEMORY`, `PT_ERROR_RANGE`,
// `PT_ERROR_ARGUMENT` for attributes that cannot be asked for, and for a frame of the library's
// that is not data of the caller's as `pt_page_free` does.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - Whatever programs do with the page is allowed to the frame, until it has been unmapped.
int32_t pt_tree_map(struct pt_tree *tree,
                    struct pt_cpu *cpu,
                    uint64_t va,
                    uint64_t phys,
                    uint32_t attr);

// Maps the `bytes` from `va` on to the frames from `phys` on, as `pt_tree_map` maps each. If one
// fails, no page is mapped.
//
// # Safety
//
// As for `pt_tree_map`, for each page.
int32_t pt_tree_map_range(struct pt_tree *tree,
                          struct pt_cpu *cpu,
                          uint64_t va,
                          uint64_t bytes,
                          uint64_t phys,
                          uint32_t attr);

// Unmaps all pages in the `bytes` from `va` on, and gives back tables that are empty then. Every
// CPU has forgotten the pages when it returns. Never needs memory.
//
// For each page `visit` is called, unless it is NULL, before the flush: frames that are the
// kernel's own may be used for something else after `pt_tree_unmap` has returned. Those of
// `pt_page_alloc` are given back by it. For a large page it is called once, with its `level`. One
// that lies partly in the range is split first, and only its pages in the range go.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - `visit` is NULL or may be called so, and returns.
int32_t pt_tree_unmap(struct pt_tree *tree,
                      struct pt_cpu *cpu,
                      uint64_t va,
                      uint64_t bytes,
                      pt_visit visit,
                      void *context);

// Gives all pages in the `bytes` from `va` on the attributes `attr`, of `enum pt_attr`. Bits that
// MMUs have set are kept. Every CPU has forgotten the pages as they were when it returns. A large
// page that lies partly in the range is split first.
//
// Fails, without a change, with `PT_ERROR_ARGUMENT` for attributes that cannot be asked for, and
// `PT_ERROR_RANGE`.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - Whatever programs do with the pages from then on is allowed to their frames.
int32_t pt_tree_protect(struct pt_tree *tree,
                        struct pt_cpu *cpu,
                        uint64_t va,
                        uint64_t bytes,
                        uint32_t attr);

// Writes the page that maps `va` to `page`, even where the MMU would not let the access through.
// It may be a large one: the physical address of `va` is `page->phys + (va - page->va)`.
//
// Fails with `PT_ERROR_NOT_MAPPED`.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - `page` is NULL or may be written.
int32_t pt_tree_query(struct pt_tree *tree,
                      struct pt_cpu *cpu,
                      uint64_t va,
                      struct pt_page *page);

// Calls `visit` for each page that is mapped in the `bytes` from `va` on, in order; for a large
// page once, also for one that lies partly in the range.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - `visit` may be called so, and returns; NULL is refused.
int32_t pt_tree_walk(struct pt_tree *tree,
                     struct pt_cpu *cpu,
                     uint64_t va,
                     uint64_t bytes,
                     pt_visit visit,
                     void *context);

// Maps the `bytes` from `va` on to the frames from `phys` on, with `attr` of `enum pt_attr`: with
// the largest pages that fit, entries of tables of level `largest` or lower. A large page fits
// where its first address and its first frame are aligned to its size. With `largest | PT_GROUPS`
// each group that fits has the hint. If one fails, no page is mapped.
//
// The frames are not the library's: a device's, or memory that no run of the configuration names.
// Tables for pages that may be split later are reserved now, so that no other call for large pages
// needs memory, except `pt_tree_collapse`.
//
// Fails, without a change, with `PT_ERROR_FOREIGN` if a frame is the library's, with
// `PT_ERROR_ARGUMENT` if entries of `largest` map no pages or the format has no groups, and
// otherwise as `pt_tree_map` does.
// Whether the CPUs of a machine have pages of that size is the caller's to know: those of 1 GiB
// are an option on x86-64.
//
// # Safety
//
// As for `pt_tree_map`, for each page.
int32_t pt_tree_map_range_large(struct pt_tree *tree,
                                struct pt_cpu *cpu,
                                uint64_t va,
                                uint64_t bytes,
                                uint64_t phys,
                                uint32_t attr,
                                uint32_t largest);

// Gives the entries from `va` on of a table of `level` the hint that they are a group, which the
// MMU may keep as one. They map frames that follow each other, of which the first one is aligned
// to the size of all, with the same attributes but for `PT_ATTR_ACCESSED` and `PT_ATTR_DIRTY`;
// each has each of these two if one of them has it. A group, or a larger page, stays.
//
// Accesses to the pages fault meanwhile. The handler repeats them after the call.
//
// Fails, without a change, with `PT_ERROR_DIFFERS` if the pages are not mapped like that,
// `PT_ERROR_RANGE` for an address that is not aligned to the size of all, and `PT_ERROR_ARGUMENT`
// if there are no groups of that level.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_make_group(struct pt_tree *tree,
                           struct pt_cpu *cpu,
                           uint64_t va,
                           uint32_t level);

// Splits the large page that maps `va` until `va` is mapped by an entry of a table of `level` or
// lower, and takes the hint from a group of entries of `level`. A page that is as small already
// stays, and so does an address that is not mapped. Calls for a part of a large page or a group do
// it themselves. Never needs memory.
//
// Fails with `PT_ERROR_RANGE`, and with `PT_ERROR_ARGUMENT` for a level that there is not.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_split(struct pt_tree *tree,
                      struct pt_cpu *cpu,
                      uint64_t va,
                      uint32_t level);

// Puts a large page, an entry of a table of `level`, in the place of the pages from `va` on, which
// are entries of one table of the level below. They map frames that follow each other, of which
// the first one is aligned to the size of the large page, with the same attributes but for
// `PT_ATTR_ACCESSED` and `PT_ATTR_DIRTY`. It has each of these two if one of the pages has it. The
// table is given back. A page that is as large already stays.
//
// Accesses to the pages fault meanwhile. The handler repeats them after the call.
//
// Fails, without a change, with `PT_ERROR_DIFFERS` if the pages are not mapped like that,
// `PT_ERROR_FOREIGN` if one of the frames came from `pt_page_alloc`, `PT_ERROR_RANGE` for an
// address that is not aligned to the size, `PT_ERROR_ARGUMENT` if there are no pages of that
// level, and `PT_ERROR_NO_MEMORY`: a table is reserved for the time when it is split.
//
// # Safety
//
// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
int32_t pt_tree_collapse(struct pt_tree *tree,
                         struct pt_cpu *cpu,
                         uint64_t va,
                         uint32_t level);

// Takes `PT_ATTR_DIRTY` from all pages in the `bytes` from `va` on, and calls `visit`, unless it
// is NULL, for each that had it, in order, with its former attributes. Every CPU has forgotten the
// attribute when it returns: the next call tells the pages that are written from then on. The
// pages may be written until then, so their memory is read after the call, not in `visit`.
//
// A large page is told as a whole, also if it lies partly in the range. Afterwards large pages in
// the range are split into entries of tables of `largest` or lower, also those that were not
// written, so that the next call tells their parts; `PT_LEVELS - 1` splits none. Never needs
// memory.
//
// AArch64 and RISC-V: where the MMU leaves the bit to software, the first write faults, and the
// handler sets it with `pt_tree_protect`.
//
// Fails, without a change, with `PT_ERROR_RANGE`, and with `PT_ERROR_ARGUMENT` for a level that
// there is not.
//
// # Safety
//
// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - `visit` is NULL or may be called so, and returns.
int32_t pt_tree_take_dirty(struct pt_tree *tree,
                           struct pt_cpu *cpu,
                           uint64_t va,
                           uint64_t bytes,
                           uint32_t largest,
                           pt_visit visit,
                           void *context);

// Takes `PT_ATTR_WRITE` from all pages in the `bytes` from `va` on, and calls `visit`, unless it
// is NULL, for each that had it, in order, with its former attributes. Each write to them faults
// when it returns. The handler notes the page, and allows writes again with `pt_tree_protect`.
//
// A large page that lies partly in the range is split first. Afterwards those in the range are
// split into entries of tables of `largest` or lower, as `pt_tree_take_dirty` does.
//
// Fails as `pt_tree_take_dirty` does.
//
// # Safety
//
// As for `pt_tree_take_dirty`.
int32_t pt_tree_write_protect(struct pt_tree *tree,
                              struct pt_cpu *cpu,
                              uint64_t va,
                              uint64_t bytes,
                              uint32_t largest,
                              pt_visit visit,
                              void *context);

// Takes `PT_ATTR_ACCESSED` from all pages in the `bytes` from `va` on, and calls `visit`, unless
// it is NULL, for each that had it, in order, with its former attributes. The next call tells the
// pages that are used after this one. Large pages stay as they are, and are told as a whole.
//
// AArch64 and RISC-V: where the MMU leaves the bit to software, the first use faults, and the
// handler sets it with `pt_tree_protect`.
//
// Fails, without a change, with `PT_ERROR_RANGE`.
//
// # Safety
//
// As for `pt_tree_take_dirty`.
int32_t pt_tree_take_accessed(struct pt_tree *tree,
                              struct pt_cpu *cpu,
                              uint64_t va,
                              uint64_t bytes,
                              pt_visit visit,
                              void *context);

// Makes a space that no CPU has loaded.
//
// # Safety
//
// - `space` is NULL or points to a `struct pt_space`, which stays where it is and is left alone
//   until `pt_space_exit`.
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_space_init(struct pt_space *space, struct pt_cpu *cpu);

// Begins to run in the space on this CPU: has the root at physical address `root` loaded, unless
// it is loaded and up to date.
//
// Fails with `PT_ERROR_RANGE` for an address that no root can have, and with `PT_ERROR_BUSY` in
// the middle of another switch of this CPU.
//
// # Safety
//
// - `space` is NULL or points to a `struct pt_space`, `cpu` to the `struct pt_cpu` of the calling
//   CPU.
// - `root` is the root of the space's tables, which has the kernel's half, and stays one until
//   every CPU has left the space.
int32_t pt_space_activate(struct pt_space *space,
                          struct pt_cpu *cpu,
                          uint64_t root);

// Leaves the space on this CPU: the kernel's own root is loaded.
//
// # Safety
//
// `space` is NULL or points to a `struct pt_space`, `cpu` to the `struct pt_cpu` of the calling
// CPU.
int32_t pt_space_deactivate(struct pt_space *space, struct pt_cpu *cpu);

// Ends a space that no CPU has loaded, and gives back its root, unless `root` is NULL. Its other
// tables went to gathers.
//
// Fails, without a change, with `PT_ERROR_IN_USE` while a CPU has the space loaded or a gather has
// not finished, and as `pt_quicklist_free` does for `root`; `PT_ERROR_ARGUMENT` if it is no root.
//
// # Safety
//
// - `space` is NULL or points to a `struct pt_space` that no other code uses, `cpu` to the
//   `struct pt_cpu` of the calling CPU.
// - `root` is NULL or the root of the space's tables, which is not used any more.
//   `pt_table_touched` was told of each entry that was written to something that is not 0.
int32_t pt_space_exit(struct pt_space *space,
                      struct pt_cpu *cpu,
                      void *root);

// Begins a gather for operations on the tables of `space`.
//
// Fails with `PT_ERROR_BUSY` in the middle of a flush or a switch of this CPU.
//
// # Safety
//
// - `gather` is NULL or points to a `struct pt_gather`, which stays where it is and is left alone
//   until `pt_gather_finish`.
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU. All calls with the gather
//   are made on this CPU, without preemption in between.
// - `space` is NULL or points to a `struct pt_space`.
int32_t pt_gather_begin(struct pt_gather *gather,
                        struct pt_cpu *cpu,
                        struct pt_space *space);

// Notes that entries that map the `bytes` from `va` on have been cleared or have lost a
// permission: the flush makes all CPUs forget them.
//
// Fails with `PT_ERROR_RANGE` for addresses that are not the user's.
//
// # Safety
//
// `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
int32_t pt_gather_changed(struct pt_gather *gather, uint64_t va, uint64_t bytes);

// As `pt_gather_changed`, for large pages, entries of tables of `level`: as long as a gather is
// told of no smaller ones, its flush names each page once.
//
// Fails with `PT_ERROR_RANGE` for addresses that are not the user's or not aligned to the size,
// and with `PT_ERROR_ARGUMENT` if entries of `level` are no large pages.
//
// # Safety
//
// - `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
// - No smaller page was mapped in the `bytes` from `va` on. Its entry would stay in the TLBs.
int32_t pt_gather_changed_large(struct pt_gather *gather,
                                uint64_t va,
                                uint64_t bytes,
                                uint32_t level);

// Takes over a table of `pt_quicklist_alloc` that has just been unlinked; it mapped addresses from
// `va` on. Entries reported by `pt_table_touched` are cleared now; after the flush the page goes
// to the lists. Tables below it go to the same gather, or went before. A root goes to
// `pt_space_exit`.
//
// Fails with `PT_ERROR_POINTER`, `PT_ERROR_FOREIGN` and `PT_ERROR_FREED` as `pt_quicklist_free`
// does, `PT_ERROR_ARGUMENT` for a root, and `PT_ERROR_DIRTY` if its content was looked at
// (`verify_every`) and something is left that was not told; the table is still the caller's then.
//
// # Safety
//
// - `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
// - No entry leads to a table that came from `pt_quicklist_alloc` any more, it was one of the
//   gather's space, and no code writes to it. `pt_table_touched` was told of each entry that was
//   written to something that is not 0.
int32_t pt_gather_table(struct pt_gather *gather,
                        void *table,
                        uint64_t va);

// Takes over a frame of `pt_page_alloc` whose entry, the page at `va`, has just been cleared. It
// is given back after the flush.
//
// Fails, and does not take the frame, as `pt_page_free` does.
//
// # Safety
//
// - `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
// - A frame that came from `pt_page_alloc` was mapped in the gather's space alone, at `va`.
int32_t pt_gather_page(struct pt_gather *gather,
                       uint64_t va,
                       uint64_t phys);

// Has every CPU forget the addresses of the gather, waits for all of them, and gives back the
// tables and frames. Interrupts are on, or the other CPUs answer without them.
//
// # Safety
//
// `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
int32_t pt_gather_finish(struct pt_gather *gather);

// Sets entry `index` of the kernel's half in every root: of trees, in use by the kernel's own
// spaces, and resting in the lists. The kernel's own root is the caller's to write. If the entry
// was present before, `pt_kernel_flush` follows.
//
// Fails with `PT_ERROR_RANGE` if the entry is not the kernel's, and with `PT_ERROR_ARGUMENT` on
// i386, where roots are not found again: the entry is in `kernel_root` before `pt_machine_init`.
//
// # Safety
//
// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
// - `entry` is 0, or lets the kernel alone through; a table that it links stays one until no root
//   has the entry any more and all CPUs have been flushed.
int32_t pt_kernel_set(struct pt_cpu *cpu,
                      uint32_t index,
                      uint64_t entry);

// Has all CPUs forget the `bytes` from `va` on of the kernel's half, after its entries have
// changed; all of the half if `bytes` is 0. Waits for all of them.
//
// Fails with `PT_ERROR_RANGE` for addresses that are not at the border of a page, or end behind
// the last one, and with `PT_ERROR_BUSY` in the middle of another flush of this CPU.
//
// # Safety
//
// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
int32_t pt_kernel_flush(struct pt_cpu *cpu, uint64_t va, uint64_t bytes);

// Writes the counts so far.
//
// # Safety
//
// - `machine` is NULL or points to a `struct pt_machine` that does not end meanwhile.
// - `counts` is NULL or may be written.
int32_t pt_counts(const struct pt_machine *machine, struct pt_counts *counts);

// Returns the meaning of a function's result and the remedy, as text that ends with 0 and stays.
const char *pt_error_text(int32_t code);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PTARMIGAN_H */

#if defined(__cplusplus)
#define PT_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define PT_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
PT_STATIC_ASSERT(sizeof(struct pt_machine) == 8 * PT_MACHINE_WORDS, "struct pt_machine");
PT_STATIC_ASSERT(sizeof(struct pt_cpu) == 8 * PT_CPU_WORDS, "struct pt_cpu");
PT_STATIC_ASSERT(sizeof(struct pt_space) == 8 * PT_SPACE_WORDS, "struct pt_space");
PT_STATIC_ASSERT(sizeof(struct pt_gather) == 8 * PT_GATHER_WORDS, "struct pt_gather");
PT_STATIC_ASSERT(sizeof(struct pt_tree) == 8 * PT_TREE_WORDS, "struct pt_tree");
PT_STATIC_ASSERT(sizeof(struct pt_page) == 32, "struct pt_page");
PT_STATIC_ASSERT(sizeof(struct pt_run) == (sizeof(void *) == 8 ? 24 : 20), "struct pt_run");
