/* The records of pages are where a host can have them. */
#include_next <asm/config.h>
#undef FRAMETABLE_VIRT_START
#define FRAMETABLE_VIRT_START 0x20000000000
