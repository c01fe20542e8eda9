//! The user program, which the image carries.

use ptarmigan_kernel_base::program::{Pages, Program};

use crate::mmu::DIRECT_MAP;

const BYTES: &[u8; BYTES_LEN] = include_bytes!(concat!(env!("OUT_DIR"), "/user.bin"));
const BYTES_LEN: usize = include_bytes!(concat!(env!("OUT_DIR"), "/user.bin")).len();

static PROGRAM: Pages<BYTES_LEN> = Pages::new(BYTES);

/// Its size, whole pages.
pub const LEN: u64 = BYTES_LEN as u64;

/// The program as an object that spaces map.
pub fn object() -> Program {
    // SAFETY: 1. The direct map has the image.
    unsafe { PROGRAM.object(DIRECT_MAP) }
}
