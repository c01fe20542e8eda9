/* madvise and process_madvise. */
#include "zoo.h"
#include <sys/uio.h>

#define SIZE (8 * TABLE)

static char *written(void) {
    char *p = aligned(SIZE);
    write_pages(p, SIZE);
    return p;
}

CASE(dontneed) {
    char *p = written();
    madvise(p, TABLE, MADV_DONTNEED);
    madvise(p + TABLE + PAGE, TABLE, MADV_DONTNEED);
    madvise(p + 3 * TABLE + PAGE, 2 * TABLE, MADV_DONTNEED);
    madvise(p + 6 * TABLE, 2 * TABLE, MADV_DONTNEED);
}
CASE(dontneed_shared) {
    char *p = map_over(aligned(SIZE), SIZE, RW, SHARED, -1);
    write_pages(p, SIZE);
    madvise(p, TABLE, MADV_DONTNEED);
    madvise(p + 3 * TABLE + PAGE, 2 * TABLE, MADV_DONTNEED);
}
CASE(dontneed_two_areas) {
    char *p = written();
    mprotect(p + TABLE / 2, TABLE, PROT_READ);
    madvise(p, SIZE, MADV_DONTNEED);
}
CASE(dontneed_locked) {
    char *p = aligned(4 * TABLE);
    mlock(p, 4 * TABLE);
    madvise(p, 4 * TABLE, MADV_DONTNEED);
    madvise(p, TABLE, ADVICE_DONTNEED_LOCKED);
}
CASE(dontneed_gap) {
    char *p = written();
    munmap(p + 4 * TABLE, PAGE);
    madvise(p, SIZE, MADV_DONTNEED);
}
CASE(advice_free) { madvise(written(), SIZE, MADV_FREE); }
CASE(pageout) {
    char *p = written();
    madvise(p, SIZE, ADVICE_PAGEOUT);
    madvise(p, SIZE, ADVICE_COLD);
}
CASE(advice_remove) {
    int file = memory_file(4 * TABLE);
    char *p = map_over(aligned(4 * TABLE), 4 * TABLE, RW, MAP_SHARED, file);
    write_pages(p, 4 * TABLE);
    CHECK(madvise(p, 2 * TABLE, MADV_REMOVE) == 0);
    CHECK(ftruncate(file, TABLE) == 0);
}
CASE(process_dontneed) {
    char *p = written();
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec part = {p, 4 * TABLE};
    CHECK(syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0) == (long)part.iov_len);
}
CASE(guard_install) {
    CHECK(madvise(aligned(4 * TABLE), 4 * TABLE, ADVICE_GUARD_INSTALL) == 0);
    fork_once();
}
CASE(guard_remove) {
    char *p = aligned(4 * TABLE);
    write_pages(p, 4 * TABLE);
    CHECK(madvise(p, 2 * TABLE, ADVICE_GUARD_INSTALL) == 0);
    fork_once();
    CHECK(madvise(p, TABLE, ADVICE_GUARD_REMOVE) == 0);
    write_pages(p, TABLE);
}
CASE(dontfork) {
    char *p = written();
    madvise(p + TABLE, 2 * TABLE, MADV_DONTFORK);
    madvise(p + 4 * TABLE, 2 * TABLE, MADV_WIPEONFORK);
    fork_once();
}
CASE(mergeable) {
    char *p = written();
    madvise(p, SIZE, MADV_MERGEABLE);
    fork_once();
}
