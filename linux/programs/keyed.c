/* Process 1, or any process of Linux: shared memory with keys. Every answer here is Linux's: the
 * program ends with status 0 there, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

#define PAGE 4096ul
#define KEY 0x50746d67
#define NOWHERE ((void *)-1)
#define PLACE ((char *)0x50000000)

static void keys(void) {
    int one, other, without;
    ANSWERS(ENOENT, shmget(KEY, PAGE, 0600));
    ANSWERS(EINVAL, shmget(KEY, 0, IPC_CREAT | 0600));
    ANSWERS(0, one = shmget(KEY, 3 * PAGE - 5, IPC_CREAT | 0640));
    ANSWERS(EEXIST, shmget(KEY, PAGE, IPC_CREAT | IPC_EXCL | 0600));
    ANSWERS(EINVAL, shmget(KEY, 3 * PAGE, 0600));
    ANSWERS(0, other = shmget(KEY, 0, 0));
    check("one key, one segment", one == other);
    ANSWERS(0, without = shmget(IPC_PRIVATE, PAGE, 0600));
    check("without a key", without != one);
    struct shmid_ds facts;
    ANSWERS(EINVAL, shmctl(-1, IPC_STAT, &facts));
    ANSWERS(EINVAL, shmctl(one + (1 << 15), IPC_STAT, &facts));
    ANSWERS(EINVAL, shmctl(one, 99, &facts));
    /* On 32 bits the C library copies the answer itself. */
    if (sizeof(long) == 8)
        ANSWERS(EFAULT, shmctl(one, IPC_STAT, (void *)8));
    ANSWERS(0, shmctl(one, IPC_STAT, &facts));
    check("its facts", facts.shm_segsz == 3 * PAGE - 5 && facts.shm_perm.mode == 0640 && facts.shm_nattch == 0 &&
        facts.shm_perm.__key == KEY && facts.shm_cpid == getpid() && facts.shm_lpid == 0 && facts.shm_atime == 0);
    facts.shm_perm.mode = 0600;
    ANSWERS(0, shmctl(one, IPC_SET, &facts));
    ANSWERS(0, shmctl(one, IPC_STAT, &facts));
    check("another mode", facts.shm_perm.mode == 0600);
    ANSWERS(0, shmctl(one, SHM_LOCK, 0));
    ANSWERS(0, shmctl(one, SHM_UNLOCK, 0));
    ANSWERS(0, shmctl(without, IPC_RMID, 0));
    ANSWERS(EINVAL, shmctl(without, IPC_RMID, 0));
    ANSWERS(EINVAL, shmat(without, 0, 0));
    ANSWERS(0, shmctl(one, IPC_RMID, 0));
    ANSWERS(ENOENT, shmget(KEY, PAGE, 0600));
}

static void places(void) {
    int one;
    char *first, *second;
    ANSWERS(0, one = shmget(IPC_PRIVATE, 2 * PAGE, 0600));
    check("attached", (first = shmat(one, 0, 0)) != NOWHERE && (second = shmat(one, 0, SHM_RDONLY)) != NOWHERE && first != second);
    strcpy(first + PAGE, "seen");
    check("one memory", !strcmp(second + PAGE, "seen"));
    ANSWERS(EACCES, mprotect(second, PAGE, PROT_READ | PROT_WRITE));
    ANSWERS(EINVAL, shmat(one, PLACE + 1, 0));
    ANSWERS(EINVAL, shmat(one, first + PAGE, 0));
    ANSWERS(EINVAL, shmat(one, 0, SHM_REMAP));
    check("at a place", shmat(one, PLACE + 77, SHM_RND) == PLACE && !strcmp(PLACE + PAGE, "seen"));
    int other = shmget(IPC_PRIVATE, PAGE, 0600);
    check("instead of another", shmat(other, PLACE, SHM_REMAP) == PLACE && PLACE[0] == 0 && !strcmp(PLACE + PAGE, "seen"));
    ANSWERS(EINVAL, shmdt(PLACE + 1));
    ANSWERS(EINVAL, shmdt(PLACE + PAGE));
    ANSWERS(0, shmdt(PLACE));
    ANSWERS(EINVAL, shmdt(PLACE + 8 * PAGE));
    unsigned char there;
    ANSWERS(ENOMEM, mincore(PLACE, PAGE, &there));
    shmctl(other, IPC_RMID, 0);
    /* A part of it stays after munmap, and goes with the rest. */
    ANSWERS(0, munmap(second, PAGE));
    ANSWERS(0, shmdt(second));
    ANSWERS(ENOMEM, mincore(second + PAGE, PAGE, &there));
    ANSWERS(EINVAL, shmdt(second));
    munmap(PLACE + PAGE, PAGE);
    struct shmid_ds facts;
    ANSWERS(0, shmctl(one, IPC_STAT, &facts));
    check("one place is left", facts.shm_nattch == 1 && facts.shm_lpid == getpid());
    /* A child has it, too; removed, it stays until it is shown nowhere. */
    pid_t child = fork();
    if (child == 0) {
        strcpy(first, "from a child");
        int right = shmctl(one, IPC_STAT, &facts) == 0 && facts.shm_nattch == 2;
        _exit(right && shmctl(one, IPC_RMID, 0) == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    check("a child", status == 0 && !strcmp(first, "from a child"));
    ANSWERS(0, shmctl(one, IPC_STAT, &facts));
    check("it is to go", facts.shm_perm.mode == (01000 | 0600) && facts.shm_nattch == 1);
    ANSWERS(0, shmdt(first));
    ANSWERS(EINVAL, shmctl(one, IPC_STAT, &facts));
    /* One that stays when the process that showed it has ended, and one that does not. */
    int kept = shmget(IPC_PRIVATE, PAGE, 0600), gone = shmget(IPC_PRIVATE, 64 * PAGE, 0600);
    child = fork();
    if (child == 0) {
        char *at = shmat(kept, 0, 0), *beside = shmat(gone, 0, 0);
        shmctl(gone, IPC_RMID, 0);
        memset(beside, 1, 64 * PAGE);
        at[0] = 9;
        _exit(0);
    }
    waitpid(child, &status, 0);
    ANSWERS(EINVAL, shmat(gone, 0, 0));
    check("contents stay", (first = shmat(kept, 0, 0)) != NOWHERE && first[0] == 9);
    ANSWERS(0, shmctl(kept, IPC_RMID, 0));
    ANSWERS(0, shmdt(first));
    /* The kernel's end gives it back. */
    check("one is left", shmget(IPC_PRIVATE, PAGE, 0600) >= 0);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    keys();
    places();
    printf("KEYED %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
