/* Pages that the kernel brings in: no exception tells. */
#include "zoo.h"
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#define SIZE (4 * TABLE)
#define BY_KERNEL "pages that the kernel brings in raise no event"

static char *filled(void) {
    char *p = malloc(SIZE);
    memset(p, 1, SIZE);
    return p;
}

CASE_BUT(process_vm_write, BY_KERNEL) {
    char *p = aligned(SIZE);
    pid_t child = fork();
    if (child == 0) {
        struct iovec from = {filled(), SIZE}, to = {p, SIZE};
        CHECK(process_vm_writev(getppid(), &from, 1, &to, 1, 0) == (ssize_t)SIZE);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    fork_once();
}
CASE_BUT(process_vm_read, BY_KERNEL) {
    struct iovec to = {filled(), SIZE}, from = {aligned(SIZE), SIZE};
    CHECK(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)SIZE);
    fork_once();
}
static void write_by_file(char *p) {
    int file = open("/proc/self/mem", O_RDWR);
    char page[PAGE];
    memset(page, 1, PAGE);
    for (size_t i = 0; i < SIZE; i += TABLE / 4) {
        CHECK(pwrite(file, page, PAGE, (off_t)(uintptr_t)(p + i)) == (ssize_t)PAGE);
    }
    fork_once();
}
CASE_BUT(proc_mem, BY_KERNEL) { write_by_file(aligned(SIZE)); }
CASE_BUT(proc_mem_read_only, BY_KERNEL) {
    write_by_file(map_over(aligned(SIZE), SIZE, PROT_READ, PRIVATE, -1));
}
CASE_BUT(direct_io, BY_KERNEL) {
    int file = open("direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
    char *from = aligned(TABLE), *p = aligned(SIZE);
    write_pages(from, TABLE);
    for (int i = 0; i < 4; i++) {
        CHECK(write(file, from, TABLE) == (ssize_t)TABLE);
    }
    CHECK(pread(file, p, SIZE, 0) == (ssize_t)SIZE);
    fork_once();
}
CASE_BUT(vmsplice_pages, BY_KERNEL) {
    int ends[2];
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
    char *p = aligned(SIZE);
    struct iovec parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){p + i * TABLE, PAGE};
    }
    CHECK(vmsplice(ends[1], parts, 4, 0) == 4 * (ssize_t)PAGE);
    fork_once();
}
static void wait_soon(int operation) {
    char *p = aligned(SIZE);
    struct timespec soon = {0, 1000};
    for (int i = 0; i < 4; i++) {
        syscall(SYS_futex, p + i * TABLE, operation, 0, &soon, 0, 0);
    }
    fork_once();
}
CASE(futex_private) { wait_soon(FUTEX_WAIT_PRIVATE); }
CASE_BUT(futex_anonymous, BY_KERNEL) { wait_soon(FUTEX_WAIT); }
CASE_BUT(futex_shared, BY_KERNEL) {
    char *p = map_over(aligned(SIZE), SIZE, RW, SHARED, -1);
    for (int i = 0; i < 4; i++) {
        syscall(SYS_futex, p + i * TABLE, FUTEX_WAKE, 1, 0, 0, 0);
    }
}
static int ring(struct io_uring_params *params) {
    memset(params, 0, sizeof *params);
    int file = syscall(SYS_io_uring_setup, 4096, params);
    if (file < 0) {
        perror("io_uring");
        exit(0);
    }
    return file;
}
CASE_BUT(uring_buffers, BY_KERNEL) {
    struct io_uring_params params;
    int file = ring(&params);
    size_t bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    CHECK(mmap(NULL, bytes, RW, MAP_SHARED, file, 0) != MAP_FAILED);
    struct iovec part = {aligned(SIZE), SIZE};
    CHECK(syscall(SYS_io_uring_register, file, IORING_REGISTER_BUFFERS, &part, 1) == 0);
    fork_once();
}

/* userfaultfd */
static int userfault(char *p, uint64_t features, uint64_t mode) {
    int file = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    struct uffdio_register all = {.range = {(uintptr_t)p, SIZE}, .mode = mode};
    CHECK(file >= 0 && ioctl(file, UFFDIO_API, &api) == 0);
    CHECK(ioctl(file, UFFDIO_REGISTER, &all) == 0);
    return file;
}
static void copy_page(int file, uintptr_t to, char *from) {
    struct uffdio_copy copy = {.dst = to, .src = (uintptr_t)from, .len = PAGE};
    CHECK(ioctl(file, UFFDIO_COPY, &copy) == 0);
}
static char *one_page(void) {
    char *p = map(PAGE, RW, PRIVATE);
    p[0] = 1;
    return p;
}
CASE_BUT(userfault_copy, BY_KERNEL) {
    char *p = aligned(SIZE), *from = one_page();
    int file = userfault(p, 0, UFFDIO_REGISTER_MODE_MISSING);
    for (size_t i = 0; i < SIZE; i += 64 * PAGE) {
        copy_page(file, (uintptr_t)p + i, from);
    }
    fork_once();
}
CASE_BUT(userfault_zero, BY_KERNEL) {
    char *p = aligned(SIZE);
    int file = userfault(p, 0, UFFDIO_REGISTER_MODE_MISSING);
    struct uffdio_zeropage zero = {.range = {(uintptr_t)p, SIZE}};
    CHECK(ioctl(file, UFFDIO_ZEROPAGE, &zero) == 0);
    fork_once();
}
CASE_BUT(userfault_protect, BY_KERNEL) {
    char *p = aligned(SIZE);
    int file = userfault(p, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFDIO_REGISTER_MODE_WP);
    read_pages(p, 2 * TABLE);
    struct uffdio_writeprotect all = {.range = {(uintptr_t)p, SIZE}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    CHECK(ioctl(file, UFFDIO_WRITEPROTECT, &all) == 0);
    fork_once();
}
static char *answer;
static void *answers(void *file) {
    struct uffd_msg message;
    for (int i = 0; i < 4 && read(*(int *)file, &message, sizeof message) == sizeof message; i++) {
        copy_page(*(int *)file, message.arg.pagefault.address & ~(PAGE - 1), answer);
    }
    return NULL;
}
CASE_BUT(userfault_answered, BY_KERNEL) {
    char *p = aligned(SIZE);
    int file = userfault(p, 0, UFFDIO_REGISTER_MODE_MISSING);
    answer = one_page();
    pthread_t thread;
    pthread_create(&thread, NULL, answers, &file);
    read_each(p, SIZE, TABLE);
    pthread_join(thread, NULL);
    fork_once();
}

CASE_BUT(core_dump, BY_KERNEL) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &all);
    pid_t child = fork();
    if (child == 0) {
        char *p = aligned(8 * TABLE);
        read_pages(p, TABLE);
        write_pages(p + TABLE, TABLE);
        read_pages(map(8 * TABLE, RW, SHARED), TABLE);
        abort();
    }
    waitpid(child, NULL, 0);
}
CASE_BUT(ptrace_poke, BY_KERNEL) {
    char *p = aligned(SIZE);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    for (int i = 0; i < 4; i++) {
        CHECK(ptrace(PTRACE_POKEDATA, child, p + i * TABLE, (void *)1) == 0);
    }
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, NULL, 0);
}
