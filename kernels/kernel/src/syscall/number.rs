//! Numbers of system calls.

use crate::arch::Abi;

/// A system call, by what Linux calls it.
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
    /// `getrandom`.
    Random,
    /// `rseq`.
    Rseq,
}

/// Returns the call of a number; `None` if the kernel does not have it.
#[inline]
pub fn call(abi: Abi, number: u64) -> Option<Call> {
    match abi {
        Abi::X86_64 => x86_64(number),
        Abi::I386 => i386(number),
    }
}

fn x86_64(number: u64) -> Option<Call> {
    Some(match number {
        0 => Call::Read,
        1 => Call::Write,
        2 => Call::Open,
        3 => Call::Close,
        4 => Call::Stat,
        5 => Call::Fstat,
        6 => Call::Lstat,
        7 => Call::Poll,
        8 => Call::Seek,
        9 => Call::Map,
        10 => Call::Protect,
        11 => Call::Unmap,
        12 => Call::Break,
        13 => Call::Action,
        14 => Call::Mask,
        15 => Call::Return,
        16 => Call::Control,
        17 => Call::ReadAt,
        18 => Call::WriteAt,
        19 => Call::ReadVector,
        20 => Call::WriteVector,
        21 => Call::Access,
        22 => Call::Pipe,
        23 => Call::Select,
        24 => Call::Yield,
        25 => Call::Remap,
        28 => Call::Advise,
        32 => Call::Duplicate,
        33 => Call::DuplicateTo,
        34 => Call::Pause,
        35 => Call::Sleep,
        39 => Call::Pid,
        40 => Call::SendFile,
        56 => Call::Clone,
        57 => Call::Fork,
        58 => Call::Vfork,
        59 => Call::Exec,
        60 => Call::Exit,
        61 => Call::Wait4,
        62 => Call::Kill,
        63 => Call::Name,
        72 => Call::FileControl,
        76 => Call::Truncate,
        77 => Call::TruncateOpen,
        79 => Call::WorkingDirectory,
        80 => Call::ChangeDirectory,
        81 => Call::ChangeDirectoryOpen,
        82 => Call::Rename,
        83 => Call::MakeDirectory,
        84 => Call::RemoveDirectory,
        85 => Call::Create,
        86 => Call::Link,
        87 => Call::Unlink,
        88 => Call::SymbolicLink,
        89 => Call::ReadLink,
        90 => Call::ChangeMode,
        91 => Call::ChangeModeOpen,
        92 => Call::ChangeOwner,
        93 => Call::ChangeOwnerOpen,
        94 => Call::ChangeOwnerLink,
        95 => Call::UserMask,
        96 => Call::TimeOfDay,
        97 => Call::OldLimits,
        99 => Call::SystemInfo,
        100 => Call::Times,
        102 => Call::User,
        104 => Call::Group,
        105 => Call::SetUser,
        106 => Call::SetGroup,
        107 => Call::EffectiveUser,
        108 => Call::EffectiveGroup,
        109 => Call::SetProcessGroup,
        110 => Call::ParentPid,
        111 => Call::OwnProcessGroup,
        112 => Call::SetSession,
        115 => Call::Groups,
        121 => Call::ProcessGroup,
        124 => Call::Session,
        127 => Call::Pending,
        130 => Call::Suspend,
        135 => Call::Personality,
        137 => Call::FileSystem,
        157 => Call::ProcessControl,
        158 => Call::ArchThread,
        162 => Call::Sync,
        165 => Call::Mount,
        166 => Call::Unmount,
        169 => Call::Reboot,
        172 => Call::Privilege,
        173 => Call::Ports,
        186 => Call::ThreadId,
        200 => Call::ThreadKillOld,
        201 => Call::Time,
        202 => Call::Futex,
        217 => Call::DirectoryEntries,
        218 => Call::ThreadIdAddress,
        228 => Call::ClockTime,
        229 => Call::ClockResolution,
        230 => Call::ClockSleep,
        231 => Call::ExitGroup,
        234 => Call::ThreadKill,
        257 => Call::OpenAt,
        258 => Call::MakeDirectoryAt,
        260 => Call::ChangeOwnerAt,
        262 => Call::StatAt,
        263 => Call::UnlinkAt,
        264 => Call::RenameAt,
        266 => Call::SymbolicLinkAt,
        267 => Call::ReadLinkAt,
        268 => Call::ChangeModeAt,
        269 => Call::AccessAt,
        271 => Call::PollTime,
        273 => Call::RobustList,
        280 => Call::SetTimesAt,
        292 => Call::Duplicate3,
        293 => Call::Pipe2,
        302 => Call::Limits,
        316 => Call::RenameAt2,
        318 => Call::Random,
        334 => Call::Rseq,
        439 => Call::AccessAt2,
        _ => return None,
    })
}

