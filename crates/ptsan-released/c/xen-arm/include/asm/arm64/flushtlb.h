/* Invalidations, each with its barriers, are functions of the test. */
#ifndef ARM64_FLUSHTLB_H
#define ARM64_FLUSHTLB_H

void flush_guest_tlb_local(void);
void flush_guest_tlb(void);
void flush_all_guests_tlb_local(void);
void flush_all_guests_tlb(void);
void flush_xen_tlb_local(void);
void __flush_xen_tlb_one_local(vaddr_t va);
void __flush_xen_tlb_one(vaddr_t va);

#endif
