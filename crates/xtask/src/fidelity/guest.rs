//! Runs a program. After every call it tries to execute a program without a name: that fails, and
//! the recorder reads Linux's count of tables before it.
use super::program::{ARENA, ARENA_PAGES, Call, FILE_PAGES, Program, Step};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The resources of programs besides the arena.
struct World {
    files: [i32; FILE_PAGES.len()],
    segments: [i32; 2],
    /// `/dev/zero`, and the end of a pipe that is written to.
    zero: i32,
    null: i32,
    heap: u64,
}

/// Runs the program in `file`.
pub fn guest(file: &std::path::Path) -> ExitCode {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string());
    let program = match text.and_then(|text| text.parse::<Program>()) {
        Ok(program) => program,
        Err(why) => {
            eprintln!("{}: {why}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let Some(world) = World::new() else {
        eprintln!("no memory files, segments or devices here");
        return ExitCode::FAILURE;
    };
    world.steps(&program.0);
    ExitCode::SUCCESS
}

/// Number of bytes of the instructions that touch memory, below.
const LENGTH: i64 = 2;
/// Where accesses are made, so that other faults are not passed over.
static PLACES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Passes over the access that was refused.
extern "C" fn refused(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid context to a handler installed with SA_SIGINFO.
    let place =
        unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if PLACES.iter().any(|p| p.load(Relaxed) == *place as u64) {
        *place += LENGTH;
    } else {
        // SAFETY: it ends the process.
        unsafe { libc::_exit(99) };
    }
}

// One copy: threads that run at once note the same places.
#[inline(never)]
fn touch(at: u64, write: bool) {
    let mut place: u64;
    // SAFETY: the handler passes over an access that is refused; any other access is to memory of
    // the arena, which holds no object of Rust's. Both instructions have two bytes.
    unsafe {
        if write {
            std::arch::asm!(
                "lea {place}, [rip + 2f]", "mov [{set}], {place}", "2: mov byte ptr [rdi], al",
                place = out(reg) place, set = in(reg) PLACES[1].as_ptr(), in("rdi") at, in("al") 1u8, options(nostack)
            );
        } else {
            std::arch::asm!(
                "lea {place}, [rip + 2f]", "mov [{set}], {place}", "2: mov al, byte ptr [rdi]",
                place = out(reg) place, set = in(reg) PLACES[0].as_ptr(), in("rdi") at, out("al") _, options(nostack)
            );
        }
    }
    let _ = place;
}

/// Of so many steps of threads at once one is followed by a vfork: at the end of its child the
/// recorder looks at the space that they share.
const VFORKS: usize = 8;

/// Makes a child that shares the space, and ends at once.
fn vfork() {
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    let mut stack = [0_u128; 1 << 10];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs a function that only returns, on a stack of its own that grows down
    // from `top` and lives until the child has ended: the caller waits for that.
    let pid = unsafe { libc::clone(child, top.cast(), flags, std::ptr::null_mut()) };
    let mut status = 0;
    // SAFETY: waitpid writes one int, to a variable that lives until the call returns.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
}

impl World {
    fn new() -> Option<Self> {
        // SAFETY: system calls with valid arguments; the handler is one for SA_SIGINFO, on a stack
        // of its own, as stacks are changed.
        unsafe {
            let mut files = [0; FILE_PAGES.len()];
            for (file, pages) in files.iter_mut().zip(FILE_PAGES) {
                *file = libc::memfd_create(c"file".as_ptr(), 0);
                if *file < 0 || libc::ftruncate(*file, (pages << 12) as i64) != 0 {
                    return None;
                }
            }
            let mut segments = [0; 2];
            for (segment, pages) in segments.iter_mut().zip([600, 1024]) {
                *segment = libc::shmget(libc::IPC_PRIVATE, pages << 12, 0o600);
            }
            let zero = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY);
            let mut pipe = [0; 2];
            if zero < 0 || libc::pipe(pipe.as_mut_ptr()) != 0 {
                return None;
            }
            libc::fcntl(pipe[1], libc::F_SETFL, libc::O_NONBLOCK);
            let stack = libc::stack_t {
                ss_sp: libc::mmap(
                    std::ptr::null_mut(),
                    1 << 16,
                    3,
                    libc::MAP_ANONYMOUS | libc::MAP_PRIVATE,
                    -1,
                    0,
                ),
                ss_flags: 0,
                ss_size: 1 << 16,
            };
            libc::sigaltstack(&raw const stack, std::ptr::null_mut());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = refused as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            for signal in [libc::SIGSEGV, libc::SIGBUS] {
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
            // Segments go when the last process that has them attached is gone.
            let heap = libc::syscall(libc::SYS_brk, 0) as u64;
            Some(Self { files, segments, zero, null: pipe[1], heap })
        }
    }

    /// Takes steps beside other threads. No count of theirs would be of one moment, so none waits
    /// for the recorder. The children of forks are counted.
    fn steps_at_once(&self, steps: &[Step]) {
        for (n, step) in steps.iter().enumerate() {
            self.step(step);
            if n % VFORKS == VFORKS - 1 {
                vfork();
            }
        }
    }

    fn steps(&self, steps: &[Step]) {
        for step in steps {
            self.step(step);
            // SAFETY: it fails, as there is no such program.
            unsafe { libc::syscall(libc::SYS_execve, c"".as_ptr(), 0, 0) };
        }
    }

    fn step(&self, step: &Step) {
        match step {
            Step::Call(call) => self.call(call),
            // SAFETY: the child runs steps only, which allocate nothing and take no lock, and
            // ends with `_exit`. So other threads of the parent may run.
            Step::Fork(inner) => unsafe {
                let child = libc::fork();
                if child == 0 {
                    self.steps(inner);
                    libc::_exit(0);
                }
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
            },
            Step::Thread(inner) => std::thread::scope(|scope| {
                scope.spawn(|| inner.iter().for_each(|step| self.steps(std::slice::from_ref(step))));
            }),
            Step::Crowd(inner) => std::thread::scope(|scope| {
                for step in inner {
                    if let Step::Thread(steps) = step {
                        scope.spawn(|| self.steps_at_once(steps));
                    }
                }
            }),
        }
    }

    fn call(&self, call: &Call) {
        let a = |n: usize| call.args.get(n).copied().unwrap_or(0);
        let system = |number: i64, args: [u64; 6]| {
            // SAFETY: the calls work on the arena, which holds no object of Rust's, on the heap
            // above the allocator's part, or on limits; addresses outside are not generated.
            unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) }
        };
        let plain = |number: i64| system(number, [a(0), a(1), a(2), a(3), a(4), a(5)]);
        let inside = |at: u64| (ARENA..ARENA + (ARENA_PAGES << 12) * 2).contains(&at);
        match call.name {
            "mmap" => {
                let file = self.files.get(a(4) as usize).map_or(u64::MAX, |file| *file as u64);
                _ = system(libc::SYS_mmap, [a(0), a(1), a(2), a(3), file, a(5)]);
            }
            "munmap" => _ = plain(libc::SYS_munmap),
            "mprotect" => _ = plain(libc::SYS_mprotect),
            "madvise" => _ = plain(libc::SYS_madvise),
            "mlock" => _ = plain(libc::SYS_mlock),
            "mlock2" => _ = plain(libc::SYS_mlock2),
            "munlock" => _ = plain(libc::SYS_munlock),
            "mlockall" => _ = plain(libc::SYS_mlockall),
            "munlockall" => _ = plain(libc::SYS_munlockall),
            "mremap" => _ = plain(libc::SYS_mremap),
            "remap_file_pages" => _ = system(libc::SYS_remap_file_pages, [a(0), a(1), 0, a(2), 0, 0]),
            "brk" => _ = system(libc::SYS_brk, [((self.heap + (4 << 20)) & !0xfff) + a(0), 0, 0, 0, 0, 0]),
            "shmat" => {
                let remap = libc::SHM_REMAP as u64;
                _ = system(libc::SYS_shmat, [self.segments[a(1) as usize % 2] as u64, a(0), remap, 0, 0, 0]);
            }
            "shmdt" => _ = plain(libc::SYS_shmdt),
            "limit" => {
                let limit = libc::rlimit { rlim_cur: a(0) << 12, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: the limit lives until the call returns.
                unsafe { libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_STACK, &raw const limit) };
            }
            "read" | "write" => {
                for n in 0..a(1) {
                    let at = a(0) + ((n * a(2)) << 12);
                    if inside(at) {
                        touch(at, call.name == "write");
                    }
                }
            }
            "kread" => _ = system(libc::SYS_write, [self.null as u64, a(0), 1, 0, 0, 0]),
            "kwrite" => _ = system(libc::SYS_read, [self.zero as u64, a(0), 1, 0, 0, 0]),
            _ => {}
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for segment in self.segments {
            // SAFETY: it marks our own segments for removal.
            unsafe { libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) };
        }
    }
}
