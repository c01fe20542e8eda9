//! Memory of the test, whose stores are told or not.
use super::kernel::{Format, Kernel};
use super::machine::Machine;
use ptsan::{Memory, Sanitizer};

/// Makes a kernel whose stores are told, or are not.
pub fn kernel(format: Format, seed: u64, tells: bool) -> Kernel {
    let (ram, san) = (vec![0; Kernel::BYTES as usize], Sanitizer::new(Kernel::config(format, seed)));
    Kernel::on(Box::new(Own { ram, san, tells }), format, seed)
}

struct Own {
    ram: Vec<u8>,
    san: Sanitizer,
    tells: bool,
}

impl Own {
    fn store(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
    }
}

impl Machine for Own {
    fn hook(&mut self, body: &mut dyn FnMut(&mut Sanitizer, &dyn Memory)) {
        body(&mut self.san, &self.ram);
    }

    fn get(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.ram[at as usize..][..8].try_into().unwrap())
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.store(at, raw);
        if self.tells {
            self.san.entry_written(&self.ram, at);
        }
    }

    fn exchange(&mut self, at: u64, raw: u64) {
        self.store(at, raw);
        if self.tells {
            self.san.entry_exchanged(&self.ram, at);
        }
    }

    fn clear(&mut self, at: u64, bytes: u64) {
        self.ram[at as usize..][..bytes as usize].fill(0);
    }

    fn fill(&mut self, at: u64, bytes: u64, with: u64) {
        self.ram[at as usize..][..bytes as usize]
            .chunks_mut(8)
            .for_each(|w| w.copy_from_slice(&with.to_le_bytes()));
    }
}
