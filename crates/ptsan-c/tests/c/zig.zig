// Zig calls the library.
const c = @import("ptsan.zig"); // zig translate-c ptsan.h -lc > ptsan.zig

var ram: [4 * 512]u64 align(4096) = @splat(0);

pub fn main() u8 {
    var options = c.ptsan_options{ .arch = c.PTSAN_ARCH_AARCH64_4K, .cpus = 1 };
    const san = c.ptsan_new(&options, &ram, ram.len * 8, 0);
    _ = c.ptsan_table_allocated(san, 4096, 4096, 3, c.PTSAN_CONTENT_ZERO);
    _ = c.ptsan_switch(san, 0, 4096, 1);
    if (c.ptsan_access(san, 0, 0, c.PTSAN_READ, true, null) != c.PTSAN_FAULT_NOT_PRESENT) return 50;
    _ = c.ptsan_leave(san, c.PTSAN_THIS_CPU);
    _ = c.ptsan_table_freed(san, 4096, 4096);
    _ = c.ptsan_table_freed(san, 4096, 4096);
    return @intCast(c.ptsan_end(san));
}
