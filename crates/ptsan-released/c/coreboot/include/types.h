/* Declarations for mmu.c on the host. Names are those of coreboot; test.c has the functions. */
#ifndef TYPES_H
#define TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint8_t u8;

#define _ttb ((u8 *)0x100000000)
#define _ettb (_ttb + 64 * 4096)
#define IS_ALIGNED(value, to) (((value) & ((to) - 1)) == 0)
#define BIOS_INFO 0
#define BIOS_DEBUG 0
#define printk(...) ((void)0)
#define die(text) (puts(text), exit(2))
#define memset told_memset
#define SCTLR_M 1
#define SCTLR_C 4
#define SCTLR_I 4096

void *told_memset(void *to, int byte, size_t bytes);
void full_dsb(void);
#define dsb full_dsb
#define isb() ((void)0)
void tlbiall_el3(void);
void tlb_invalidate_all(void);
void raw_write_ttbr0_el3(uint64_t root);
void raw_write_sctlr_el3(uint32_t value);
uint32_t raw_read_sctlr_el3(void);
#define raw_write_mair_el3(value) ((void)(value))
#define raw_write_tcr_el3(value) ((void)(value))
#define raw_read_mair_el3() 0
#define raw_read_tcr_el3() 0

#endif
