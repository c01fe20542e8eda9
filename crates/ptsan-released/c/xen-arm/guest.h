/* Between guest.c, which sees Xen's headers, and test.c, which sees those of the host. */
#ifndef GUEST_H
#define GUEST_H

/* guest.c: a domain, and its p2m as Xen's callers use it. Numbers of frames, not addresses. */
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

/* test.c: the machine. */
unsigned long frames_allocated(unsigned int order);
void frames_freed(unsigned long at, unsigned int order);
void failed(const char *what, int line);
void *told_memset(void *to, int byte, unsigned long bytes);

#endif
