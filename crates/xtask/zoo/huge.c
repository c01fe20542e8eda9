/* Huge pages: transparent, of files, of hugetlbfs. */
#include "zoo.h"

#define SIZE (8 * TABLE)

static char *wanted(void) {
    char *p = aligned(SIZE);
    CHECK(madvise(p, SIZE, MADV_HUGEPAGE) == 0);
    return p;
}

static char *written(void) {
    char *p = wanted();
    write_each(p, SIZE, TABLE);
    return p;
}

CASE(thp_write) { written(); }
CASE(thp_write_fork) {
    written();
    fork_once();
}
CASE(thp_read) { read_each(wanted(), SIZE, TABLE); }
CASE(thp_read_fork) {
    thp_read();
    fork_once();
}
CASE(thp_unmap_parts) {
    char *p = written();
    munmap(p + TABLE / 2, PAGE);
    munmap(p + 2 * TABLE, TABLE);
    munmap(p + 4 * TABLE + PAGE, 2 * TABLE);
}
CASE(thp_dontneed) {
    char *p = written();
    madvise(p + TABLE, TABLE, MADV_DONTNEED);
    madvise(p + 3 * TABLE, TABLE + PAGE, MADV_DONTNEED);
    madvise(p + 5 * TABLE + PAGE, TABLE, MADV_DONTNEED);
}
CASE(thp_free) {
    char *p = written();
    CHECK(madvise(p, 4 * TABLE, MADV_FREE) == 0);
    CHECK(madvise(p + 4 * TABLE, TABLE / 2, MADV_FREE) == 0);
}
CASE(thp_mprotect) {
    char *p = written();
    mprotect(p + TABLE, TABLE, PROT_READ);
    mprotect(p + 3 * TABLE, TABLE / 2, PROT_NONE);
}
CASE(thp_mremap) {
    char *p = written();
    move(p, 4 * TABLE, 4 * TABLE, MREMAP_FIXED, aligned(SIZE));
    move(p + 4 * TABLE, 2 * TABLE, 2 * TABLE, MREMAP_FIXED, aligned(4 * TABLE) + 3 * PAGE);
}
CASE(thp_collapse) {
    char *p = aligned(SIZE);
    write_pages(p, SIZE);
    CHECK(madvise(p, SIZE, ADVICE_COLLAPSE) == 0);
    fork_once();
}
/* Nobody asks for these: they are huge with `transparent_hugepage=always`. */
CASE(unasked_parts) {
    char *p = aligned(SIZE);
    write_pages(p, 2 * TABLE);
    write_each(p + 2 * TABLE, 4 * TABLE, TABLE);
    read_each(p + 6 * TABLE, TABLE, TABLE);
    fork_once();
    write_each(p, 4 * TABLE, TABLE);
    madvise(p + TABLE, TABLE / 2, MADV_DONTNEED);
    munmap(p + 3 * TABLE + PAGE, PAGE);
    mprotect(p + 4 * TABLE, PAGE, PROT_READ);
    CHECK(madvise(p + 5 * TABLE, TABLE, MADV_NOHUGEPAGE) == 0);
    write_pages(p + 6 * TABLE, TABLE);
    fork_once();
}
CASE(unasked_refused) {
    char *p = aligned(SIZE);
    CHECK(madvise(p, SIZE, MADV_NOHUGEPAGE) == 0);
    write_each(p, SIZE, TABLE);
    write_each(map_over(aligned(SIZE), SIZE, RW, PRIVATE | MAP_STACK, -1), SIZE, TABLE);
    fork_once();
}
CASE_BUT(thp_shared_collapse, "huge pages of shared memory raise no event") {
    char *p = map_over(aligned(SIZE), SIZE, RW, MAP_SHARED, memory_file(SIZE));
    write_pages(p, SIZE);
    CHECK(madvise(p, SIZE, ADVICE_COLLAPSE) == 0);
}
CASE_BUT(thp_shared, "huge pages of shared memory raise no event") {
    char *p = map_over(aligned(SIZE), SIZE, RW, MAP_SHARED, memory_file(SIZE));
    CHECK(madvise(p, SIZE, MADV_HUGEPAGE) == 0);
    write_pages(p, SIZE);
}
/* Small pages come first, and khugepaged may join them. */
CASE(khugepaged) {
    char *p = aligned(16 * TABLE);
    CHECK(madvise(p, 16 * TABLE, MADV_HUGEPAGE) == 0);
    for (int i = 0; i < 16; i++) {
        mprotect(p + i * TABLE + PAGE, TABLE - PAGE, PROT_NONE);
    }
    write_each(p, 16 * TABLE, TABLE);
    mprotect(p, 16 * TABLE, RW);
    write_pages(p, 16 * TABLE);
    sleep(2);
    fork_once();
}

/* A file of 64 MiB, not in the page cache. */
static int large_file(void) {
    int file = plain_file("large", 0);
    char *block = malloc(8 * MIB);
    memset(block, 1, 8 * MIB);
    for (int i = 0; i < 8; i++) {
        CHECK(write(file, block, 8 * MIB) == 8 * MIB);
    }
    free(block);
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    return file;
}

CASE_BUT(file_huge, "huge pages of files raise no event") {
    int file = large_file();
    char *block = malloc(8 * MIB);
    for (int i = 0; i < 8; i++) {
        CHECK(pread(file, block, 8 * MIB, i * 8 * MIB) == 8 * MIB);
    }
    read_pages(map_over(aligned(64 * MIB), 64 * MIB, PROT_READ, MAP_SHARED, file), 64 * MIB);
}
CASE_BUT(file_huge_wanted, "huge pages of files raise no event") {
    char *p = map_over(aligned(64 * MIB), 64 * MIB, PROT_READ | PROT_EXEC, MAP_SHARED, large_file());
    CHECK(madvise(p, 64 * MIB, MADV_HUGEPAGE) == 0);
    read_pages(p, 64 * MIB);
}
CASE_BUT(file_collapse, "huge pages of files raise no event") {
    char *p = map_over(aligned(64 * MIB), 64 * MIB, PROT_READ | PROT_EXEC, MAP_PRIVATE, large_file());
    read_pages(p, 64 * MIB);
    madvise(p, 64 * MIB, ADVICE_COLLAPSE);
    read_pages(p, 64 * MIB);
    fork_once();
}
static void hugetlb(int kind) {
    char *p = mmap(NULL, 4 * TABLE, RW, kind | MAP_HUGETLB, -1, 0);
    if (p == MAP_FAILED) {
        perror("huge pages");
        return;
    }
    write_pages(p, 4 * TABLE);
    fork_once();
    munmap(p, TABLE);
}
CASE(hugetlb_private) { hugetlb(PRIVATE); }
CASE(hugetlb_shared) { hugetlb(SHARED); }
