/* guest.c: a domain, and its p2m as Xen's callers use it. Numbers of frames, not addresses. */
#ifndef GUEST_H
#define GUEST_H

void guest_begin(void);
unsigned long guest_vttbr(void);
int guest_map(unsigned long gfn, unsigned long count, unsigned long mfn, int writable);
int guest_unmap(unsigned long gfn, unsigned long count);
/* Returns the frame, or -1. */
unsigned long guest_lookup(unsigned long gfn);
/* A fault: whether Xen had only cleared the valid bit. */
int guest_fault(unsigned long gfn);
void guest_invalidate(void);
void guest_end(void);

#endif
