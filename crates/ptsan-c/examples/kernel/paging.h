/* Address spaces of a small kernel. */
#ifndef PAGING_H
#define PAGING_H

#include <stdbool.h>
#include <stdint.h>

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ACCESSED = 1 << 5, DIRTY = 1 << 6, COPY_ON_WRITE = 1 << 9 };

struct space {
    uint64_t root;
    uint32_t cpus; /* a bit for each CPU that has the root loaded */
};

void frames_init(uint64_t first, uint64_t end);
uint64_t frame_alloc(void); /* 0 if no frame is free */
void frame_free(uint64_t frame);
bool frame_is_dirty(uint64_t frame); /* a page that was unmapped or protected had been written */

bool space_create(struct space *space);
void space_load(struct space *space);
bool space_map(struct space *space, uint64_t va, uint64_t frame, uint64_t flags);
void space_unmap(struct space *space, uint64_t va);
void space_protect(struct space *space, uint64_t va, uint64_t flags);
bool space_fork(struct space *parent, struct space *child);
bool space_write_fault(struct space *space, uint64_t va);
void space_leave(struct space *space, struct space *next); /* load `next` wherever `space` is loaded */
void space_destroy(struct space *space);                   /* no CPU has it loaded */

#endif
