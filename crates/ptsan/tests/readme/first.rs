{
use ptsan::{Arch, Kind, Session};

let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
for (table, entry) in [(0x1000, 0x2007_u64), (0x2000, 0x3007), (0x3000, 0x4007), (0x4000, 0x9007)] {
    s.alloc(table);                                                        // in the frame allocator
    s.memory[table as usize..][..8].copy_from_slice(&entry.to_le_bytes()); // the code under test maps page 0
}
s.load(0x1000);                                                            // the CPU loads the root
assert_eq!(s.access(0x123), Ok(0x9123));                                   // a program reads
s.memory[0x3000..0x3008].fill(0);                                          // the code unlinks the last table and frees it:
s.free(0x4000);                                                            // where is the flush?
assert_eq!(s.sanitizer.count(Kind::FreeBeforeFlush), 1);
s.sanitizer.to_string()
}
