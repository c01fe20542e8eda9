/* Calls that make no sense: an error for each, and everything works afterwards. */
#include "host.h"

static struct pt_tree tree;
static struct pt_space space;
static struct pt_gather gather;

/* An object of each kind that is not at its alignment. */
static void *odd(void *object) { return (char *)object + 8; }
static void visit(void *context, const struct pt_page *page) { (void)page, ++*(int *)context; }

static void configurations(void) {
    struct pt_config good = configured(), bad;
    good.boot_bytes = pt_machine_bytes(&good);
    good.boot_memory = reserve(good.boot_bytes);
    RETURNS(pt_machine_init(NULL, &good), PT_ERROR_POINTER);
    RETURNS(pt_machine_init(odd(&machine), &good), PT_ERROR_POINTER);
    RETURNS(pt_machine_init(&machine, NULL), PT_ERROR_POINTER);
    RETURNS(pt_machine_init(&machine, (void *)((char *)&good + 1)), PT_ERROR_POINTER);
    CHECK(pt_machine_bytes(NULL) == 0);
#define BAD(change, error) \
    do { \
        bad = good; \
        change; \
        RETURNS(pt_machine_init(&machine, &bad), error); \
    } while (0)
    BAD(bad.size--, PT_ERROR_SIZE);
    BAD(bad.size = 0, PT_ERROR_SIZE);
    BAD(bad.boot_bytes /= 2, PT_ERROR_BOOT_MEMORY);
    BAD(bad.boot_memory = NULL, PT_ERROR_POINTER);
    BAD(bad.boot_memory = ram + run.start, PT_ERROR_RUNS);
    BAD(bad.runs = NULL, PT_ERROR_POINTER);
    BAD(bad.runs = (void *)((char *)bad.runs + 1), PT_ERROR_POINTER);
    BAD(bad.run_count = 0, PT_ERROR_ARGUMENT);
    BAD(bad.run_count = PT_MAX_RUNS + 1, PT_ERROR_ARGUMENT);
    BAD(bad.cpus = 0, PT_ERROR_ARGUMENT);
    BAD(bad.cpus = 257, PT_ERROR_ARGUMENT);
    BAD(bad.hosted = 2, PT_ERROR_ARGUMENT);
    BAD(bad.direct_map = ram + 1, PT_ERROR_DIRECT_MAP);
    BAD(bad.kernel_root = 0, PT_ERROR_KERNEL_ROOT);
    BAD(bad.kernel_root = 8, PT_ERROR_KERNEL_ROOT);
    BAD(bad.kernel_root = LOW_BYTES, PT_ERROR_KERNEL_ROOT);
    BAD(bad.kernel_root = UINT64_MAX & ~0xfffULL, PT_ERROR_KERNEL_ROOT);
    BAD(bad.kernel_root = run.start, PT_ERROR_RUNS);
    BAD(bad.hooks.load_root = NULL, PT_ERROR_POINTER);
    BAD(bad.hooks.panic = NULL, PT_ERROR_POINTER);
    if (!IS_X86)
        BAD(bad.hooks.before_executable = NULL, PT_ERROR_POINTER);
    BAD((bad.cpus = 2, bad.hooks.send_ipi = NULL), PT_ERROR_POINTER);
    struct pt_run runs[] = {{0, PAGE, 0}};
    BAD(bad.runs = runs, PT_ERROR_RANGE);
    runs[0].start = PAGE + 1;
    BAD(bad.runs = runs, PT_ERROR_RANGE);
    runs[0].start = 16 * PAGE, runs[0].bytes = 1;
    BAD(bad.runs = runs, PT_ERROR_RANGE);
    runs[0].bytes = 0;
    BAD(bad.runs = runs, PT_ERROR_RUNS);
    runs[0].bytes = -(uint64_t)PAGE;
    BAD(bad.runs = runs, PT_ERROR_RANGE);
    struct pt_run two[] = {{64 * PAGE, 64 * PAGE, 0}, {16 * PAGE, 49 * PAGE, 0}};
    BAD((bad.runs = two, bad.run_count = 2), PT_ERROR_RUNS);
    two[1].start = 256 * PAGE, two[1].node = 3;
    BAD((bad.runs = two, bad.run_count = 2), PT_ERROR_RUNS);
    memset(&machine, 0x5a, sizeof machine);
    RETURNS(pt_machine_init(&machine, &good), PT_ERROR_OBJECT);
    memset(&machine, 0, sizeof machine);
}

