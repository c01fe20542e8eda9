/* ArmMmuLib of EDK II for AArch64: the functions that it calls, and tests. */
#define THE_TEST
#include "../edk2.h"

#include <Uefi.h>
#include <Pi/PiMultiPhase.h>
#include <Library/ArmLib.h>
#include <Library/ArmMmuLib.h>

#define VA_BITS 40
#define LARGE (2ull << 20)
#define REGION (64 * LARGE)

EFI_GUID gArmMmuReplaceLiveTranslationEntryFuncGuid;
UINT32 ArmReplaceLiveTranslationEntrySize = 4;
static UINT64 next_frame, tcr, root;
static bool mmu;

UINTN EFIAPI ArmReadCurrentEL(VOID) { return AARCH64_EL1; }
UINTN EFIAPI ArmReadHcr(VOID) { return 0; }
BOOLEAN EFIAPI ArmMmuEnabled(VOID) { return mmu; }
UINTN EFIAPI ArmGetPhysicalAddressBits(VOID) { return VA_BITS; }
UINTN EFIAPI ArmGetTCR(VOID) { return tcr; }
VOID EFIAPI ArmSetTCR(UINTN value) { tcr = value; }
VOID EFIAPI ArmSetMAIR(UINTN value) { (void)value; }
VOID EFIAPI ArmSetTTBR0(VOID *table) { root = (UINT64)table; }
VOID *EFIAPI ArmGetTTBR0BaseAddress(VOID) { return (VOID *)root; }
VOID EFIAPI ArmDisableAlignmentCheck(VOID) {}
VOID EFIAPI ArmEnableStackAlignmentCheck(VOID) {}
VOID EFIAPI ArmEnableInstructionCache(VOID) {}
VOID EFIAPI ArmEnableDataCache(VOID) {}
VOID *EFIAPI InvalidateDataCacheRange(VOID *at, UINTN bytes) { return (void)bytes, at; }
VOID *EFIAPI WriteBackDataCacheRange(VOID *at, UINTN bytes) { return (void)bytes, at; }
VOID *EFIAPI GetFirstGuidHob(CONST EFI_GUID *guid) { return (void)guid, NULL; }

VOID EFIAPI ArmEnableMmu(VOID) {
    mmu = true;
    load_everywhere(root);
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

/* ArmLibSupport.S: DSB, TLBI by address, DSB. The library's is for one CPU; here it is for all. */
VOID EFIAPI ArmUpdateTranslationTableEntry(VOID *entry, VOID *va) {
    (void)entry;
    flush_page_everywhere((UINT64)va);
}

/* ArmMmuLibReplaceEntry.S: without the MMU no CPU walks, else the entry is cleared first. */
VOID EFIAPI ArmReplaceLiveTranslationEntry(UINT64 *entry, UINT64 value, UINT64 va, BOOLEAN off) {
    if (!off) {
        told_memset(entry, 0, 8);
    }
    flush_page_everywhere(va);
    *entry = value;
    ptsan_entry_written(san, (UINT64)entry);
}

static void start(UINT64 seed) {
    begin(PTSAN_ARCH_AARCH64_4K, VA_BITS, seed);
    next_frame = RAM_START;
    mmu = false;
    ARM_MEMORY_REGION_DESCRIPTOR map[] = {{REGION, REGION, 8 * LARGE, ARM_MEMORY_REGION_ATTRIBUTE_WRITE_BACK}, {0}};
    if (ArmConfigureMmu(map, NULL, NULL) != EFI_SUCCESS) {
        printf("the tables cannot be made\n");
    }
}

static void memory_type(void) {
    start(1);
    may(0, REGION, PTSAN_READ);
    ArmSetMemoryAttributes(REGION, LARGE, EFI_MEMORY_WC, 0);
    verdict("edk2 ArmMmuLib: a live block gets another memory type in one store", "break-before-make", "");
}

/* Changes permissions at random and compares every page with a model. */
static void right(UINT64 seed) {
    static UINT64 model[8 * LARGE / 4096];
    start(seed);
    for (UINT64 page = 0; page < 8 * LARGE / 4096; page++) {
        model[page] = 0;
    }
    for (int step = 0; step < 60; step++) {
        UINT64 first = below(8 * 512 - 1);
        UINT64 pages = 1 + below(MIN(1024, 8 * 512 - first));
        UINT64 attributes = (below(2) ? EFI_MEMORY_XP : 0) | (below(2) ? EFI_MEMORY_RO : 0);
        ArmSetMemoryAttributes(REGION + first * 4096, pages * 4096, attributes, EFI_MEMORY_XP | EFI_MEMORY_RO);
        for (UINT64 page = first; page < first + pages; page++) {
            model[page] = attributes;
        }
        for (int n = 0; n < 16; n++) {
            may(n % CPUS, REGION + below(8 * LARGE), n & 8 ? PTSAN_WRITE : PTSAN_READ);
        }
    }
    for (UINT64 page = 0; page < 8 * LARGE / 4096; page++) {
        UINT32 perms = PTSAN_PERM_READ | (model[page] & EFI_MEMORY_RO ? 0 : PTSAN_PERM_WRITE) |
                       (model[page] & EFI_MEMORY_XP ? 0 : PTSAN_PERM_USER_EXEC | PTSAN_PERM_KERNEL_EXEC);
        expect(REGION + page * 4096, REGION + page * 4096, 0, perms);
    }
    verdict("edk2 ArmMmuLib: permissions at random, with splits of live blocks", "", "");
}

int main(void) {
    memory_type();
    for (UINT64 seed = 10; seed < 14; seed++) {
        right(seed);
    }
    return 0;
}
