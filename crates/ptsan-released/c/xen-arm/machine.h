/* The machine that p2m.c runs on: frames, registers, TLB. For guest.c, which sees Xen's headers,
 * and for test.c, which sees those of the host. */
#ifndef MACHINE_H
#define MACHINE_H

/* All frames are free, and no guest is loaded. */
void machine_begin(void);
/* The register VTTBR_EL2 of CPU 0. */
unsigned long machine_vttbr(void);
/* Loads it on CPU 0; 0 is no guest. */
void machine_load(unsigned long vttbr);
/* Returns the address of 2^order frames, or 0. */
unsigned long frames_allocated(unsigned int order);
void frames_freed(unsigned long at, unsigned int order);
/* Ends the program. */
void failed(const char *what, int line);

#endif
