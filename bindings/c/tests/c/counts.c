/* Counts: each frame is in one of them after every call, whatever rests on which CPU. */
#include "host.h"

#define CPUS 2
#define MOST 900
#define TREE_PAGES 4096

static struct pt_cpu cpus[CPUS];
static struct pt_tree tree;
static uint64_t frames[MOST];
static void *tables[MOST];
static unsigned frame_count, table_count;

static void step(struct pt_cpu *here) {
    uint64_t va = (uint64_t)below(TREE_PAGES) * 33 * PAGE, frame;
    switch (below(8)) {
    case 0:
    case 1:
        if (frame_count < MOST && (frame = pt_page_alloc(here)) != 0)
            frames[frame_count++] = frame;
        break;
    case 2:
        if (frame_count > 0)
            OK(pt_page_free(here, frames[--frame_count]));
        break;
    case 3:
        if (table_count < MOST && (tables[table_count] = pt_quicklist_alloc(here, 0)) != NULL)
            table_count++;
        break;
    case 4:
        if (table_count > 0)
            OK(pt_quicklist_free(here, tables[--table_count]));
        break;
    case 5:
        frame = pt_page_alloc(here);
        if (frame != 0 && pt_tree_map(&tree, here, va, frame, PT_ATTR_READ | PT_ATTR_USER) != PT_OK)
            OK(pt_page_free(here, frame));
        break;
    case 6:
        OK(pt_tree_unmap(&tree, here, va, 64 * PAGE, NULL, NULL));
        break;
    default:
        CHECK(pt_cpu_idle(here, below(32)) >= 0);
    }
}

int main(void) {
    ram = reserve(LOW_BYTES);
    struct pt_config config = configured();
    config.cpus = CPUS;
    config.boot_bytes = pt_machine_bytes(&config);
    config.boot_memory = reserve(config.boot_bytes);
    OK(pt_machine_init(&machine, &config));
    for (unsigned i = 0; i < CPUS; i++)
        OK(pt_cpu_init(&cpus[i], &machine, i, 0));
    struct pt_counts counts = added_up();
    CHECK(counts.pages == 0 && counts.cached_pages == 0 && counts.tables == 0);
    OK(pt_tree_init(&tree, &cpus[0]));
    for (unsigned i = 0; i < 20000; i++) {
        step(&cpus[below(CPUS)]);
        added_up();
    }
    CHECK(pt_quicklist_trim(&cpus[0], 0, UINT64_MAX) >= 0);
    counts = added_up();
    CHECK(counts.pages > frame_count && counts.tables > table_count);
    while (frame_count > 0)
        OK(pt_page_free(&cpus[0], frames[--frame_count]));
    while (table_count > 0)
        OK(pt_quicklist_free(&cpus[1], tables[--table_count]));
    OK(pt_tree_exit(&tree, &cpus[0]));
    /* Nothing is in use, and CPUs hold frames. */
    counts = added_up();
    CHECK(counts.pages == 0 && counts.tables == 0 && counts.cached_pages > 0);
    for (unsigned i = 0; i < CPUS; i++)
        OK(pt_cpu_exit(&cpus[i]));
    counts = added_up();
    CHECK(counts.cached_pages == 0 && counts.free_frames + counts.own_frames == counts.frames);
    uint64_t missing;
    OK(pt_machine_exit(&machine, &missing));
    puts("added up");
    return 0;
}
