/* The machine of p2m.c: see machine.h. Each step is told to the sanitizer. */
#include "../stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define PAGE 4096ul

static uint64_t free_list[RAM_BYTES / PAGE];
static size_t frees;
static uint64_t vttbr;

void failed(const char *what, int line) {
    printf("FAILED: %s, line %d\n", what, line);
    exit(1);
}

void machine_begin(void) {
    frees = 0;
    vttbr = 0;
    for (uint64_t page = RAM_START + RAM_BYTES - PAGE; page >= RAM_START; page -= PAGE) {
        free_list[frees++] = page;
    }
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

unsigned long machine_vttbr(void) { return vttbr; }

void machine_load(unsigned long value) {
    if (value == vttbr) {
        return;
    }
    vttbr = value;
    if (value) {
        ptsan_switch(san, 0, value & 0xfffffffffffe, value >> 48);
    } else {
        ptsan_leave(san, 0);
    }
}

/* Xen's accesses to registers. The code runs on CPU 0. */
uint64_t read_register(const char *name) { return strcmp(name, "VTTBR_EL2") ? 0 : vttbr; }

void write_register(const char *name, uint64_t value) {
    if (!strcmp(name, "VTTBR_EL2")) {
        machine_load(value);
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
