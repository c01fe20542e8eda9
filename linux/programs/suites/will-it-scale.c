/* The suite `will-it-scale-like`: one process on one CPU does what the descriptions of
 * will-it-scale's test cases say (github.com/antonblanchard/will-it-scale). Files and memory are 16
 * MiB, not 128 MiB, but where nothing is touched, so that a round is short. Where the original has
 * processes on all CPUs, there is one: no result of this suite is one of its. */
#include "suite.h"

#define SIZE (16 * MIB)
#define UNTOUCHED (128 * MIB)

static int empty_file(size_t size) {
    int file = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, size))
        fail("/tmp/file");
    unlink("/tmp/file");
    return file;
}

/* Maps, writes each page, unmaps. */
static long write_pages(int flags, int file) {
    begin();
    char *memory = map_at(0, SIZE, PROT_READ | PROT_WRITE, flags, file);
    write_each(memory, SIZE, PAGE);
    most();
    munmap(memory, SIZE);
    end();
    return SIZE / PAGE;
}

static long page_fault1(void) { return write_pages(MAP_PRIVATE | MAP_ANONYMOUS, -1); }

/* The pages of the file are there from the second turn on, as they are in the original. */
static long write_file(int flags) {
    int file = file_of(SIZE);
    long pages = write_pages(flags, file);
    close(file);
    return pages;
}

static long page_fault2(void) { return write_file(MAP_PRIVATE); }
static long page_fault3(void) { return write_file(MAP_SHARED); }

static long map_unmap(int flags, int file) {
    for (int i = 0; i < 64; i++) {
        begin();
        munmap(map_at(0, UNTOUCHED, PROT_READ | PROT_WRITE, flags, file), UNTOUCHED);
        end();
    }
    return 64;
}

static long mmap1(void) { return map_unmap(MAP_PRIVATE | MAP_ANONYMOUS, -1); }

static long mmap2(void) {
    int file = empty_file(UNTOUCHED);
    map_unmap(MAP_PRIVATE, file);
    close(file);
    return 64;
}

/* Up and down by a page: two operations. */
static long brk1(void) {
    char *at = sbrk(0);
    begin();
    for (int i = 0; i < 100; i++) {
        (void)!brk(at + PAGE);
        (void)!brk(at);
    }
    end();
    return 200;
}

static long measure_drops(size_t size, int flags, int file, char after) {
    begin();
    drop_pages(size, flags, file, after);
    end();
    return size / PAGE;
}

static long drop_file(int flags, char after) {
    /* file_of() writes a one to each page; those of the original are holes. */
    int file = empty_file(SIZE);
    long pages = measure_drops(SIZE, flags, file, after);
    close(file);
    return pages;
}

static long tlb_flush1(void) { return drop_file(MAP_PRIVATE, 0); }
static long tlb_flush2(void) { return measure_drops(MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static long tlb_flush3(void) { return drop_file(MAP_SHARED, 7); }

static long fork1(void) { return forks(32); }

static long threadspawn1(void) { return threads(32); }

static const struct suite_case cases[] = {
    {"page_fault1", "page", page_fault1}, {"page_fault2", "page", page_fault2}, {"page_fault3", "page", page_fault3},
    {"mmap1", "operation", mmap1},        {"mmap2", "operation", mmap2},        {"brk1", "operation", brk1},
    {"tlb_flush1", "page", tlb_flush1},   {"tlb_flush2", "page", tlb_flush2},   {"tlb_flush3", "page", tlb_flush3},
    {"fork1", "operation", fork1},        {"threadspawn1", "operation", threadspawn1},
};

int main(void) { run_suite(cases, sizeof cases / sizeof *cases); }
