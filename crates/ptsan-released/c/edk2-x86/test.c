/* CpuPageTableLib of EDK II for x86-64: the functions that it calls, and a test. */
#define THE_TEST
#include "../edk2.h"

#include <Library/CpuPageTableLib.h>

#define LARGE (2ull << 20)
#define REGION (64 * LARGE)
#define PAGES (8 * 512)

UINT64 EFIAPI MultU64x32(UINT64 a, UINT32 b) { return a * b; }

UINT64 EFIAPI BitFieldRead64(UINT64 value, UINTN first, UINTN last) {
    return (value >> first) & (~0ull >> (63 - (last - first)));
}

/* Only copies the four entries of PAE, to and from the stack. */
VOID *EFIAPI CopyMem(VOID *to, CONST VOID *from, UINTN bytes) {
    for (UINTN i = 0; i < bytes; i++) {
        ((UINT8 *)to)[i] = ((CONST UINT8 *)from)[i];
    }
    return to;
}

static UINTN root, left;

/* Maps with pages of the buffer, and flushes if and only if the library says that it is needed. */
static VOID map(UINT64 va, UINT64 bytes, UINT64 attribute, UINT64 mask) {
    IA32_MAP_ATTRIBUTE what = {.Uint64 = attribute}, which = {.Uint64 = mask};
    BOOLEAN modified;
    UINTN before = left;
    UINT64 buffer = RAM_START;
    settle();
    for (UINT64 frame = buffer; frame < buffer + left; frame += 4096) {
        ptsan_table_allocated(san, frame, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
    }
    RETURN_STATUS status =
        PageTableMap(&root, Paging4Level1GB, (VOID *)buffer, &left, va, bytes, &what, &which, &modified);
    settle();
    if (modified) {
        flush_everything();
    }
    for (UINT64 frame = buffer; frame < buffer + left; frame += 4096) {
        ptsan_table_freed(san, frame, 4096); /* not used */
    }
    if (status != RETURN_SUCCESS || left > before) {
        printf("FAILED: the library refused a correct call\n");
        exit(1);
    }
}

static VOID right(UINT64 seed) {
    static UINT64 model[PAGES];
    begin(PTSAN_ARCH_X86_64, 0, seed);
    root = 0;
    left = 256 * 4096;
    map(0, 4ull << 30, 7, ~0ull);
    load_everywhere(root);
    for (UINTN page = 0; page < PAGES; page++) {
        model[page] = (REGION + page * 4096) | 7;
    }
    for (int step = 0; step < 150; step++) {
        UINTN first = below(PAGES - 1);
        UINTN count = 1 + below(below(2) ? 8 : MIN(1500, PAGES - first));
        if (first + count > PAGES) {
            count = PAGES - first;
        }
        UINT64 va = REGION + first * 4096, attribute, mask;
        switch (below(4)) {
        case 0: /* not present */
            attribute = 0, mask = 1;
            break;
        case 1: /* present, at frames of its own */
            attribute = (va + (below(2) ? 1ull << 32 : 4096)) | 7, mask = ~0ull;
            break;
        default: /* present, one to one, with other permissions */
            attribute = va | 1 | below(4) << 1 | (below(2) ? 1ull << 63 : 0), mask = ~0ull;
        }
        map(va, count * 4096, attribute, mask);
        for (UINTN page = first; page < first + count; page++) {
            model[page] = mask == 1 ? 0 : attribute + (page - first) * 4096;
        }
        for (int n = 0; n < 16; n++) {
            may(n % CPUS, REGION + below(PAGES * 4096), n & 8 ? PTSAN_WRITE : PTSAN_READ);
        }
    }
    for (UINTN page = 0; page < PAGES; page++) {
        UINT64 entry = model[page];
        UINT32 perms = PTSAN_PERM_READ | (entry & 2 ? PTSAN_PERM_WRITE : 0) | (entry & 4 ? PTSAN_PERM_USER : 0) |
                       (entry >> 63 ? 0 : PTSAN_PERM_USER_EXEC | PTSAN_PERM_KERNEL_EXEC);
        expect(REGION + page * 4096, entry & 1 ? entry & 0xffffffffff000 : PTSAN_NONE, 0, perms);
    }
    verdict("edk2 CpuPageTableLib: maps, protections, splits and unmaps at random", "", "");
}

int main(void) {
    for (UINT64 seed = 10; seed < 18; seed++) {
        right(seed);
    }
    return 0;
}
