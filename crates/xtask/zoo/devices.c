/* Devices, rings of the kernel's, and other special mappings. */
#include "zoo.h"
#include <arpa/inet.h>
#include <linux/aio_abi.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <sys/socket.h>

CASE(aio_ring) {
    aio_context_t large = 0, small = 0;
    CHECK(syscall(SYS_io_setup, 4096, &large) == 0);
    fork_once();
    CHECK(syscall(SYS_io_setup, 128, &small) == 0);
    CHECK(syscall(SYS_io_destroy, large) == 0);
}
CASE_BUT(uring_rings, "a driver fills the area at mmap") {
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    int file = syscall(SYS_io_uring_setup, 4096, &params);
    if (file < 0) {
        perror("io_uring");
        return;
    }
    /* The ring chooses its place. */
    size_t bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    CHECK(mmap(NULL, bytes, RW, MAP_SHARED, file, IORING_OFF_SQ_RING) != MAP_FAILED);
    bytes = params.sq_entries * sizeof(struct io_uring_sqe);
    CHECK(mmap(NULL, bytes, RW, MAP_SHARED, file, IORING_OFF_SQES) != MAP_FAILED);
    fork_once();
}
CASE_BUT(packet_ring, "a driver fills the area at mmap") {
    struct tpacket_req request = {16 * PAGE, 8, 2048, 256};
    int ring = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    if (ring < 0) {
        perror("packets");
        return;
    }
    CHECK(setsockopt(ring, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) == 0);
    map_over(aligned(2 * TABLE), 128 * PAGE, RW, MAP_SHARED, ring);
    fork_once();
}
CASE(vsyscall_page) {
    /* `time` of the page that is no area. */
    ((long (*)(long *))0xffffffffff600400)(NULL);
}
CASE(secret_memory) {
    int file = syscall(SYS_memfd_secret, 0);
    if (file < 0) {
        perror("memfd_secret");
        return;
    }
    CHECK(ftruncate(file, TABLE) == 0);
    write_pages(map_over(aligned(TABLE), TABLE, RW, MAP_SHARED, file), TABLE);
    fork_once();
}
CASE(zero_device) {
    int file = open("/dev/zero", O_RDWR);
    char *p = map_over(aligned(4 * TABLE), 4 * TABLE, RW, MAP_PRIVATE, file);
    read_pages(p, 2 * TABLE);
    fork_once();
    write_pages(p + 3 * TABLE, TABLE);
    fork_once();
    write_pages(map_over(aligned(4 * TABLE), 4 * TABLE, RW, MAP_SHARED, file), 2 * TABLE);
    fork_once();
}
CASE_BUT(device_memory, "a driver fills the area at mmap") {
    int file = open("/dev/mem", O_RDONLY | O_SYNC);
    if (file < 0) {
        perror("/dev/mem");
        return;
    }
    void *p = mmap(aligned(TABLE), TABLE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0xf0000);
    CHECK(p != MAP_FAILED);
    fork_once();
}
