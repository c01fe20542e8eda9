/* Symptom: a virtual machine that was restored with userfaultfd is slow until its memory is there.
 * Cure: a thread that copies the rest in large pieces. Huge pages do not help, since pages come by
 * UFFDIO_COPY.
 * Threads: cloud-hypervisor/cloud-hypervisor#8150, firecracker-microvm/firecracker#5061 */
#include "complaint.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define GUEST (32 * MIB)

static int faults, ahead;
static char *guest, *image;

static int copy(size_t at, size_t bytes) {
    struct uffdio_copy order = {.dst = (uintptr_t)guest + at, .src = (uintptr_t)image + at, .len = bytes};
    return ioctl(faults, UFFDIO_COPY, &order);
}

static void *serve(void *unused) {
    struct uffd_msg message;
    if (ahead)
        for (size_t at = 0; at < GUEST; at += TABLE)
            copy(at, TABLE);
    while (read(faults, &message, sizeof message) == sizeof message)
        if (message.event == UFFD_EVENT_PAGEFAULT)
            copy((message.arg.pagefault.address & -PAGE) - (uintptr_t)guest, PAGE);
    return unused;
}

int main(int count, char **arguments) {
    pthread_t handler;
    ahead = is_cured(count, arguments);
    image = map(GUEST);
    memset(image, 1, GUEST);
    guest = map(GUEST);
    faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api version = {.api = UFFD_API};
    struct uffdio_register area = {{(uintptr_t)guest, GUEST}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &version) || ioctl(faults, UFFDIO_REGISTER, &area)) {
        perror("userfaultfd");
        return 1;
    }
    pthread_create(&handler, 0, serve, 0);
    if (ahead)
        usleep(50000);
    touch(guest, GUEST);
    _exit(0);
}
