/* Names that the build system of EDK II would generate, and the functions of its base libraries
 * that both tests need. Included before everything else. */
#include <Base.h>

extern GUID gArmMmuReplaceLiveTranslationEntryFuncGuid;

/* Svpbmt is there, and no mode above Sv39. */
#define _PCD_GET_MODE_64_PcdRiscVFeatureOverride 4
#define _PCD_GET_MODE_32_PcdCpuRiscVMmuMaxSatpMode 8

/* In front of the definitions below: this file is part of the test. */
#ifdef THE_TEST
#undef NULL
#include "stores.h"

#include <stdio.h>
#include <stdlib.h>

BOOLEAN EFIAPI DebugAssertEnabled(VOID) { return TRUE; }
BOOLEAN EFIAPI DebugPrintEnabled(VOID) { return FALSE; }
BOOLEAN EFIAPI DebugPrintLevelEnabled(CONST UINTN level) { return level == 0; }
VOID EFIAPI DebugPrint(UINTN level, CONST CHAR8 *format, ...) { (void)level, (void)format; }

VOID EFIAPI DebugAssert(CONST CHAR8 *file, UINTN line, CONST CHAR8 *what) {
    printf("FAILED: an assertion of the code, %s:%lu: %s\n", file, (unsigned long)line, what);
    exit(1);
}

VOID *EFIAPI ZeroMem(VOID *at, UINTN bytes) { return told_memset(at, 0, bytes); }
UINT64 EFIAPI LShiftU64(UINT64 value, UINTN count) { return value << count; }
#endif
