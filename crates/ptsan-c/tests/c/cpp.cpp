// C++ calls the library.
#include "ptsan.h"
#include <cstring>

alignas(4096) static uint64_t ram[4 * 512];

int main() {
    ptsan_options options{};
    options.arch = PTSAN_ARCH_RISCV_SV39;
    options.flags = PTSAN_FLAG_ASIDS | PTSAN_FLAG_EAGER_WALKERS;
    ptsan *san = ptsan_new(&options, ram, sizeof ram, 0x80000000);
    ptsan_table_allocated(san, 0x80001000, 4096, 2, PTSAN_CONTENT_ZERO);
    ptsan_switch(san, 0, 0x80001000, 1);
    if (ptsan_access(san, 0, 0, PTSAN_READ, true, nullptr) != PTSAN_FAULT_NOT_PRESENT)
        return 50;
    ptsan_leave(san, PTSAN_THIS_CPU);
    ptsan_table_freed(san, 0x80001000, 4096);
    ptsan_table_freed(san, 0x80001000, 4096);
    if (std::strcmp(ptsan_kind_name(0), "stale-use") != 0 || ptsan_count(san, "double-free") != 1)
        return 51;
    return ptsan_end(san);
}
