/* Two CPUs as threads make random calls, every other one with an object that is not there,
 * misaligned, zero, copied, ended, of another kind or of another machine, or in the wrong order.
 * What is refused changes nothing: a model of what each thread has mapped and holds agrees all the
 * time, and all frames are back at the end. */
#include "host.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define CALLS 20000
#define PAGES 64 /* of each thread, in each tree */
#define HELD 64

enum { OWN, SHARED, TREES };

static struct pt_cpu cpus[2], foreign_cpu, copied_cpu, ended_cpu, zero_cpu;
static struct pt_tree shared, own[2], foreign_tree, copied_tree, ended_tree, zero_tree;
static struct pt_machine foreign;
static atomic_uint interrupted[2], done;

static void interrupt(void *context, uint32_t from, uint32_t to) {
    (void)context, (void)from;
    atomic_store(&interrupted[to], 1);
}
static void forget(void *context, uint32_t number, uint64_t va) { (void)context, (void)number, (void)va; }
static void forget_all(void *context, uint32_t number) { (void)context, (void)number; }
static void give_way(void *context, uint32_t number, uint32_t turn) { (void)context, (void)number, (void)turn, sched_yield(); }

/* What one thread knows. */
struct mine {
    unsigned number;
    uint64_t seed;
    uint64_t mapped[TREES][PAGES]; /* the frame, or DEVICE, or 0 */
    uint64_t frames[HELD];         /* of pt_page_alloc, mapped nowhere */
    void *tables[HELD];            /* of pt_quicklist_alloc, zero */
    unsigned n_frames, n_tables, refused, made;
};

static uint32_t pick(struct mine *my, uint32_t limit) {
    my->seed = my->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(my->seed >> 33) % limit;
}
static struct pt_cpu *here(struct mine *my) { return &cpus[my->number]; }
static struct pt_tree *tree_of(struct mine *my, unsigned which) { return which == OWN ? &own[my->number] : &shared; }
static uint64_t va_of(struct mine *my, unsigned page) {
    /* Several leaf tables, which the two threads have in common in the shared tree. */
    return (UINT64_C(1) << 30) + page % 4 * (UINT64_C(1) << 21) + (page * 2 + my->number) * PAGE;
}

/* A call that has to be refused with this. */
#define REFUSED(call, want) \
    do { \
        RETURNS(call, want); \
        my->refused++; \
    } while (0)

static void bad_object(struct mine *my) {
    void *cpus_[] = {NULL, (char *)here(my) + 8, &zero_cpu, &copied_cpu, &ended_cpu, &shared, &foreign_cpu};
    void *trees[] = {NULL, (char *)&shared + 8, &zero_tree, &copied_tree, &ended_tree, here(my), &foreign_tree};
    unsigned kind = pick(my, 7), page = pick(my, PAGES);
    int32_t want = kind < 2 ? PT_ERROR_POINTER : kind < 6 ? PT_ERROR_OBJECT : PT_ERROR_MACHINE;
    uint64_t va = va_of(my, page);
    struct pt_page found;
    struct pt_gather gather = {0};
    /* The CPU of the other machine is on this thread only. */
    if (kind == 6 && my->number != 0)
        return;
    struct pt_cpu *c = cpus_[kind];
    struct pt_tree *t = trees[kind];
    switch (pick(my, 16)) {
    case 0: REFUSED(pt_tree_map(&shared, c, va, DEVICE, PT_ATTR_READ), want); break;
    case 1: REFUSED(pt_tree_unmap(&shared, c, va, PAGE, NULL, NULL), want); break;
    case 2: REFUSED(pt_tree_protect(&shared, c, va, PAGE, PT_ATTR_READ), want); break;
    case 3: REFUSED(pt_tree_query(&shared, c, va, &found), want); break;
    case 4: REFUSED(pt_tree_activate(&shared, c), want); break;
    case 5: REFUSED(pt_tree_map(t, here(my), va, DEVICE, PT_ATTR_READ), want); break;
    case 6: REFUSED(pt_tree_unmap(t, here(my), va, PAGE, NULL, NULL), want); break;
    case 7: REFUSED(pt_tree_activate(t, here(my)), want); break;
    case 8: REFUSED(pt_tree_deactivate(t, here(my)), want); break;
    case 9: REFUSED(pt_tree_exit(t, here(my)), want); break;
    case 10: REFUSED(pt_tree_tables(t, here(my), 0), want); break;
    case 11: REFUSED(pt_gather_begin(&gather, here(my), (void *)t), kind == 6 ? PT_ERROR_OBJECT : want); break;
    case 12: REFUSED(pt_gather_finish((void *)t), kind == 6 ? PT_ERROR_OBJECT : want); break;
    case 13:
        if (kind < 6)
            REFUSED(pt_page_free(c, 64 * PAGE), want);
        break;
    case 14:
        if (kind < 6)
            REFUSED(pt_quicklist_free(c, ram + 64 * PAGE), want);
        break;
    default:
        if (kind < 6)
            REFUSED(pt_cpu_exit(c), want);
    }
}

