/* Pages that are locked, and populating. */
#include "zoo.h"
#include <sys/resource.h>

#define SIZE (4 * TABLE)

CASE(mlock_fork) {
    char *p = aligned(SIZE);
    CHECK(mlock(p, SIZE) == 0);
    fork_once();
}
CASE(mlock_read) {
    char *p = map_over(aligned(SIZE), SIZE, PROT_READ, PRIVATE, -1);
    CHECK(mlock(p, SIZE) == 0);
    fork_once();
}
CASE(mlock_none) {
    mlock(map_over(aligned(SIZE), SIZE, PROT_NONE, PRIVATE, -1), SIZE);
    fork_once();
}
CASE(mlock_gap) {
    char *p = aligned(SIZE);
    munmap(p + TABLE, PAGE);
    mlock(p, SIZE);
}
CASE(mlock_none_inside) {
    char *p = aligned(SIZE);
    mprotect(p + TABLE, PAGE, PROT_NONE);
    mlock(p, SIZE);
}
CASE(mlock_on_fault) { CHECK(syscall(SYS_mlock2, aligned(SIZE), SIZE, 1) == 0); }
CASE(mlockall_future) {
    CHECK(mlockall(MCL_FUTURE) == 0);
    map(SIZE, RW, PRIVATE);
    sbrk(SIZE);
}
CASE(mlockall_current) {
    aligned(SIZE);
    CHECK(mlockall(MCL_CURRENT) == 0);
    fork_once();
}
CASE(mlockall_both) {
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    aligned(SIZE);
    CHECK(malloc(8 * MIB) != NULL);
    fork_once();
}
CASE(map_locked) {
    map(SIZE, RW, PRIVATE | MAP_LOCKED);
    fork_once();
}
CASE(mremap_locked) { move(map(TABLE, RW, PRIVATE | MAP_LOCKED), TABLE, SIZE, 0, NULL); }
CASE(populate_beyond_end) {
    map_over(aligned(2 * SIZE), 2 * SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE, plain_file("small", TABLE));
}
CASE(sigbus) {
    char *p = map_over(aligned(2 * SIZE), 2 * SIZE, PROT_READ, MAP_SHARED, plain_file("small", TABLE));
    end_at(SIGBUS);
    read_pages(p + SIZE, 1);
}
CASE(sigsegv_read) {
    char *p = map_over(aligned(2 * SIZE), 2 * SIZE, PROT_NONE, PRIVATE, -1);
    end_at(SIGSEGV);
    read_pages(p + SIZE, 1);
}
CASE(sigsegv_write) {
    char *p = map_over(aligned(2 * SIZE), 2 * SIZE, PROT_READ, PRIVATE, -1);
    end_at(SIGSEGV);
    write_pages(p + SIZE, 1);
}
CASE(populate_write) {
    CHECK(madvise(aligned(SIZE), SIZE, ADVICE_POPULATE_WRITE) == 0);
    fork_once();
}
CASE(populate_read) {
    CHECK(madvise(aligned(SIZE), SIZE, ADVICE_POPULATE_READ) == 0);
    fork_once();
}
CASE(populate_gap) {
    char *p = aligned(SIZE);
    munmap(p + TABLE + PAGE, PAGE);
    madvise(p, SIZE, ADVICE_POPULATE_WRITE);
}
CASE(populate_file) {
    map_over(aligned(SIZE), SIZE, RW, MAP_PRIVATE | MAP_POPULATE, memory_file(SIZE));
    fork_once();
}
CASE(populate_shared) {
    map(SIZE, RW, SHARED | MAP_POPULATE);
    fork_once();
}