/* Objects that are not there, misaligned, of another kind, and copied. */
static void objects(void) {
    struct pt_cpu copy = cpu, zero = {0};
    struct pt_counts counts;
    int32_t want = PT_ERROR_POINTER;
    void *cpus[] = {NULL, odd(&cpu), &zero, &copy, &machine}, *trees[] = {NULL, odd(&tree), &zero, &copy, &space};
    for (unsigned i = 0; i < 5; i++) {
        void *c = cpus[i], *t = trees[i], *p = ram + 64 * PAGE;
        want = i < 2 ? PT_ERROR_POINTER : PT_ERROR_OBJECT;
        RETURNS(pt_cpu_serve(c), want);
        RETURNS(pt_cpu_idle(c, 1), want);
        RETURNS(pt_cpu_error(c), want);
        RETURNS(pt_cpu_exit(c), want);
        CHECK(pt_quicklist_alloc(c, 0) == NULL);
        RETURNS(pt_quicklist_free(c, p), want);
        RETURNS(pt_quicklist_trim(c, 0, 1), want);
        RETURNS(pt_table_touched(c, p), want);
        CHECK(pt_page_alloc(c) == 0);
        RETURNS(pt_page_free(c, 64 * PAGE), want);
        CHECK(pt_kmap(c, 64 * PAGE) == NULL);
        RETURNS(pt_kunmap(c, p), want);
        RETURNS(pt_tree_map(&tree, c, PAGE, DEVICE, 1), want);
        RETURNS(pt_space_init(&space, c), want);
        RETURNS(pt_kernel_set(c, KERNEL_INDEX, 0), want);
        RETURNS(pt_kernel_flush(c, 0, 0), want);
        /* The others, with a CPU that is one. */
        RETURNS(pt_tree_map(t, &cpu, PAGE, DEVICE, 1), want);
        RETURNS(pt_tree_map_range(t, &cpu, PAGE, PAGE, DEVICE, 1), want);
        RETURNS(pt_tree_unmap(t, &cpu, PAGE, PAGE, NULL, NULL), want);
        RETURNS(pt_tree_protect(t, &cpu, PAGE, PAGE, 1), want);
        RETURNS(pt_tree_query(t, &cpu, PAGE, NULL), want);
        RETURNS(pt_tree_walk(t, &cpu, PAGE, PAGE, visit, &want), want);
        RETURNS(pt_tree_map_range_large(t, &cpu, PAGE, PAGE, DEVICE, 1, 1), want);
        RETURNS(pt_tree_split(t, &cpu, PAGE, 0), want);
        RETURNS(pt_tree_collapse(t, &cpu, 0, 1), want);
        RETURNS(pt_tree_take_dirty(t, &cpu, PAGE, PAGE, 0, visit, &want), want);
        RETURNS(pt_tree_take_accessed(t, &cpu, PAGE, PAGE, visit, &want), want);
        RETURNS(pt_tree_write_protect(t, &cpu, PAGE, PAGE, 0, visit, &want), want);
        RETURNS(pt_tree_activate(t, &cpu), want);
        RETURNS(pt_tree_deactivate(t, &cpu), want);
        RETURNS(pt_tree_tables(t, &cpu, 0), want);
        RETURNS(pt_tree_exit(t, &cpu), want);
        CHECK(pt_tree_root(t, &cpu) == 0);
        RETURNS(pt_space_activate(t, &cpu, PAGE), want);
        RETURNS(pt_space_deactivate(t, &cpu), want);
        RETURNS(pt_space_exit(t, &cpu, NULL), want);
        RETURNS(pt_gather_begin(&gather, &cpu, t), want);
        RETURNS(pt_gather_changed(t, PAGE, PAGE), want);
        RETURNS(pt_gather_table(t, p, PAGE), want);
        RETURNS(pt_gather_page(t, PAGE, 64 * PAGE), want);
        RETURNS(pt_gather_finish(t), want);
        RETURNS(pt_counts(t, &counts), want);
        CHECK(pt_quicklist_total_size(t) == 0);
        RETURNS(pt_machine_exit(t, (uint64_t *)ram), want);
    }
    RETURNS(pt_cpu_init(&zero, NULL, 0, 0), PT_ERROR_POINTER);
    RETURNS(pt_cpu_init(&zero, &machine, 1, 0), PT_ERROR_ARGUMENT);
    RETURNS(pt_cpu_init(&zero, &machine, 0, 1), PT_ERROR_ARGUMENT);
    RETURNS(pt_cpu_init(&zero, &machine, 0, 0), PT_ERROR_IN_USE);
    RETURNS(pt_cpu_init(&cpu, &machine, 0, 0), PT_ERROR_OBJECT);
    RETURNS(pt_counts(&machine, NULL), PT_ERROR_POINTER);
    RETURNS(pt_counts(&machine, (void *)((char *)&counts + 1)), PT_ERROR_POINTER);
    RETURNS(pt_machine_exit(&machine, NULL), PT_ERROR_POINTER);
    RETURNS(pt_machine_exit(&machine, (uint64_t *)ram), PT_ERROR_IN_USE); /* its CPU has not ended */
}

