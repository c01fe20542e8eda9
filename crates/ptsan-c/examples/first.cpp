// The smallest test, in C++: as first.c, with a sanitizer that ends by itself.
#include "ptsan.h"

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace {

struct End {
    void operator()(ptsan *san) const { ptsan_destroy(san); }
};

// A machine of one CPU, and its memory: physical addresses 0 to 0x7fff.
class Machine {
public:
    Machine() {
        ptsan_options options{};
        options.arch = PTSAN_ARCH_X86_64;
        san.reset(ptsan_new(&options, ram.data(), sizeof ram, 0));
        if (!san)
            throw std::runtime_error(ptsan_last_error());
    }

    ptsan *get() const { return san.get(); }
    // Prints the report, if there is one, and returns the number of findings.
    int end() { return ptsan_end(san.release()); }

    // Hooks: reports name their callers.
    void table_free(std::uint64_t table) {
        PTSAN_HARNESS(get());
        ptsan_table_freed(get(), table, 4096);
    }
    void invlpg(std::uint64_t va) {
        PTSAN_HARNESS(get());
        ptsan_flush_page(get(), 0, 1, va, false);
    }

    std::array<std::uint64_t, 8 * 512> ram{};

private:
    std::unique_ptr<ptsan, End> san;
};

// The kernel.

void map(Machine &machine) { // page 0 to frame 5, through tables in frames 1 to 4
    for (std::uint64_t table = 4; table >= 1; table--) {
        ptsan_table_allocated(machine.get(), table * 4096, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
        machine.ram[table * 512] = (table + 1) * 4096 | 7;
    }
}

void unmap(Machine &machine) { // the last table goes with its page
    machine.ram[3 * 512] = 0;
    machine.table_free(0x4000); // it is in the allocator's list,
    machine.invlpg(0);          // and then comes the flush
}

} // namespace

int main() try {
    Machine machine;
    map(machine);
    ptsan_switch(machine.get(), 0, 0x1000, 1);                        // CPU 0 loads CR3; the space is number 1
    ptsan_access(machine.get(), 0, 0x123, PTSAN_READ, true, nullptr); // a program reads
    unmap(machine);
    ptsan_leave(machine.get(), 0);
    for (std::uint64_t table = 1; table <= 3; table++)
        machine.table_free(table * 4096);
    return machine.end();
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
