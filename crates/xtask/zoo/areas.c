/* Which areas are one, and what fork copies of them. */
#include "zoo.h"
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>

#define SIZE (8 * TABLE)

/* Reads all, writes the first page. Fork copies the tables of the area that it is in. */
static void read_and_write(char *p) {
    read_pages(p, SIZE);
    p[0] = 1;
    fork_once();
}

CASE(nothing) {}
CASE(read_fork) {
    char *p = aligned(SIZE);
    read_pages(p, SIZE);
    fork_once();
    write_pages(p, TABLE);
    fork_once();
}
CASE(map_over_written) {
    char *p = aligned(2 * SIZE);
    write_pages(p, 2 * SIZE);
    for (int i = 0; i < 8; i++) {
        map_over(p + i * TABLE + i * PAGE, TABLE, RW, PRIVATE, -1);
    }
    map_over(p + 9 * TABLE, PAGE, PROT_READ, PRIVATE, -1);
    map_over(p + 10 * TABLE, 3 * TABLE, PROT_NONE, PRIVATE, -1);
}
/* MAP_FIXED_NOREPLACE fails at once; MAP_HUGETLB without huge pages when what was there is gone. */
CASE(map_fails) {
    char *p = aligned(4 * TABLE);
    write_pages(p, 4 * TABLE);
    mmap(p, TABLE, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
    mmap(p + TABLE, TABLE, RW, PRIVATE | MAP_FIXED | MAP_HUGETLB, -1, 0);
    mmap(p, TABLE, PROT_READ, MAP_SHARED | MAP_FIXED, open(".", O_RDONLY), 0);
    fork_once();
}
CASE(protect_back_and_forth) {
    char *p = aligned(SIZE);
    for (int i = 0; i < 2000; i++) {
        char *page = p + (i * 37 % 4096) * PAGE;
        mprotect(page, PAGE, RW);
        *page = 1;
        mprotect(page, PAGE, PROT_READ | PROT_EXEC);
    }
    fork_once();
}
CASE(protect_none) {
    char *p = aligned(4 * TABLE);
    write_pages(p, 4 * TABLE);
    mprotect(p, 4 * TABLE, PROT_NONE);
    fork_once();
    mprotect(p, 4 * TABLE, PROT_READ);
    read_pages(p, 4 * TABLE);
    fork_once();
    mprotect(p, 4 * TABLE, RW);
    write_pages(p, 4 * TABLE);
    fork_once();
}
CASE(protect_gap) {
    char *p = aligned(4 * TABLE);
    write_pages(p, 4 * TABLE);
    munmap(p + 2 * TABLE, PAGE);
    mprotect(p, 4 * TABLE, PROT_READ);
    fork_once();
}
CASE(protect_gap_unwritten) {
    char *p = aligned(4 * TABLE);
    read_pages(p, 4 * TABLE);
    munmap(p + 2 * TABLE, PAGE);
    mprotect(p + TABLE, 2 * TABLE, PROT_READ);
    p[0] = 1;
    fork_once();
}
CASE(split_and_join) {
    char *p = aligned(SIZE);
    read_pages(p, SIZE);
    mprotect(p + SIZE / 2, SIZE / 2, PROT_READ);
    p[0] = 1;
    fork_once();
    mprotect(p + SIZE / 2, SIZE / 2, RW);
    fork_once();
    p[7 * TABLE] = 1;
    fork_once();
}
CASE(part_dontdump) {
    char *p = aligned(SIZE);
    CHECK(madvise(p + SIZE / 2, SIZE / 2, MADV_DONTDUMP) == 0);
    read_and_write(p);
}
CASE(part_nohugepage) {
    char *p = aligned(SIZE);
    CHECK(madvise(p + SIZE / 2, SIZE / 2, MADV_NOHUGEPAGE) == 0);
    read_and_write(p);
}
CASE(part_sequential) {
    char *p = aligned(SIZE);
    CHECK(madvise(p + SIZE / 2, SIZE / 2, MADV_SEQUENTIAL) == 0);
    read_and_write(p);
}
CASE(part_noreserve) {
    char *p = aligned(SIZE);
    map_over(p + SIZE / 2, SIZE / 2, RW, PRIVATE | MAP_NORESERVE, -1);
    read_and_write(p);
}
/* Names of anonymous areas keep them apart, where the kernel has them. */
CASE(part_named) {
    char *p = aligned(SIZE);
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p + SIZE / 2, SIZE / 2, "zoo");
    read_and_write(p);
}
CASE(part_locked) {
    char *p = aligned(SIZE);
    read_pages(p, SIZE);
    syscall(SYS_mlock2, p, PAGE, 0);
    fork_once();
}
CASE(part_key) {
    char *p = aligned(4 * TABLE);
    read_pages(p, 4 * TABLE);
    int key = syscall(SYS_pkey_alloc, 0, 0);
    if (key > 0) {
        syscall(SYS_pkey_mprotect, p + TABLE, TABLE, RW, key);
    }
    p[0] = 1;
    fork_once();
}
/* Two files, one after the other, with offsets that continue. */
CASE(files_beside) {
    char *p = aligned(2 * TABLE);
    map_over(p, 32 * PAGE, RW, MAP_PRIVATE, memory_file(TABLE));
    char *q = mmap(p + 32 * PAGE, 16 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, memory_file(TABLE), 32 * PAGE);
    read_pages(q, 2 * PAGE);
    p[0] = 1;
    fork_once();
}
CASE(private_file) {
    char *p = map_over(aligned(TABLE), MIB, RW, MAP_PRIVATE, memory_file(MIB));
    read_pages(p, MIB);
    fork_once();
    p[0] = 1;
    fork_once();
}
CASE(private_file_read_only) {
    char *p = map_over(aligned(TABLE), TABLE, PROT_READ, MAP_PRIVATE, plain_file("small", TABLE));
    read_pages(p, TABLE);
    fork_once();
}
CASE(shared_fork) {
    char *p = map_over(aligned(4 * TABLE), 4 * TABLE, RW, SHARED, -1);
    write_pages(p, 4 * TABLE);
    fork_once();
}
CASE(remap_pages) {
    char *p = map_over(aligned(SIZE), SIZE, RW, MAP_SHARED, memory_file(SIZE));
    write_pages(p, SIZE);
    CHECK(remap_file_pages(p, 2 * TABLE, 0, 4 * TABLE / PAGE, 0) == 0);
}
CASE(ends_of_memory) {
    map_over((char *)0x10000, PAGE, RW, PRIVATE, -1)[0] = 1;
    map_over((char *)0x7ffffffff000 - PAGE, PAGE, RW, PRIVATE, -1)[0] = 1;
}

/* System V segments. */
static char *attach(size_t bytes, char *at, int flags) {
    int segment = shmget(IPC_PRIVATE, bytes, 0600 | IPC_CREAT);
    char *p = shmat(segment, at, flags);
    CHECK(p != (char *)-1);
    shmctl(segment, IPC_RMID, NULL);
    return p;
}
CASE(segment) {
    char *p = attach(4 * TABLE, NULL, 0);
    write_pages(p, 4 * TABLE);
    fork_once();
    shmdt(p);
}
CASE(segment_split) {
    char *p = attach(SIZE, NULL, 0);
    write_pages(p, SIZE);
    mprotect(p + 4 * TABLE, TABLE, PROT_READ);
    shmdt(p);
}
CASE(segment_over_written) {
    char *p = attach(SIZE, NULL, SHM_RDONLY), *q = aligned(SIZE);
    write_pages(q, SIZE);
    write_pages(attach(SIZE, q, SHM_REMAP), SIZE);
    read_pages(p, SIZE);
    shmdt(p);
}
