/* An entry is written by a store between two barriers. Caches are coherent with walkers. */
#ifndef ARM64_PAGE_H
#define ARM64_PAGE_H

/* Barriers within assembler text. */
asm(".macro dsb scope\n.endm");

static inline void write_pte(lpae_t *at, lpae_t entry) {
    *(volatile uint64_t *)&at->bits = entry.bits;
}

#define __invalidate_dcache_one(operand) "# %" #operand
#define __clean_dcache_one(operand) "# %" #operand
#define __clean_and_invalidate_dcache_one(operand) "# %" #operand

static inline void invalidate_icache(void) {}
static inline void invalidate_icache_local(void) {}
uint64_t __va_to_par(vaddr_t va);
uint64_t gva_to_ma_par(vaddr_t va, unsigned int flags);
uint64_t gva_to_ipa_par(vaddr_t va, unsigned int flags);
void clear_page(void *page);

#endif
