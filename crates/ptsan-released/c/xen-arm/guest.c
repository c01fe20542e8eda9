/* The parts of Xen around p2m.c: its allocator, locks, bits; and a domain. */
#include <xen/domain_page.h>
#include <xen/iommu.h>
#include <xen/lib.h>
#include <xen/notifier.h>
#include <xen/percpu.h>
#include <xen/radix-tree.h>
#include <xen/sched.h>
#include <asm/guest_walk.h>
#include <asm/page.h>

#include "guest.h"
#include "machine.h"

extern void *calloc(unsigned long count, unsigned long bytes);
/* stores.h, which is for the headers of the host. */
extern void *told_memset(void *to, int byte, unsigned long bytes);

static struct domain domain;
static struct vcpu vcpu;
static struct cpu_info cpu_info;

struct domain *hardware_domain = &domain;
struct cpuinfo_arm system_cpuinfo;
unsigned long pfn_pdx_bottom_mask = ~0ul, pfn_top_mask, frametable_base_pdx;
unsigned long ma_va_bottom_mask = ~0ul, ma_top_mask;
unsigned int pfn_pdx_hole_shift;
unsigned int nr_cpu_ids = 4;
cpumask_t cpu_possible_map = {{15}};
irq_cpustat_t irq_stat[4];
size_t dcache_line_bytes = 64;
DECLARE_BITMAP(cpu_hwcaps, ARM_NCAPS);
DEFINE_PER_CPU(unsigned int, __preempt_count);
DEFINE_PER_CPU(unsigned int, cpu_id);
DEFINE_PER_CPU(struct vcpu *, curr_vcpu);

bool __mfn_valid(unsigned long mfn) { return true; }
void *map_domain_page(mfn_t mfn) { return (void *)(mfn_x(mfn) << PAGE_SHIFT); }
void unmap_domain_page(const void *at) {}
void clear_page(void *page) { told_memset(page, 0, PAGE_SIZE); }
void clear_and_clean_page(struct page_info *page) { clear_page(map_domain_page(page_to_mfn(page))); }
void flush_page_to_ram(unsigned long mfn, bool sync_icache) {}
void *_xzalloc(unsigned long bytes, unsigned long align) { return calloc(1, bytes); }

struct page_info *alloc_domheap_pages(struct domain *of, unsigned int order, unsigned int flags) {
    unsigned long at = frames_allocated(order);
    return at ? mfn_to_page(_mfn(at >> PAGE_SHIFT)) : NULL;
}

void free_domheap_pages(struct page_info *page, unsigned int order) {
    frames_freed(mfn_x(page_to_mfn(page)) << PAGE_SHIFT, order);
}

/* One thread stands for all CPUs: no lock is ever contended. */
void _spin_lock(spinlock_t *lock) {}
void _spin_unlock(spinlock_t *lock) {}
void queue_read_lock_slowpath(rwlock_t *lock) { failed("a lock is taken twice", __LINE__); }
void queue_write_lock_slowpath(rwlock_t *lock) { failed("a lock is taken twice", __LINE__); }

void set_bit(int n, volatile void *at) { ((volatile unsigned long *)at)[n / 64] |= 1ul << n % 64; }
void clear_bit(int n, volatile void *at) { ((volatile unsigned long *)at)[n / 64] &= ~(1ul << n % 64); }

static unsigned long next_bit(const unsigned long *at, unsigned long size, unsigned long n, bool set) {
    while (n < size && (at[n / 64] >> n % 64 & 1) != set) {
        n++;
    }
    return n;
}

unsigned long find_next_bit(const unsigned long *at, unsigned long size, unsigned long n) {
    return next_bit(at, size, n, true);
}

unsigned long find_next_zero_bit(const unsigned long *at, unsigned long size, unsigned long n) {
    return next_bit(at, size, n, false);
}

void printk(const char *format, ...) {}
void panic(const char *format, ...) { failed("a panic of Xen's", __LINE__); }
void smp_call_function(void (*function)(void *), void *data, int wait) {}
void register_cpu_notifier(struct notifier_block *block) {}
void radix_tree_init(struct radix_tree_root *root) {}
void radix_tree_destroy(struct radix_tree_root *root, void (*function)(void *)) {}

void setup_virt_paging(void);

void guest_begin(void) {
    static bool once;
    if (!once) {
        /* 40 bits of physical address: the root has two pages, at level 1. */
        system_cpuinfo.mm64.pa_range = 2;
        setup_virt_paging();
    }
    once = true;
    domain = (struct domain){.vcpu = NULL};
    vcpu = (struct vcpu){.domain = &domain};
    /* No event is delivered, so nothing is preempted. */
    cpu_info.guest_cpu_user_regs.cpsr = PSR_IRQ_MASK;
    vcpu.arch.cpu_info = &cpu_info;
    per_cpu__curr_vcpu = &vcpu;
    if (p2m_init(&domain)) {
        failed("p2m_init", __LINE__);
    }
}

unsigned long guest_vttbr(void) { return domain.arch.p2m.vttbr; }

static int set(unsigned long gfn, unsigned long count, mfn_t mfn, p2m_type_t type) {
    struct p2m_domain *p2m = p2m_get_hostp2m(&domain);
    p2m_write_lock(p2m);
    int error = p2m_set_entry(p2m, _gfn(gfn), count, mfn, type, p2m_access_rwx);
    p2m_write_unlock(p2m);
    return error;
}

int guest_map(unsigned long gfn, unsigned long count, unsigned long mfn, int writable) {
    return set(gfn, count, _mfn(mfn), writable ? p2m_ram_rw : p2m_ram_ro);
}

int guest_unmap(unsigned long gfn, unsigned long count) {
    return set(gfn, count, INVALID_MFN, p2m_invalid);
}

unsigned long guest_lookup(unsigned long gfn) { return mfn_x(p2m_lookup(&domain, _gfn(gfn), NULL)); }
int guest_fault(unsigned long gfn) { return p2m_resolve_translation_fault(&domain, _gfn(gfn)); }
void guest_invalidate(void) { p2m_invalidate_root(p2m_get_hostp2m(&domain)); }
void guest_end(void) { p2m_final_teardown(&domain); }
