//! `ioctl`, as terminals know it.

use super::Sys;
use super::layout::Layout;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::console::Termios;
use crate::fs::{Device, Kind, What};

impl<A: Arch> Sys<'_, A> {
    /// `ioctl`.
    pub(super) fn device_control(&mut self, descriptor: u64, request: u64, at: u64) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let is_console = match self.state.open.get(file).what {
            What::Inode(inode) => self.state.tree.get(inode).kind == Kind::Device(Device::Console),
            _ => false,
        };
        Errno::ENOTTY.when(!is_console)?;
        match request {
            // TCGETS
            0x5401 => {
                let mut out = Layout::<36>::new(A::ABI);
                for word in self.state.console.termios.0 {
                    out.u32(word);
                }
                self.write_bytes(at, out.bytes())?;
            }
            // TCSETS, TCSETSW, TCSETSF
            0x5402..=0x5404 => {
                let words = self.read_numbers(at, 4)?;
                self.state.console.set(Termios(words.map(|word| word as u32)));
            }
            // TIOCSCTTY
            0x540e => {
                let group = self.process().group;
                self.state.console.foreground = group;
            }
            // TIOCGPGRP
            0x540f => {
                let group = self.state.console.foreground;
                self.write_bytes(at, &group.to_le_bytes())?;
            }
            // TIOCSPGRP
            0x5410 => {
                let group = self.read_u32(at)? as i32;
                self.state.console.foreground = group;
            }
            // TIOCGWINSZ
            0x5413 => {
                let mut out = Layout::<8>::new(A::ABI);
                out.u16(24).u16(80).u16(0).u16(0);
                self.write_bytes(at, out.bytes())?;
            }
            // TIOCSWINSZ
            0x5414 => {}
            // FIONREAD
            0x541b => {
                let n = self.state.console.waiting() as u32;
                self.write_bytes(at, &n.to_le_bytes())?;
            }
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }
}
