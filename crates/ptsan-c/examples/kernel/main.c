/* Tests the page tables of the small kernel on two CPUs. `use` is an access by a program. */
#include "machine.h"
#include "paging.h"

ptsan *san;
uint8_t *ram;

static void kernel(void *unused) {
    struct space parent, child, idle;
    (void)unused, frames_init(4096, RAM_BYTES);
    space_create(&parent), space_create(&idle);
    ptsan_run_on(san, 1), space_load(&parent);
    ptsan_run_on(san, 0), space_load(&parent);
    for (uint64_t va = 0x400000; va < 0x404000; va += 4096)
        space_map(&parent, va, frame_alloc(), WRITABLE | USER), use(va, PTSAN_WRITE);
    space_map(&parent, 0x7f0000000000, frame_alloc(), WRITABLE | USER), use(0x7f0000000000, PTSAN_READ);
    space_protect(&parent, 0x400000, USER), use(0x400000, PTSAN_WRITE);
    space_unmap(&parent, 0x401000), space_map(&parent, 0x600000, frame_alloc(), WRITABLE | USER);
    use(0x401000, PTSAN_READ), use(0x600000, PTSAN_READ);
    space_unmap(&parent, 0x7f0000000000), use(0x7f0000000000, PTSAN_READ);
    space_fork(&parent, &child), use(0x402000, PTSAN_WRITE);
    space_write_fault(&parent, 0x402000), use(0x402000, PTSAN_WRITE);
    space_leave(&parent, &child), space_destroy(&parent), use(0x403000, PTSAN_READ);
    space_leave(&child, &idle), space_destroy(&child);
    ptsan_leave(san, 0), ptsan_leave(san, 1), space_destroy(&idle);
}

int main(void) {
    ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .cpus = HW_CPUS, .flags = PTSAN_FLAG_ACCESSED_DIRTY};
    machine_run(&options, kernel);
    return ptsan_end(san);
}
