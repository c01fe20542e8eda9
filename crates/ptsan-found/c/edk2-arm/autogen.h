/* What the build system of EDK II would generate. */
#include <Base.h>

extern GUID gArmMmuReplaceLiveTranslationEntryFuncGuid;
