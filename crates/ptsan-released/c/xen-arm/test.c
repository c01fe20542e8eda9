/* p2m.c of Xen for arm64: tests. */
#define _GNU_SOURCE
#include "../stores.h"

#include <sys/mman.h>

#include "guest.h"
#include "machine.h"

#define PAGE 4096ul
#define PAGES 4096
#define FRAMES (1ul << 22)
/* Where guest.c has the records of pages. */
#define RECORDS ((void *)0x20000000000)

static uint64_t looked_up(uint64_t page) {
    uint64_t frame = guest_lookup(page);
    return frame == ~0ul ? PTSAN_NONE : frame * PAGE;
}

static void touch(uint64_t page, int cpu, uint32_t kind) {
    if (!may(cpu, page * PAGE, kind) && guest_fault(page)) {
        may(cpu, page * PAGE, kind);
    }
}

/* Maps or unmaps a part. Frames that are not mapped any more go back to their owner. */
static void step(void) {
    static uint64_t before[PAGES];
    uint64_t page = below(PAGES), left = PAGES - page, pages = 1 + below(left < 700 ? left : 700);
    if (below(3) == 0) {
        page &= ~511ull;
        pages = 512;
    }
    for (uint64_t n = 0; n < PAGES; n++) {
        before[n] = looked_up(n);
    }
    switch (below(5)) {
    case 0:
    case 1: guest_map(page, pages, FRAMES * (1 + below(2)) + page, below(2)); break;
    case 2:
    case 3: guest_unmap(page, pages); break;
    default: guest_invalidate();
    }
    settle();
    for (uint64_t n = 0; n < PAGES; n++) {
        if (before[n] != PTSAN_NONE && before[n] != looked_up(n)) {
            ptsan_frame_freed(san, before[n], PAGE);
        }
    }
    ptsan_flushes_done(san);
    for (int n = 0; n < 16; n++) {
        touch(below(PAGES), machine_vttbr() ? n % CPUS : 1 + n % (CPUS - 1), n & 1 ? PTSAN_WRITE : PTSAN_READ);
    }
}

/* CPU 0 runs the guest, or none: then each flush loads the guest's number for a while. */
static void right(uint64_t seed) {
    begin_as((ptsan_options){.arch = PTSAN_ARCH_AARCH64_STAGE2_4K,
                             .va_bits = 40,
                             .start_level = 1,
                             .flags = PTSAN_FLAG_ASIDS | PTSAN_FLAG_TWO_STAGES,
                             .adversary_rate = 500,
                             .seed = seed});
    machine_begin();
    guest_begin();
    for (int cpu = 1; cpu < CPUS; cpu++) {
        ptsan_switch(san, cpu, guest_vttbr() & 0xfffffffffffe, guest_vttbr() >> 48);
    }
    if (seed % 2) {
        machine_load(guest_vttbr());
    }
    for (int n = 0; n < 60; n++) {
        step();
    }
    machine_load(guest_vttbr());
    for (uint64_t n = 0; n < PAGES; n++) {
        guest_fault(n);
        settle();
        expect(n * PAGE, looked_up(n), 0, 0);
    }
    machine_load(0);
    for (int cpu = 1; cpu < CPUS; cpu++) {
        ptsan_leave(san, cpu);
    }
    guest_end();
    ptsan_finish(san);
    verdict("xen-arm: map, unmap, split, merge, clear valid bits at random", "", "");
}

int main(void) {
    if (mmap(RECORDS, 1ul << 30, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != RECORDS) {
        failed("the addresses of the records are in use", __LINE__);
    }
    for (uint64_t seed = 1; seed <= 6; seed++) {
        right(seed);
    }
    return 0;
}