static void tables(void) {
    RETURNS(pt_cpu_error(&cpu), PT_OK);
    CHECK(pt_quicklist_alloc(&cpu, PT_LEVELS) == NULL);
    RETURNS(pt_cpu_error(&cpu), PT_ERROR_ARGUMENT);
    unsigned char *table = pt_quicklist_alloc(&cpu, 0), local[8];
    uint64_t frame = pt_page_alloc(&cpu);
    CHECK(table && frame);
    for (unsigned i = 0; i < PAGE; i++)
        CHECK(table[i] == 0);
    /* Not the beginning of a page, or a page from elsewhere. */
    RETURNS(pt_quicklist_free(&cpu, NULL), PT_ERROR_FOREIGN);
    RETURNS(pt_quicklist_free(&cpu, table + 8), PT_ERROR_POINTER);
    RETURNS(pt_quicklist_free(&cpu, table + 1), PT_ERROR_POINTER);
    RETURNS(pt_quicklist_free(&cpu, local), PT_ERROR_FOREIGN);
    RETURNS(pt_quicklist_free(&cpu, ram), PT_ERROR_FOREIGN);
    RETURNS(pt_quicklist_free(&cpu, ram + LOW_BYTES), PT_ERROR_FOREIGN);
    RETURNS(pt_quicklist_free(&cpu, (void *)UINTPTR_MAX), PT_ERROR_FOREIGN);
    RETURNS(pt_quicklist_free(&cpu, ram + frame), PT_ERROR_FOREIGN);
    RETURNS(pt_quicklist_free(&cpu, ram + LOW_BYTES / 2), PT_ERROR_FOREIGN); /* never handed out */
    RETURNS(pt_page_free(&cpu, (uint64_t)(table - ram)), PT_ERROR_FOREIGN);
    RETURNS(pt_page_free(&cpu, frame + 8), PT_ERROR_RANGE);
    RETURNS(pt_page_free(&cpu, UINT64_MAX), PT_ERROR_RANGE);
    RETURNS(pt_page_free(&cpu, UINT64_C(1) << 60), PT_ERROR_RANGE);
    RETURNS(pt_page_free(&cpu, DEVICE), PT_ERROR_FOREIGN);
    RETURNS(pt_page_free(&cpu, 0), PT_ERROR_FOREIGN);
    /* Not zero, written to, twice. */
    table[4095] = 1;
    RETURNS(pt_quicklist_free(&cpu, table), PT_ERROR_DIRTY);
    table[4095] = 0;
    OK(pt_table_touched(&cpu, table + 16));
    RETURNS(pt_quicklist_free(&cpu, table), PT_ERROR_UNFLUSHED);
    RETURNS(pt_table_touched(&cpu, ram + frame), PT_ERROR_FOREIGN);
    RETURNS(pt_table_touched(&cpu, local), PT_ERROR_FOREIGN);
    OK(pt_space_init(&space, &cpu));
    OK(pt_gather_begin(&gather, &cpu, &space));
    RETURNS(pt_gather_begin(&gather, &cpu, &space), PT_ERROR_OBJECT);
    RETURNS(pt_cpu_exit(&cpu), PT_ERROR_IN_USE);
    RETURNS(pt_space_exit(&space, &cpu, NULL), PT_ERROR_IN_USE);
    table[1024] = 1; /* not told */
    RETURNS(pt_gather_table(&gather, table, 0), PT_ERROR_DIRTY);
    table[1024] = 0;
    RETURNS(pt_gather_table(&gather, table + 8, 0), PT_ERROR_POINTER);
    RETURNS(pt_gather_table(&gather, table, PT_USER_END), PT_ERROR_RANGE);
    RETURNS(pt_gather_table(&gather, table, 1), PT_ERROR_RANGE);
    OK(pt_gather_table(&gather, table, 0));
    RETURNS(pt_gather_table(&gather, table, 0), PT_ERROR_FREED);
    RETURNS(pt_quicklist_free(&cpu, table), PT_ERROR_FREED); /* before the flush */
    RETURNS(pt_table_touched(&cpu, table), PT_ERROR_FREED);
    OK(pt_gather_page(&gather, 0, frame));
    RETURNS(pt_gather_page(&gather, 0, frame), PT_ERROR_FREED);
    RETURNS(pt_gather_page(&gather, PT_USER_END, frame), PT_ERROR_RANGE);
    RETURNS(pt_page_free(&cpu, frame), PT_ERROR_FREED);
    RETURNS(pt_gather_changed(&gather, PT_USER_END, PAGE), PT_ERROR_RANGE);
    RETURNS(pt_gather_changed(&gather, PAGE, UINT64_MAX - PAGE + 1), PT_ERROR_RANGE);
    OK(pt_gather_finish(&gather));
    RETURNS(pt_gather_finish(&gather), PT_ERROR_OBJECT);
    RETURNS(pt_quicklist_free(&cpu, table), PT_ERROR_FREED);
    RETURNS(pt_space_activate(&space, &cpu, 8), PT_ERROR_RANGE);
    RETURNS(pt_space_activate(&space, &cpu, 0), PT_ERROR_RANGE);
    OK(pt_space_activate(&space, &cpu, KERNEL_ROOT));
    RETURNS(pt_space_exit(&space, &cpu, NULL), PT_ERROR_IN_USE);
    OK(pt_space_deactivate(&space, &cpu));
    table = pt_quicklist_alloc(&cpu, 0);
    RETURNS(pt_space_exit(&space, &cpu, table), PT_ERROR_ARGUMENT);
    OK(pt_quicklist_free(&cpu, table));
    RETURNS(pt_quicklist_free(&cpu, table), PT_ERROR_FREED);
    OK(pt_space_exit(&space, &cpu, NULL));
    RETURNS(pt_space_exit(&space, &cpu, NULL), PT_ERROR_OBJECT);
    CHECK(pt_kmap(&cpu, 0) == NULL);
    RETURNS(pt_cpu_error(&cpu), PT_ERROR_FOREIGN);
    RETURNS(pt_kunmap(&cpu, local), (uintptr_t)local % PAGE ? PT_ERROR_RANGE : PT_ERROR_FOREIGN);
    RETURNS(pt_kunmap(&cpu, ram + PAGE), PT_ERROR_FOREIGN);
}

