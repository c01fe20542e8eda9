/* Two CPUs as threads: one unmaps pages while the other one runs in the space, and is
 * interrupted. */
#include "host.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define ROUNDS 300

static struct pt_cpu cpus[2];
static struct pt_tree tree;
static atomic_uint interrupted[2], invalidations[2], stop, ready;

static void interrupt(void *context, uint32_t from, uint32_t to) {
    (void)context, (void)from;
    atomic_store(&interrupted[to], 1);
}
static void forget(void *context, uint32_t number, uint64_t va) {
    (void)context, (void)va;
    atomic_fetch_add(&invalidations[number], 1);
}
static void forget_all(void *context, uint32_t number) { forget(context, number, 0); }
static void give_way(void *context, uint32_t number, uint32_t turn) { (void)context, (void)number, (void)turn, sched_yield(); }
static void load(void *context, uint32_t number, uint64_t to) { (void)context, (void)number, (void)to; }

/* CPU 1 runs in the space, maps pages of its own, and takes interrupts. */
static void *other(void *unused) {
    (void)unused;
    OK(pt_tree_activate(&tree, &cpus[1]));
    atomic_store(&ready, 1);
    for (uint64_t n = 0; !atomic_load(&stop); n++) {
        if (atomic_exchange(&interrupted[1], 0))
            OK(pt_cpu_serve(&cpus[1]));
        uint64_t va = (UINT64_C(1) << 30) + n % 64 * PAGE;
        if (n % 128 < 64)
            OK(pt_tree_map(&tree, &cpus[1], va, DEVICE, PT_ATTR_READ));
        else
            OK(pt_tree_unmap(&tree, &cpus[1], va, PAGE, NULL, NULL));
    }
    OK(pt_tree_deactivate(&tree, &cpus[1]));
    OK(pt_cpu_exit(&cpus[1]));
    return NULL;
}

int main(void) {
    ram = reserve(LOW_BYTES);
    struct pt_config config = configured();
    config.cpus = 2;
    config.hooks.send_ipi = interrupt;
    config.hooks.invalidate_page = forget;
    config.hooks.invalidate_all = forget_all;
    config.hooks.load_root = load;
    config.hooks.wait = give_way;
    config.boot_bytes = pt_machine_bytes(&config);
    config.boot_memory = reserve(config.boot_bytes);
    OK(pt_machine_init(&machine, &config));
    OK(pt_cpu_init(&cpus[0], &machine, 0, 0));
    OK(pt_cpu_init(&cpus[1], &machine, 1, 0));
    OK(pt_tree_init(&tree, &cpus[0]));
    OK(pt_tree_activate(&tree, &cpus[0]));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    while (!atomic_load(&ready)) {
        OK(pt_cpu_serve(&cpus[0]));
        sched_yield();
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t va = (uint64_t)(i % 100) << 21, frame = pt_page_alloc(&cpus[0]);
        unsigned before = atomic_load(&invalidations[1]);
        OK(pt_tree_map(&tree, &cpus[0], va, frame, PT_ATTR_READ | PT_ATTR_WRITE));
        if (atomic_exchange(&interrupted[0], 0))
            OK(pt_cpu_serve(&cpus[0]));
        OK(pt_tree_unmap(&tree, &cpus[0], va, PAGE, NULL, NULL));
        CHECK(atomic_load(&invalidations[1]) > before); /* the other CPU has forgotten it */
    }
    atomic_store(&stop, 1);
    /* It may be waiting for an answer, or for its turn. */
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        OK(pt_cpu_serve(&cpus[0]));
        sched_yield();
    }
    struct pt_counts counts;
    OK(pt_counts(&machine, &counts));
    CHECK(counts.ipis >= ROUNDS);
    OK(pt_tree_exit(&tree, &cpus[0]));
    OK(pt_cpu_exit(&cpus[0]));
    uint64_t missing;
    OK(pt_machine_exit(&machine, &missing));
    puts("shot down");
    return 0;
}
