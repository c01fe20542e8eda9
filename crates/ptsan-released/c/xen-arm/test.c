/* p2m.c of Xen for arm64: the machine, and tests. */
#define _GNU_SOURCE
#include "../stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define told_memset declared_before
#include "guest.h"
#undef told_memset

#define PAGE 4096ul
#define PAGES 4096
#define FRAMES (1ul << 22)
/* Where guest.c has the records of pages. */
#define RECORDS ((void *)0x20000000000)

static uint64_t free_list[RAM_BYTES / PAGE];
static size_t frees;
static uint64_t vttbr;

void failed(const char *what, int line) {
    printf("FAILED: %s, line %d\n", what, line);
    exit(1);
}

unsigned long frames_allocated(unsigned int order) {
    settle();
    if (frees < 1ul << order) {
        return 0;
    }
    /* Only the root, which comes first, has two pages. */
    uint64_t at = free_list[frees - 1];
    frees -= 1ul << order;
    ptsan_table_allocated(san, at, PAGE << order, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
    return at;
}

void frames_freed(unsigned long at, unsigned int order) {
    settle();
    ptsan_table_freed(san, at, PAGE << order);
    for (size_t n = 1ul << order; n > 0; n--) {
        free_list[frees++] = at + (n - 1) * PAGE;
    }
}

/* The code runs on CPU 0. */
uint64_t read_register(const char *name) { return strcmp(name, "VTTBR_EL2") ? 0 : vttbr; }

void write_register(const char *name, uint64_t value) {
    if (strcmp(name, "VTTBR_EL2") || value == vttbr) {
        return;
    }
    vttbr = value;
    if (value) {
        ptsan_switch(san, 0, value & 0xfffffffffffe, value >> 48);
    } else {
        ptsan_leave(san, 0);
    }
}

void flush_guest_tlb(void) { ptsan_flush_space(san, PTSAN_EVERY_CPU, vttbr >> 48); }
void flush_guest_tlb_local(void) { ptsan_flush_space(san, 0, vttbr >> 48); }
void flush_all_guests_tlb_local(void) { ptsan_flush_all(san, 0); }
void flush_all_guests_tlb(void) { flush_everything(); }

/* Not reached: no access rights of a monitor, no foreign pages, no walk of a guest's own tables. */
#define UNREACHED(name) \
    void name(void) { failed(#name, __LINE__); }
UNREACHED(radix_tree_delete)
UNREACHED(radix_tree_insert)
UNREACHED(radix_tree_lookup)
UNREACHED(radix_tree_lookup_slot)
UNREACHED(dump_pt_walk)
UNREACHED(do_softirq)
UNREACHED(get_page)
UNREACHED(put_page)
UNREACHED(guest_walk_tables)
UNREACHED(gva_to_ma_par)
UNREACHED(inject_undef_exception)
UNREACHED(iommu_has_feature)
UNREACHED(iommu_iotlb_flush)
UNREACHED(p2m_mem_access_check_and_get_page)
UNREACHED(page_get_owner_and_reference)
UNREACHED(rangeset_contains_range)
UNREACHED(vgic_evtchn_irq_pending)
UNREACHED(vgic_vcpu_pending_irq)

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
        touch(below(PAGES), vttbr ? n % CPUS : 1 + n % (CPUS - 1), n & 1 ? PTSAN_WRITE : PTSAN_READ);
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
    frees = 0;
    vttbr = 0;
    for (uint64_t page = RAM_START + RAM_BYTES - PAGE; page >= RAM_START; page -= PAGE) {
        free_list[frees++] = page;
    }
    guest_begin();
    for (int cpu = 1; cpu < CPUS; cpu++) {
        ptsan_switch(san, cpu, guest_vttbr() & 0xfffffffffffe, guest_vttbr() >> 48);
    }
    if (seed % 2) {
        write_register("VTTBR_EL2", guest_vttbr());
    }
    for (int n = 0; n < 60; n++) {
        step();
    }
    write_register("VTTBR_EL2", guest_vttbr());
    for (uint64_t n = 0; n < PAGES; n++) {
        guest_fault(n);
        settle();
        expect(n * PAGE, looked_up(n), 0, 0);
    }
    write_register("VTTBR_EL2", 0);
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