static void bad_argument(struct mine *my) {
    struct pt_tree *t = tree_of(my, pick(my, TREES));
    uint64_t odd = 1 + pick(my, PAGE - 1), beyond = PT_USER_END + (uint64_t)pick(my, 4) * PAGE;
    unsigned char local[8];
    struct pt_page found;
    switch (pick(my, 10)) {
    case 0: REFUSED(pt_tree_map(t, here(my), odd, DEVICE, PT_ATTR_READ), PT_ERROR_RANGE); break;
    case 1: REFUSED(pt_tree_map(t, here(my), beyond, DEVICE, PT_ATTR_READ), PT_ERROR_RANGE); break;
    case 2: REFUSED(pt_tree_map(t, here(my), va_of(my, 0), DEVICE, PT_ATTR_DIRTY), PT_ERROR_ARGUMENT); break;
    case 3: REFUSED(pt_tree_unmap(t, here(my), odd, PAGE, NULL, NULL), PT_ERROR_RANGE); break;
    case 4: REFUSED(pt_tree_unmap(t, here(my), 0, UINT64_MAX - PAGE + 1, NULL, NULL), PT_ERROR_RANGE); break;
    case 5: REFUSED(pt_tree_query(t, here(my), beyond, &found), PT_ERROR_RANGE); break;
    case 6: REFUSED(pt_page_free(here(my), odd), PT_ERROR_RANGE); break;
    case 7: REFUSED(pt_page_free(here(my), DEVICE), PT_ERROR_FOREIGN); break;
    case 8: REFUSED(pt_quicklist_free(here(my), local), PT_ERROR_FOREIGN); break;
    default: REFUSED(pt_tree_tables(t, here(my), PT_LEVELS + pick(my, 9)), PT_ERROR_ARGUMENT);
    }
}

static uint64_t take_frame(struct mine *my) {
    return my->n_frames ? my->frames[--my->n_frames] : pt_page_alloc(here(my));
}

static void good(struct mine *my) {
    unsigned which = pick(my, TREES), page = pick(my, PAGES);
    struct pt_tree *t = tree_of(my, which);
    uint64_t va = va_of(my, page), *mapped = &my->mapped[which][page], frame;
    struct pt_page found;
    struct pt_space space = {0};
    struct pt_gather gather = {0};
    my->made++;
    switch (pick(my, 9)) {
    case 0: case 1:
        frame = pick(my, 4) ? take_frame(my) : DEVICE;
        CHECK(frame != 0);
        RETURNS(pt_tree_map(t, here(my), va, frame, PT_ATTR_READ | PT_ATTR_WRITE), *mapped ? PT_ERROR_MAPPED : PT_OK);
        if (*mapped == 0)
            *mapped = frame;
        else if (frame != DEVICE)
            OK(pt_page_free(here(my), frame)); /* it was refused, so it is still this thread's */
        break;
    case 2:
        if (*mapped && *mapped != DEVICE)
            REFUSED(pt_page_free(here(my), *mapped), PT_ERROR_IN_USE);
        OK(pt_tree_unmap(t, here(my), va, PAGE, NULL, NULL));
        *mapped = 0;
        break;
    case 3:
        RETURNS(pt_tree_query(t, here(my), va, &found), *mapped ? PT_OK : PT_ERROR_NOT_MAPPED);
        CHECK(*mapped == 0 || (found.va == va && found.phys == *mapped));
        break;
    case 4:
        if (my->n_tables == HELD)
            break;
        CHECK((my->tables[my->n_tables++] = pt_quicklist_alloc(here(my), pick(my, PT_LEVELS - 1))) != NULL);
        break;
    case 5: /* A table that was written to: refused by the lists, taken by a gather, refused again before
             * the flush. */
        if (my->n_tables == 0)
            break;
        unsigned char *table = my->tables[--my->n_tables];
        if (pick(my, 2)) {
            OK(pt_quicklist_free(here(my), table));
            break;
        }
        OK(pt_space_init(&space, here(my)));
        OK(pt_gather_begin(&gather, here(my), &space));
        REFUSED(pt_gather_begin(&gather, here(my), &space), PT_ERROR_OBJECT);
        REFUSED(pt_space_exit(&space, here(my), NULL), PT_ERROR_IN_USE);
        REFUSED(pt_cpu_exit(here(my)), PT_ERROR_IN_USE);
        table[8 * pick(my, 512)] = 1;
        REFUSED(pt_quicklist_free(here(my), table), PT_ERROR_DIRTY);
        REFUSED(pt_gather_table(&gather, table, 0), PT_ERROR_DIRTY);
        for (unsigned i = 0; i < PAGE; i += 8)
            if (table[i])
                OK(pt_table_touched(here(my), table + i));
        OK(pt_gather_table(&gather, table, 0));
        REFUSED(pt_gather_table(&gather, table, 0), PT_ERROR_FREED);
        REFUSED(pt_quicklist_free(here(my), table), PT_ERROR_FREED);
        OK(pt_gather_finish(&gather));
        REFUSED(pt_gather_finish(&gather), PT_ERROR_OBJECT);
        OK(pt_space_exit(&space, here(my), NULL));
        REFUSED(pt_space_exit(&space, here(my), NULL), PT_ERROR_OBJECT);
        break;
    case 6:
        if (my->n_frames < HELD)
            CHECK((my->frames[my->n_frames++] = pt_page_alloc(here(my))) != 0);
        break;
    case 7: OK(pick(my, 2) ? pt_tree_activate(t, here(my)) : pt_tree_deactivate(t, here(my))); break;
    default: /* A tree that ends, and is used afterwards. */
        OK(pt_tree_exit(&own[my->number], here(my)));
        memset(my->mapped[OWN], 0, sizeof my->mapped[OWN]);
        REFUSED(pt_tree_map(&own[my->number], here(my), va, DEVICE, PT_ATTR_READ), PT_ERROR_OBJECT);
        REFUSED(pt_tree_activate(&own[my->number], here(my)), PT_ERROR_OBJECT);
        REFUSED(pt_tree_exit(&own[my->number], here(my)), PT_ERROR_OBJECT);
        OK(pt_tree_init(&own[my->number], here(my)));
    }
}

