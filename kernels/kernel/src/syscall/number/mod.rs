//! System calls, and their numbers.

mod i386;
mod x86_64;

use crate::arch::Abi;

/// A system call, by its name under Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `read`.
    Read,
    /// `write`.
    Write,
    /// `open`.
    Open,
    /// `close`.
    Close,
    /// `stat`.
    Stat,
    /// `fstat`.
    Fstat,
    /// `lstat`.
    Lstat,
    /// `stat64`.
    Stat64,
    /// `lstat64`.
    Lstat64,
    /// `fstat64`.
    Fstat64,
    /// `poll`.
    Poll,
    /// `lseek`.
    Seek,
    /// `_llseek`.
    SeekWide,
    /// `mmap`.
    Map,
    /// `mmap2`.
    MapPages,
    /// `mprotect`.
    Protect,
    /// `munmap`.
    Unmap,
    /// `brk`.
    Break,
    /// `rt_sigaction`.
    Action,
    /// `rt_sigprocmask`.
    Mask,
    /// `rt_sigreturn`.
    Return,
    /// `sigreturn`.
    ReturnOld,
    /// `ioctl`.
    Control,
    /// `pread64`.
    ReadAt,
    /// `pwrite64`.
    WriteAt,
    /// `readv`.
    ReadVector,
    /// `writev`.
    WriteVector,
    /// `access`.
    Access,
    /// `pipe`.
    Pipe,
    /// `select`.
    Select,
    /// `sched_yield`.
    Yield,
    /// `mremap`.
    Remap,
    /// `madvise`.
    Advise,
    /// `dup`.
    Duplicate,
    /// `dup2`.
    DuplicateTo,
    /// `pause`.
    Pause,
    /// `nanosleep`.
    Sleep,
    /// `getpid`.
    Pid,
    /// `sendfile`.
    SendFile,
    /// `clone`.
    Clone,
    /// `clone3`.
    Clone3,
    /// `fork`.
    Fork,
    /// `vfork`.
    Vfork,
    /// `execve`.
    Exec,
    /// `exit`.
    Exit,
    /// `wait4`.
    Wait4,
    /// `waitpid`.
    WaitPid,
    /// `kill`.
    Kill,
    /// `uname`.
    Name,
    /// `fcntl`.
    FileControl,
    /// `fcntl`, with 32-bit locks.
    FileControlOld,
    /// `truncate`.
    Truncate,
    /// `ftruncate`.
    TruncateOpen,
    /// `truncate`, with a size of 32 bits.
    TruncateNarrow,
    /// `ftruncate`, with a size of 32 bits.
    TruncateOpenNarrow,
    /// `getcwd`.
    WorkingDirectory,
    /// `chdir`.
    ChangeDirectory,
    /// `fchdir`.
    ChangeDirectoryOpen,
    /// `rename`.
    Rename,
    /// `mkdir`.
    MakeDirectory,
    /// `rmdir`.
    RemoveDirectory,
    /// `creat`.
    Create,
    /// `unlink`.
    Unlink,
    /// `link`.
    Link,
    /// `symlink`.
    SymbolicLink,
    /// `readlink`.
    ReadLink,
    /// `chmod`.
    ChangeMode,
    /// `fchmod`.
    ChangeModeOpen,
    /// `chown`.
    ChangeOwner,
    /// `fchown`.
    ChangeOwnerOpen,
    /// `lchown`.
    ChangeOwnerLink,
    /// `umask`.
    UserMask,
    /// `gettimeofday`.
    TimeOfDay,
    /// `sysinfo`.
    SystemInfo,
    /// `times`.
    Times,
    /// `getuid`.
    User,
    /// `getgid`.
    Group,
    /// `geteuid`.
    EffectiveUser,
    /// `getegid`.
    EffectiveGroup,
    /// `getuid`, 16 bits.
    UserOld,
    /// `getgid`, 16 bits.
    GroupOld,
    /// `geteuid`, 16 bits.
    EffectiveUserOld,
    /// `getegid`, 16 bits.
    EffectiveGroupOld,
    /// `setuid`.
    SetUser,
    /// `setgid`.
    SetGroup,
    /// `getgroups`.
    Groups,
    /// `setpgid`.
    SetProcessGroup,
    /// `getppid`.
    ParentPid,
    /// `getpgrp`.
    OwnProcessGroup,
    /// `setsid`.
    SetSession,
    /// `getpgid`.
    ProcessGroup,
    /// `getsid`.
    Session,
    /// `sigaltstack`.
    SignalStack,
    /// `rt_sigpending`.
    Pending,
    /// `rt_sigsuspend`.
    Suspend,
    /// `statfs`.
    FileSystem,
    /// `personality`.
    Personality,
    /// `iopl`.
    Privilege,
    /// `ioperm`.
    Ports,
    /// `arch_prctl`.
    ArchThread,
    /// `set_thread_area`.
    ThreadArea,
    /// `prctl`.
    ProcessControl,
    /// `mount`.
    Mount,
    /// `umount2`.
    Unmount,
    /// `sync`.
    Sync,
    /// `reboot`.
    Reboot,
    /// `gettid`.
    ThreadId,
    /// `time`.
    Time,
    /// `futex`.
    Futex,
    /// `futex_time64`.
    FutexWide,
    /// `getdents64`.
    DirectoryEntries,
    /// `set_tid_address`.
    ThreadIdAddress,
    /// `clock_gettime`.
    ClockTime,
    /// `clock_gettime64`.
    ClockTimeWide,
    /// `clock_getres`.
    ClockResolution,
    /// `clock_nanosleep`.
    ClockSleep,
    /// `clock_nanosleep_time64`.
    ClockSleepWide,
    /// `exit_group`.
    ExitGroup,
    /// `tgkill`.
    ThreadKill,
    /// `tkill`.
    ThreadKillOld,
    /// `openat`.
    OpenAt,
    /// `mkdirat`.
    MakeDirectoryAt,
    /// `newfstatat`.
    StatAt,
    /// `fstatat64`.
    StatAt64,
    /// `unlinkat`.
    UnlinkAt,
    /// `renameat`.
    RenameAt,
    /// `renameat2`.
    RenameAt2,
    /// `symlinkat`.
    SymbolicLinkAt,
    /// `readlinkat`.
    ReadLinkAt,
    /// `fchmodat`.
    ChangeModeAt,
    /// `fchownat`.
    ChangeOwnerAt,
    /// `faccessat`.
    AccessAt,
    /// `faccessat2`.
    AccessAt2,
    /// `utimensat`.
    SetTimesAt,
    /// `ppoll`.
    PollTime,
    /// `set_robust_list`.
    RobustList,
    /// `dup3`.
    Duplicate3,
    /// `pipe2`.
    Pipe2,
    /// `prlimit64`.
    Limits,
    /// `getrlimit`.
    OldLimits,
    /// `setrlimit`.
    SetLimit,
    /// `getrandom`.
    Random,
    /// `rseq`.
    Rseq,
}

/// Returns the call of a number; `None` if the kernel does not have it.
#[inline]
pub fn call(abi: Abi, number: u64) -> Option<Call> {
    match abi {
        Abi::X86_64 => x86_64::call(number),
        Abi::I386 => i386::call(number),
    }
}
