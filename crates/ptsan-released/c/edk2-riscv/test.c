/* BaseRiscVMmuLib of EDK II: the functions that it calls, and tests. */
#define THE_TEST
#include "../edk2.h"

#include <PiDxe.h>
#include <Library/BaseRiscVMmuLib.h>
#include <Library/DxeServicesTableLib.h>

#define LARGE (2ull << 20)
#define REGION (64 * LARGE)
#define PAGES (8 * 512)
#define MEMORY_TYPE (3ull << 61)

static UINT64 satp, next_frame;

UINTN EFIAPI RiscVGetSupervisorAddressTranslationRegister(VOID) { return satp; }
BOOLEAN EFIAPI GetInterruptState(VOID) { return FALSE; }
VOID EFIAPI DisableInterrupts(VOID) {}
VOID EFIAPI EnableInterrupts(VOID) {}
VOID EFIAPI FreePool(VOID *at) { (void)at; }
VOID EFIAPI RiscVLocalTlbFlushAll(VOID) { flush_everything(); }

/* sfence.vma with an address. The library's is for one hart; here it is for all. */
VOID EFIAPI RiscVLocalTlbFlush(UINTN va) {
    settle();
    ptsan_flush_every_space(san, PTSAN_EVERY_CPU, va, va + 1, 4096, false);
}

VOID EFIAPI RiscVSetSupervisorAddressTranslationRegister(UINT64 value) {
    satp = value;
    load_everywhere((value & 0xfffffffffff) << 12);
}

VOID *EFIAPI AllocatePages(UINTN pages) {
    settle();
    UINT64 frame = next_frame;
    next_frame += pages * 4096;
    ptsan_table_allocated(san, frame, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
    return (VOID *)frame;
}

VOID EFIAPI FreePages(VOID *at, UINTN pages) {
    settle();
    ptsan_table_freed(san, (UINT64)at, pages * 4096);
}

static EFI_STATUS EFIAPI memory_map(UINTN *count, EFI_GCD_MEMORY_SPACE_DESCRIPTOR **map) {
    static EFI_GCD_MEMORY_SPACE_DESCRIPTOR memory = {
        .BaseAddress = REGION, .Length = PAGES * 4096, .GcdMemoryType = EfiGcdMemoryTypeSystemMemory};
    *count = 1, *map = &memory;
    return EFI_SUCCESS;
}

static EFI_DXE_SERVICES services = {.GetMemorySpaceMap = memory_map};
EFI_DXE_SERVICES *gDS = &services;

static VOID start(UINT64 seed) {
    begin(PTSAN_ARCH_RISCV_SV39, 0, seed);
    satp = 0;
    next_frame = RAM_START;
    if (RiscVConfigureMmu() != EFI_SUCCESS) {
        exit(2);
    }
}

/* Returns the entry that translates `va`. */
static UINT64 leaf(UINT64 va) {
    UINT64 table = (satp & 0xfffffffffff) << 12, entry = 0;
    for (int shift = 30; shift >= 12; shift -= 9) {
        entry = ((UINT64 *)table)[va >> shift & 511];
        if (entry & 0xe) {
            break;
        }
        table = entry << 2 & ~0xfffull;
    }
    return entry;
}

/* 2 MiB are made uncached, then one page of them read-only: do the others keep their type? */
static VOID lost_memory_type(VOID) {
    start(1);
    RiscVSetMemoryAttributes(REGION, LARGE, EFI_MEMORY_UC);
    UINT64 before = leaf(REGION + 0x5000) & MEMORY_TYPE;
    may(0, REGION + 0x5000, PTSAN_READ);
    RiscVSetMemoryAttributes(REGION, 4096, EFI_MEMORY_UC | EFI_MEMORY_RO);
    UINT64 after = leaf(REGION + 0x5000) & MEMORY_TYPE;
    printf("edk2 BaseRiscVMmuLib: the split %s the memory type of the other pages\n",
           before != after ? "lost" : "kept; the source is fixed");
    if (before == after || !before) {
        exit(1);
    }
    may(0, REGION + 0x5000, PTSAN_READ);
    verdict("edk2 BaseRiscVMmuLib: no rule of the hardware is broken by it", "", "");
}

static VOID right(UINT64 seed) {
    static UINT64 model[PAGES];
    start(seed);
    for (UINTN page = 0; page < PAGES; page++) {
        model[page] = 0;
    }
    for (int step = 0; step < 60; step++) {
        UINTN first = below(PAGES - 1), most = PAGES - first;
        UINTN pages = 1 + below(most < 1024 ? most : 1024);
        UINT64 attributes = (below(2) ? EFI_MEMORY_XP : 0) | (below(2) ? EFI_MEMORY_RO : 0);
        RiscVSetMemoryAttributes(REGION + first * 4096, pages * 4096, attributes);
        for (UINTN page = first; page < first + pages; page++) {
            model[page] = attributes;
        }
        for (int n = 0; n < 16; n++) {
            may(n % CPUS, REGION + below(PAGES * 4096), n & 8 ? PTSAN_WRITE : PTSAN_READ);
        }
    }
    for (UINTN page = 0; page < PAGES; page++) {
        UINT32 perms = PTSAN_PERM_READ | (model[page] & EFI_MEMORY_RO ? 0 : PTSAN_PERM_WRITE) |
                       (model[page] & EFI_MEMORY_XP ? 0 : PTSAN_PERM_USER_EXEC | PTSAN_PERM_KERNEL_EXEC);
        expect(REGION + page * 4096, REGION + page * 4096, 0, perms);
    }
    verdict("edk2 BaseRiscVMmuLib: permissions at random, with splits", "", "");
}

int main(void) {
    lost_memory_type();
    for (UINT64 seed = 10; seed < 14; seed++) {
        right(seed);
    }
    return 0;
}