static void reenter(void *context, const struct pt_page *page) {
    ++*(int *)context;
    RETURNS(pt_tree_unmap(&tree, &cpu, page->va, PAGE, NULL, NULL), PT_ERROR_BUSY);
    RETURNS(pt_tree_map(&tree, &cpu, page->va, DEVICE, 1), PT_ERROR_BUSY);
    RETURNS(pt_tree_exit(&tree, &cpu), PT_ERROR_BUSY);
    RETURNS(pt_tree_activate(&tree, &cpu), PT_ERROR_BUSY);
}

static void trees(void) {
    struct pt_page found;
    uint32_t rw = PT_ATTR_READ | PT_ATTR_WRITE | PT_ATTR_USER;
    int calls = 0;
    OK(pt_tree_init(&tree, &cpu));
    RETURNS(pt_tree_init(&tree, &cpu), PT_ERROR_OBJECT);
    uint64_t frame = pt_page_alloc(&cpu), other = pt_page_alloc(&cpu);
    RETURNS(pt_tree_map(&tree, &cpu, 1, frame, rw), PT_ERROR_RANGE);
    RETURNS(pt_tree_map(&tree, &cpu, PT_USER_END, frame, rw), PT_ERROR_RANGE);
    RETURNS(pt_tree_map(&tree, &cpu, UINT64_MAX - PAGE + 1, frame, rw), PT_ERROR_RANGE);
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, frame + 1, rw), PT_ERROR_RANGE);
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, UINT64_C(1) << 52, rw), PT_ERROR_RANGE);
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, frame, 16), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, frame, 1u << 31), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, LOW_BYTES / 2, rw), PT_ERROR_FOREIGN); /* free memory */
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, pt_tree_root(&tree, &cpu) & ~(uint64_t)0xfff, rw), PT_ERROR_FOREIGN);
    unsigned char *table = pt_quicklist_alloc(&cpu, 0);
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, (uint64_t)(table - ram), rw), PT_ERROR_FOREIGN);
    OK(pt_quicklist_free(&cpu, table));
    OK(pt_tree_map(&tree, &cpu, PAGE, frame, rw));
    RETURNS(pt_tree_map(&tree, &cpu, PAGE, other, rw), PT_ERROR_MAPPED);
    RETURNS(pt_tree_map(&tree, &cpu, 2 * PAGE, frame, rw), PT_ERROR_IN_USE);
    RETURNS(pt_page_free(&cpu, frame), PT_ERROR_IN_USE);
    RETURNS(pt_tree_map_range(&tree, &cpu, 0, 2 * PAGE, DEVICE, rw), PT_ERROR_MAPPED);
    RETURNS(pt_tree_query(&tree, &cpu, 0, &found), PT_ERROR_NOT_MAPPED); /* nothing is left behind */
    RETURNS(pt_tree_map_range(&tree, &cpu, 4 * PAGE, 2 * PAGE, other, rw), PT_ERROR_FOREIGN);
    RETURNS(pt_tree_map_range(&tree, &cpu, 4 * PAGE, UINT64_MAX - PAGE + 1, DEVICE, rw), PT_ERROR_RANGE);
    RETURNS(pt_tree_query(&tree, &cpu, PAGE, NULL), PT_ERROR_POINTER);
    RETURNS(pt_tree_query(&tree, &cpu, PAGE, (void *)((char *)&found + 1)), PT_ERROR_POINTER);
    RETURNS(pt_tree_query(&tree, &cpu, PT_USER_END, &found), PT_ERROR_RANGE);
    RETURNS(pt_tree_walk(&tree, &cpu, 0, PAGE, NULL, NULL), PT_ERROR_POINTER);
    RETURNS(pt_tree_tables(&tree, &cpu, PT_LEVELS), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_protect(&tree, &cpu, PAGE, PAGE, 128), PT_ERROR_ARGUMENT);
    RETURNS(pt_tree_protect(&tree, &cpu, 1, PAGE, 1), PT_ERROR_RANGE);
    OK(pt_tree_query(&tree, &cpu, PAGE + 5, &found));
    CHECK(found.va == PAGE && found.phys == frame && found.attr == (rw | NOTED));
    OK(pt_tree_activate(&tree, &cpu));
    CHECK(hooks.root == pt_tree_root(&tree, &cpu));
    OK(pt_tree_walk(&tree, &cpu, 0, 16 * PAGE, reenter, &calls));
    unsigned pages = hooks.pages, alls = hooks.alls;
    OK(pt_tree_unmap(&tree, &cpu, PAGE, PAGE, reenter, &calls));
    CHECK(calls == 2 && hooks.pages + hooks.alls == pages + alls + 1);
    CHECK(hooks.alls > alls || hooks.va == PAGE); /* RISC-V: all, as tables were freed */
    RETURNS(pt_page_free(&cpu, frame), PT_ERROR_FREED); /* the unmap gave it back */
    OK(pt_tree_map(&tree, &cpu, PAGE, other, rw));
    uint64_t missing;
    RETURNS(pt_machine_exit(&machine, &missing), PT_ERROR_IN_USE);
    OK(pt_tree_exit(&tree, &cpu));
    CHECK(hooks.root == KERNEL_ROOT);
    RETURNS(pt_tree_exit(&tree, &cpu), PT_ERROR_OBJECT);
    RETURNS(pt_page_free(&cpu, other), PT_ERROR_FREED);
    RETURNS(pt_kernel_set(&cpu, 0, 0), PT_ERROR_RANGE);
    RETURNS(pt_kernel_set(&cpu, 512, 0), PT_ERROR_RANGE);
    RETURNS(pt_kernel_set(&cpu, UINT32_MAX, 0), PT_ERROR_RANGE);
    RETURNS(pt_kernel_flush(&cpu, 1, PAGE), PT_ERROR_RANGE);
    OK(pt_kernel_flush(&cpu, PT_USER_END, PAGE));
    OK(pt_kernel_flush(&cpu, 0, 0));
    CHECK(hooks.globals == 1);
    CHECK(strcmp(pt_error_text(1), "no error") == 0 && strcmp(pt_error_text(-99), "no error of this library") == 0);
}