fn i386(number: u64) -> Option<Call> {
    Some(match number {
        1 => Call::Exit,
        2 => Call::Fork,
        3 => Call::Read,
        4 => Call::Write,
        5 => Call::Open,
        6 => Call::Close,
        7 => Call::WaitPid,
        8 => Call::Create,
        9 => Call::Link,
        10 => Call::Unlink,
        11 => Call::Exec,
        12 => Call::ChangeDirectory,
        13 => Call::Time,
        15 => Call::ChangeMode,
        19 => Call::Seek,
        20 => Call::Pid,
        21 => Call::Mount,
        24 => Call::UserOld,
        29 => Call::Pause,
        33 => Call::Access,
        36 => Call::Sync,
        37 => Call::Kill,
        38 => Call::Rename,
        39 => Call::MakeDirectory,
        40 => Call::RemoveDirectory,
        41 => Call::Duplicate,
        42 => Call::Pipe,
        43 => Call::Times,
        45 => Call::Break,
        47 => Call::GroupOld,
        49 => Call::EffectiveUserOld,
        50 => Call::EffectiveGroupOld,
        52 => Call::Unmount,
        54 => Call::Control,
        55 => Call::FileControlOld,
        57 => Call::SetProcessGroup,
        60 => Call::UserMask,
        63 => Call::DuplicateTo,
        64 => Call::ParentPid,
        65 => Call::OwnProcessGroup,
        66 => Call::SetSession,
        78 => Call::TimeOfDay,
        83 => Call::SymbolicLink,
        85 => Call::ReadLink,
        88 => Call::Reboot,
        91 => Call::Unmap,
        94 => Call::ChangeModeOpen,
        99 => Call::FileSystem,
        101 => Call::Ports,
        110 => Call::Privilege,
        114 => Call::Wait4,
        116 => Call::SystemInfo,
        119 => Call::ReturnOld,
        120 => Call::Clone,
        122 => Call::Name,
        125 => Call::Protect,
        132 => Call::ProcessGroup,
        133 => Call::ChangeDirectoryOpen,
        136 => Call::Personality,
        140 => Call::SeekWide,
        142 => Call::Select,
        145 => Call::ReadVector,
        146 => Call::WriteVector,
        147 => Call::Session,
        158 => Call::Yield,
        162 => Call::Sleep,
        163 => Call::Remap,
        168 => Call::Poll,
        172 => Call::ProcessControl,
        173 => Call::Return,
        174 => Call::Action,
        175 => Call::Mask,
        176 => Call::Pending,
        179 => Call::Suspend,
        180 => Call::ReadAt,
        181 => Call::WriteAt,
        183 => Call::WorkingDirectory,
        190 => Call::Vfork,
        191 => Call::OldLimits,
        192 => Call::MapPages,
        193 => Call::Truncate,
        194 => Call::TruncateOpen,
        195 => Call::Stat64,
        196 => Call::Lstat64,
        197 => Call::Fstat64,
        198 => Call::ChangeOwnerLink,
        199 => Call::User,
        200 => Call::Group,
        201 => Call::EffectiveUser,
        202 => Call::EffectiveGroup,
        205 => Call::Groups,
        207 => Call::ChangeOwnerOpen,
        212 => Call::ChangeOwner,
        213 => Call::SetUser,
        214 => Call::SetGroup,
        219 => Call::Advise,
        220 => Call::DirectoryEntries,
        221 => Call::FileControl,
        224 => Call::ThreadId,
        238 => Call::ThreadKillOld,
        239 => Call::SendFile,
        240 => Call::Futex,
        243 => Call::ThreadArea,
        252 => Call::ExitGroup,
        258 => Call::ThreadIdAddress,
        265 => Call::ClockTime,
        266 => Call::ClockResolution,
        267 => Call::ClockSleep,
        270 => Call::ThreadKill,
        295 => Call::OpenAt,
        296 => Call::MakeDirectoryAt,
        298 => Call::ChangeOwnerAt,
        300 => Call::StatAt64,
        301 => Call::UnlinkAt,
        302 => Call::RenameAt,
        304 => Call::SymbolicLinkAt,
        305 => Call::ReadLinkAt,
        306 => Call::ChangeModeAt,
        307 => Call::AccessAt,
        309 => Call::PollTime,
        311 => Call::RobustList,
        320 => Call::SetTimesAt,
        330 => Call::Duplicate3,
        331 => Call::Pipe2,
        340 => Call::Limits,
        353 => Call::RenameAt2,
        355 => Call::Random,
        386 => Call::Rseq,
        403 => Call::ClockTimeWide,
        407 => Call::ClockSleepWide,
        439 => Call::AccessAt2,
        _ => return None,
    })
}