static void *work(void *at) {
    struct mine *my = at;
    for (unsigned i = 0; i < CALLS; i++) {
        if (atomic_exchange(&interrupted[my->number], 0))
            OK(pt_cpu_serve(here(my)));
        unsigned turn = pick(my, 4);
        turn == 0 ? bad_object(my) : turn == 1 ? bad_argument(my) : good(my);
    }
    while (my->n_frames)
        OK(pt_page_free(here(my), my->frames[--my->n_frames]));
    while (my->n_tables)
        OK(pt_quicklist_free(here(my), my->tables[--my->n_tables]));
    OK(pt_tree_exit(&own[my->number], here(my)));
    OK(pt_tree_deactivate(&shared, here(my)));
    CHECK(my->refused > CALLS / 4 && my->made > CALLS / 3);
    /* The other one may be waiting for an answer. */
    atomic_fetch_add(&done, 1);
    while (atomic_load(&done) != 2) {
        OK(pt_cpu_serve(here(my)));
        sched_yield();
    }
    return NULL;
}

static struct pt_config two_cpus(unsigned char *memory) {
    struct pt_config config = configured();
    config.cpus = 2;
    config.direct_map = memory;
    config.hooks.send_ipi = interrupt;
    config.hooks.invalidate_page = config.hooks.load_root = forget;
    config.hooks.invalidate_all = config.hooks.invalidate_global = forget_all;
    config.hooks.wait = give_way;
    config.boot_bytes = pt_machine_bytes(&config);
    config.boot_memory = reserve(config.boot_bytes);
    return config;
}

int main(void) {
    static struct mine mine[2];
    uint64_t missing;
    pthread_t thread;
    unsigned char *foreign_ram = reserve(LOW_BYTES);
    ram = reserve(LOW_BYTES);
    struct pt_config config = two_cpus(ram), other = two_cpus(foreign_ram);
    OK(pt_machine_init(&machine, &config));
    OK(pt_machine_init(&foreign, &other));
    OK(pt_cpu_init(&foreign_cpu, &foreign, 0, 0));
    OK(pt_tree_init(&foreign_tree, &foreign_cpu));
    for (unsigned i = 0; i < 2; i++) {
        mine[i].number = i, mine[i].seed = 7 + i;
        OK(pt_cpu_init(&cpus[i], &machine, i, 0));
        OK(pt_tree_init(&own[i], &cpus[i]));
    }
    OK(pt_tree_init(&shared, &cpus[0]));
    OK(pt_tree_init(&ended_tree, &cpus[0]));
    OK(pt_tree_exit(&ended_tree, &cpus[0]));
    OK(pt_cpu_init(&ended_cpu, &foreign, 1, 0));
    OK(pt_cpu_exit(&ended_cpu));
    copied_cpu = cpus[0], copied_tree = shared;
    CHECK(pthread_create(&thread, NULL, work, &mine[1]) == 0);
    work(&mine[0]);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(pt_tree_exit(&shared, &cpus[0]));
    OK(pt_tree_exit(&foreign_tree, &foreign_cpu));
    OK(pt_cpu_exit(&foreign_cpu));
    RETURNS(pt_machine_exit(&foreign, &missing), PT_OK);
    OK(pt_cpu_exit(&cpus[1]));
    OK(pt_cpu_exit(&cpus[0]));
    RETURNS(pt_machine_exit(&machine, &missing), PT_OK);
    CHECK(missing == 0);
    puts("nothing lost");
    return 0;
}