/* All memory, to the last frame: NULL then, and all of it comes back. */
static void exhaustion(void) {
    static uint64_t frames[LOW_BYTES / PAGE];
    size_t n = 0;
    while ((frames[n] = pt_page_alloc(&cpu)) != 0)
        n++;
    RETURNS(pt_cpu_error(&cpu), PT_ERROR_NO_MEMORY);
    while (pt_quicklist_alloc(&cpu, 0)) /* what rests in the lists */
        CHECK(n < LOW_BYTES / PAGE);
    RETURNS(pt_cpu_error(&cpu), PT_ERROR_NO_MEMORY);
    RETURNS(pt_tree_init(&tree, &cpu), PT_ERROR_NO_MEMORY);
    struct pt_counts counts;
    OK(pt_counts(&machine, &counts));
    CHECK(n > counts.frames * 9 / 10);
    while (n > 0)
        OK(pt_page_free(&cpu, frames[--n]));
}

int main(void) {
    ram = reserve(LOW_BYTES);
    configurations();
    begin(configured());
    objects();
    tables();
    trees();
    finish();
    uint64_t missing;
    RETURNS(pt_cpu_serve(&cpu), PT_ERROR_OBJECT);
    RETURNS(pt_machine_exit(&machine, &missing), PT_ERROR_OBJECT);
    begin(configured()); /* ended objects may be initialised again */
    exhaustion();
    OK(pt_cpu_exit(&cpu));
    struct pt_counts counts;
    OK(pt_counts(&machine, &counts));
    RETURNS(pt_machine_exit(&machine, &missing), counts.tables ? PT_ERROR_IN_USE : PT_OK);
    CHECK(missing == counts.tables);
    puts("all refused");
    return 0;
}
