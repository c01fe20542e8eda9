/* U-Boot's own header, with its assembler left out: with -std=c99 these are no keywords. */
#define asm
#define volatile(...) ((void)0)
#define __asm__(...) ((void)0)
#include_next <asm/armv8/mmu.h>
