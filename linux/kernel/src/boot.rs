//! From a machine that is set up to process 1.

use ptarmigan::machine::Machine as _;
use ptarmigan::params::ParamError;
use ptarmigan::space::EmptyTables;
use ptarmigan::tlb::Mmu;
use ptarmigan_kernel_base::{fail, say};

use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::cpio::Unpacked;
use crate::fs::tree::ROOT;
use crate::fs::{Device, Kind, Tree, What, path, proc};
use crate::init_args::{self, InitWord};
use crate::params::{CommandLine, Shootdown};
use crate::syscall::{Stop, Sys};
use crate::task::{Doing, INIT};
use crate::{Kernel, State, negative_controls, params};

impl<A: Arch> Kernel<A> {
    /// Unpacks the initial file system and makes process 1 of `init=`, by default `/init`.
    /// [`run`](Self::run) runs it. The machine ends if that cannot be done.
    pub fn start(&'static self, archive: &[u8], command_line: &CommandLine) {
        let mut state = self.lock();
        state.command_line = command_line.clone();
        state.tree.begin(|| A::kernel().new_page());
        negative_controls::read(command_line.text());
        let text = command_line.text();
        state.large_pages = taken(params::large_pages(text), params::LargePolicy::Never);
        state.empty_tables = taken(params::empty_tables(text), EmptyTables::Kept);
        let broadcasts = <A::Hardware as Mmu>::BROADCASTS;
        // The image has said if it cannot be taken.
        let shootdown = params::shootdown(text, broadcasts);
        state.unmapping = shootdown.unwrap_or(Shootdown::of_machine(broadcasts)).unmapping();
        let seconds = taken(params::clock(text), None).unwrap_or_else(A::wall_clock);
        state.tasks.epoch = (seconds * 1_000_000_000).saturating_sub(A::now());
        self.machine.get().set_fault_around(taken(params::fault_around(text), params::AROUND));
        if archive.is_empty() {
            fail(format_args!(
                "there is no initial file system: pass a cpio archive (newc), as kernels/linux does"
            ));
        }
        let Unpacked { made, left_out } = self.unpack(&mut state, archive).unwrap_or_else(|e| {
            let bytes = archive.len();
            match e.name(archive) {
                Some(name) => fail(format_args!("the initial file system, {bytes} bytes: {e} ({name:.64})")),
                None => fail(format_args!("the initial file system, {bytes} bytes: {e}")),
            }
        });
        say!("kernel: {made} files");
        make_devices(&mut state);
        // As if it were mounted: descriptors have their names in it (`/dev/fd`).
        if let Ok(place) = directory(&mut state.tree, b"proc", 0o555) {
            let _ = proc::fill(&mut state.tree, place);
        }
        let name = params::value(command_line.text(), "init").unwrap_or("/init");
        let found = path::resolve(&state.tree, ROOT, name.as_bytes(), true);
        let inode = match found.and_then(|found| found.existing(&state.tree)) {
            Ok(inode) => inode,
            Err(e) if left_out > 0 => fail(format_args!(
                "there is no first program {name} ({e}): {left_out} of the files are left out, see above"
            )),
            Err(e) => fail(format_args!(
                "there is no first program {name} ({e}): name one that there is with init="
            )),
        };
        let state = &mut *state;
        let claimed = self.claim(state, true).and_then(|claimed| Ok((claimed, self.claim_space(state)?)));
        let ((slot, pid), space) = claimed
            .unwrap_or_else(|e| fail(format_args!("no memory for process 1 ({e}): give the machine more")));
        debug_assert_eq!((slot, pid), (INIT, 1), "the first task");
        (state.tasks.get_mut(INIT).process, state.tasks.get_mut(INIT).space) = (INIT, space);
        state.tasks.space_mut(space).users = 1;
        let process = state.tasks.process_mut(INIT);
        (process.pid, process.group, process.session, process.threads) = (1, 1, 1, 1);
        process.space = space;
        (process.directory, process.umask) = (ROOT, 0o022);
        state.tree.hold(ROOT);
        let pin = self.pin();
        // SAFETY: 1. The lock is held, and the task does not run. 2. The reference ends below. 3.
        // The slot has just been claimed.
        let body = unsafe { self.body(INIT) };
        let mut sys = Sys { kernel: self, state, body, me: INIT, pin: &pin };
        if let Err(stop) = sys.begin(inode, name.as_bytes(), command_line.text()) {
            // No other task runs that it could wait for.
            let e = if let Stop::Error(e) = stop { e } else { Errno::EAGAIN };
            let wanted = match e {
                Errno::ENOMEM => "give the machine more memory",
                Errno::ENOENT => {
                    "the program in the first line of the script, or the program's loader, is missing"
                }
                Errno::ELIBBAD | Errno::EIO => "its loader is cut, or is none for this machine",
                Errno::E2BIG => "the command line has too many words for it",
                _ => "it has to be an ELF program that may be executed, or a script for one",
            };
            fail(format_args!("{name} cannot begin on {} ({e}): {wanted}", A::MACHINE));
        }
        open_console(state);
        state.tasks.get_mut(INIT).doing = Doing::Ready;
        state.tasks.make_ready(INIT);
        say!("kernel: {} frames free", self.machine.get().frames().counts().free);
    }
}

