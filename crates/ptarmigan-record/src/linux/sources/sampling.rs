//! Reads samples of callers, from rings of their own: a sample without room loses a caller, and no
//! event that the state of a process depends on.
use super::described::{self, Described};
use super::merge::Stream;
use super::ring::PerfRing;
use super::rings::RingReader;
use super::samples::Samplers;
use super::spill::Spill;
use ptarmigan_term::print;
use ptarmigan_term::words::several;
use ptarmigan_term::{Context, Failure};

/// The temporary files of samples.
const FILES: &str = "sampled";

/// The samples of one CPU.
pub(crate) struct CpuSamples {
    pub(crate) cpu: u16,
    pub(crate) samplers: Samplers,
    pub(crate) ring: PerfRing,
}

/// A thread that reads the samples of all CPUs.
pub(crate) struct Sampling {
    reader: RingReader,
    cpus: Vec<u16>,
}

impl Sampling {
    /// Starts to read.
    pub(crate) fn start(spill: &Spill, samples: Vec<CpuSamples>) -> Result<Self, Failure> {
        let (mut rings, mut cpus) = (Vec::new(), Vec::new());
        for CpuSamples { cpu, samplers, ring } in samples {
            let described = Described::new(spill, FILES, cpu, Some(samplers));
            rings.push((ring, described.context("the temporary files beside the output")?));
            cpus.push(cpu);
        }
        Ok(Self { reader: RingReader::start("samples", rings)?, cpus })
    }

    /// Ends, and returns the samples by CPU. Says how many were lost.
    pub(crate) fn finish(mut self, spill: &Spill) -> Result<Vec<Stream<'static>>, Failure> {
        let lost = self.reader.end()?;
        if lost > 0 {
            let lost = several(lost, "sample");
            print::error(&format!(
                "callers that are unknown, for lack of room: at most {lost}; no event is lost by it"
            ));
        }
        self.cpus.iter().map(|&cpu| described::read(spill, FILES, cpu)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::sources::rings::PAUSE;
    use crate::linux::sources::samples::FAULTS;
    use crate::linux::system::sys;

    /// Causes one fault on each of so many pages.
    fn fault(pages: usize) {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other. The pages
        // that are written are inside it, and only this function uses it.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), pages << 12, prot, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            libc::madvise(base, pages << 12, libc::MADV_NOHUGEPAGE);
            (0..pages).for_each(|page| base.cast::<u8>().add(page << 12).write_volatile(1));
            libc::munmap(base, pages << 12);
        }
    }

    #[test]
    fn samples_without_room_are_counted_and_the_others_kept() {
        let dir = std::env::temp_dir().join(format!("ptarmigan-sampling-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let spill = Spill::new(&dir.join("trace")).expect("temporary files");
        let (thread, cpus) = (sys::own_thread(), super::super::cpus("online"));
        // A ring of 16 KiB has room for one sample, and is read each 20 ms.
        let samples = cpus.iter().map(|&cpu| {
            let (samplers, ring) = Samplers::of_tasks(&[thread], cpu, 16 << 10)?;
            Ok(CpuSamples { cpu, samplers, ring })
        });
        let samples: Vec<CpuSamples> = match samples.collect::<Result<_, Failure>>() {
            Ok(samples) => samples,
            Err(e) => return eprintln!("perf events are not allowed: {}", e.message()),
        };
        let mut sampling = Sampling::start(&spill, samples).expect("a thread");
        // The kernel tells how many it lost with the next record that has room.
        for samples in [200, 2, 2] {
            fault(samples * usize::try_from(FAULTS).expect("a small number"));
            std::thread::sleep(PAUSE * 3);
        }
        let lost = sampling.reader.end().expect("an end");
        let kept: usize =
            cpus.iter().map(|&cpu| described::read(&spill, FILES, cpu).expect("a file").events.count()).sum();
        drop(spill);
        std::fs::remove_dir_all(&dir).expect("removed");
        assert!(lost > 0 && kept > 0, "{lost} lost, {kept} kept");
        assert!(lost + kept as u64 <= 260, "{lost} lost, {kept} kept");
    }
}
