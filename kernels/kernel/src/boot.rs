//! From a machine that is set up to process 1.

use ptarmigan::machine::Machine as _;

use crate::arch::Arch;
use crate::fs::tree::ROOT;
use crate::fs::{Device, Kind, What, path};
use crate::syscall::{Stop, Sys};
use crate::task::{Doing, INIT};
use crate::{Kernel, State, params, report, say};

impl<A: Arch> Kernel<A> {
    /// Unpacks the initial file system and makes process 1 of `init=`, `/init` if nothing is said.
    /// [`run`](Self::run) runs it. The machine ends if that cannot be done.
    pub fn start(&'static self, archive: &[u8], command_line: &[u8]) {
        let mut state = self.lock();
        state.command_line.set(command_line);
        match self.unpack(&mut state, archive) {
            Ok(files) => say!(A, "kernel: {files} files"),
            Err(e) => self.refuse(format_args!("the initial file system is damaged: {e:?}")),
        }
        make_devices(&mut state);
        let mut name = [0; 64];
        let init = params::value(state.command_line.text(), "init").unwrap_or("/init").as_bytes();
        let init = init.get(..init.len().min(64)).unwrap_or(b"/init");
        name[..init.len()].copy_from_slice(init);
        let n = init.len();
        let found = path::resolve(&state.tree, ROOT, &name[..n], true);
        let Ok(inode) = found.and_then(|found| found.existing(&state.tree)) else {
            self.refuse(format_args!("there is no {}", core::str::from_utf8(&name[..n]).unwrap_or("init")));
        };
        let state = &mut *state;
        let claimed = state.tasks.claim();
        debug_assert_eq!(claimed, Some((INIT, 1)), "the first task");
        (state.tasks.get_mut(INIT).tid, state.tasks.get_mut(INIT).process) = (1, INIT);
        let process = state.tasks.process_mut(INIT);
        (process.pid, process.group, process.session, process.threads) = (1, 1, 1, 1);
        (process.directory, process.umask) = (ROOT, 0o022);
        state.tree.hold(ROOT);
        let pin = self.pin();
        // SAFETY: 1. The lock is held, and the task does not run. 2. The reference ends below.
        let body = unsafe { self.body(INIT) };
        let mut sys = Sys { kernel: self, state, body, me: INIT, pin: &pin };
        if let Err(e) = sys.begin(inode, &name[..n]) {
            self.refuse(format_args!("process 1 cannot begin: {e:?}"));
        }
        open_console(state);
        state.tasks.get_mut(INIT).doing = Doing::Ready;
        state.tasks.make_ready(INIT);
        say!(A, "kernel: {} frames free", self.machine.get().frames().counts().free);
    }

    fn refuse(&'static self, why: core::fmt::Arguments<'_>) -> ! {
        say!(A, "FAIL {why}");
        A::exit(report::FAIL)
    }
}

impl<A: Arch> Sys<'_, A> {
    /// Begins process 1.
    fn begin(&mut self, inode: u16, name: &[u8]) -> Result<(), Stop> {
        let (inode, is_script) = self.begin_arguments(inode, name)?;
        let arguments = &mut self.state.tasks.arguments;
        if !is_script {
            arguments.add_text(false, name)?;
        }
        for text in [&b"HOME=/"[..], b"PATH=/bin:/sbin", b"TERM=linux"] {
            arguments.add_text(true, text)?;
        }
        self.exec(inode)
    }
}

/// Makes the devices that programs expect. What the archive has already stays.
fn make_devices(state: &mut State) {
    let tree = &mut state.tree;
    let dev = match tree.find(ROOT, b"dev") {
        Some(there) => Ok(there),
        None => tree.create(ROOT, b"dev", Kind::Directory, 0o755),
    };
    let Ok(dev) = dev else { return };
    for (name, device) in [
        (&b"console"[..], Device::Console),
        (b"tty", Device::Console),
        (b"null", Device::Null),
        (b"zero", Device::Zero),
    ] {
        let _ = tree.create(dev, name, Kind::Device(device), 0o666);
    }
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