impl<A: Arch> Sys<'_, A> {
    /// Begins process 1, with the words of the command line that are its own.
    fn begin(&mut self, inode: u32, name: &[u8], line: &str) -> Result<(), Stop> {
        let (inode, is_script) = self.begin_arguments(inode, name)?;
        let arguments = &mut self.state.tasks.arguments;
        if !is_script {
            arguments.add_text(false, name)?;
        }
        for word in init_args::words(line).filter(|word| !word.is_variable()) {
            arguments.add(false, |room| word.write(room).ok_or(Errno::E2BIG))?;
        }
        // A variable that the line names takes the place of the kernel's.
        for (key, value) in [("HOME", "/"), ("PATH", "/bin:/sbin"), ("TERM", "linux")] {
            if !init_args::words(line).any(|word| word.is_variable() && word.key == key) {
                let word = InitWord::variable(key, value);
                arguments.add(true, |room| word.write(room).ok_or(Errno::E2BIG))?;
            }
        }
        for word in init_args::words(line).filter(InitWord::is_variable) {
            arguments.add(true, |room| word.write(room).ok_or(Errno::E2BIG))?;
        }
        self.exec(inode)
    }
}

/// Returns a directory of the root, which is made if it is missing.
fn directory(tree: &mut Tree, name: &[u8], mode: u16) -> Result<u32, Errno> {
    match tree.find(ROOT, name) {
        Some(there) => Ok(there),
        None => tree.create(ROOT, name, Kind::Directory, mode),
    }
}

/// Makes the devices that programs expect. Devices of the archive stay.
fn make_devices(state: &mut State) {
    let tree = &mut state.tree;
    let Ok(dev) = directory(tree, b"dev", 0o755) else { return };
    for (name, device) in [
        (&b"console"[..], Device::Console),
        (b"tty", Device::Console),
        (b"null", Device::Null),
        (b"zero", Device::Zero),
        (b"full", Device::Full),
        (b"random", Device::Random),
        (b"urandom", Device::Urandom),
    ] {
        let _ = tree.create(dev, name, Kind::Device(device), 0o666);
    }
    for (name, target) in [
        (&b"fd"[..], &b"/proc/self/fd"[..]),
        (b"stdin", b"/proc/self/fd/0"),
        (b"stdout", b"/proc/self/fd/1"),
        (b"stderr", b"/proc/self/fd/2"),
    ] {
        let _ = tree.create_link(dev, name, target);
    }
}

/// Returns a value of the command line; if it cannot be taken, says why and returns `otherwise`.
fn taken<T>(value: Result<T, ParamError<'_>>, otherwise: T) -> T {
    value.unwrap_or_else(|e| {
        say!("kernel: command line: {e}; it is left out");
        otherwise
    })
}

/// Opens the console as descriptors 0 to 2 of process 1.
fn open_console(state: &mut State) {
    let dev = state.tree.find(ROOT, b"dev");
    let Some(console) = dev.and_then(|dev| state.tree.find(dev, b"console")) else { return };
    for descriptor in 0..3 {
        let Ok(file) = state.open.open(What::Inode(console), 2) else { return };
        state.tree.hold(console);
        state.tasks.process_mut(INIT).files.set(descriptor, file, false);
    }
}
