//! Memory of the test, whose stores are told or not.
use super::kernel::{Format, Kernel};
use super::machine::Machine;
use ptsan::{Config, Kind, Memory, Sanitizer};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes a kernel whose stores are told, or are not.
pub fn kernel(format: Format, seed: u64, tells: bool) -> Kernel {
    Kernel::on(Box::new(Own::new(Kernel::config(format, seed), Kernel::BYTES, tells)), format, seed)
}

/// Makes a kernel whose stores are told, on CPUs that set accessed and dirty bits.
pub fn kernel_with_bits(format: Format, seed: u64) -> Kernel {
    let config = Config { walkers_set_bits: true, ..Kernel::config(format, seed) };
    Kernel::on(Box::new(Own::new(config, Kernel::BYTES, true)), format, seed)
}

/// Makes a machine whose stores are told, and a function that returns the kinds of its findings and
/// the report.
pub fn observed(config: Config, bytes: u64) -> (Box<dyn Machine>, impl FnOnce() -> (Vec<Kind>, String)) {
    let own = Rc::new(RefCell::new(Own::new(config, bytes, true)));
    let findings = {
        let own = own.clone();
        move || {
            let san = &own.borrow().san;
            (san.findings().iter().map(|f| f.kind).collect(), san.to_string())
        }
    };
    (Box::new(own), findings)
}

struct Own {
    ram: Vec<AtomicU64>,
    san: Sanitizer,
    tells: bool,
}

impl Own {
    fn new(config: Config, bytes: u64, tells: bool) -> Self {
        let ram = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Self { ram, san: Sanitizer::new(config), tells }
    }
}

impl<M: Machine> Machine for Rc<RefCell<M>> {
    fn hook(&mut self, body: &mut dyn FnMut(&mut Sanitizer, &dyn Memory)) {
        self.borrow_mut().hook(body);
    }

    fn get(&self, at: u64) -> u64 {
        self.borrow().get(at)
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.borrow_mut().put(at, raw);
    }

    fn exchange(&mut self, at: u64, raw: u64) {
        self.borrow_mut().exchange(at, raw);
    }

    fn hardware(&mut self, at: u64, raw: u64) {
        self.borrow_mut().hardware(at, raw);
    }

    fn clear(&mut self, at: u64, bytes: u64) {
        self.borrow_mut().clear(at, bytes);
    }

    fn fill(&mut self, at: u64, bytes: u64, with: u64) {
        self.borrow_mut().fill(at, bytes, with);
    }
}

impl Machine for Own {
    fn hook(&mut self, body: &mut dyn FnMut(&mut Sanitizer, &dyn Memory)) {
        body(&mut self.san, &self.ram);
    }

    fn get(&self, at: u64) -> u64 {
        self.ram[at as usize / 8].load(Relaxed)
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.hardware(at, raw);
        if self.tells {
            self.san.entry_written(&self.ram, at);
        }
    }

    fn exchange(&mut self, at: u64, raw: u64) {
        self.hardware(at, raw);
        if self.tells {
            self.san.entry_exchanged(&self.ram, at);
        }
    }

    fn hardware(&mut self, at: u64, raw: u64) {
        *self.ram[at as usize / 8].get_mut() = raw;
    }

    fn clear(&mut self, at: u64, bytes: u64) {
        self.fill(at, bytes, 0);
    }

    fn fill(&mut self, at: u64, bytes: u64, with: u64) {
        self.ram[at as usize / 8..][..bytes as usize / 8].iter_mut().for_each(|word| *word.get_mut() = with);
    }
}
