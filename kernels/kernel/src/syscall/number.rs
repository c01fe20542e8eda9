//! System calls, and their numbers.

use crate::arch::Abi;

/// Defines the calls: each with its number on x86-64 and on i386, where it has one, and its name.
macro_rules! calls {
    ($($call:ident [$($x86_64:literal)?] [$($i386:literal)?] $name:literal)*) => {
        /// A system call, by its name under Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $(#[doc = $name] $call,)*
        }

        fn x86_64(number: u64) -> Option<Call> {
            Some(match number {
                $($($x86_64 => Call::$call,)?)*
                _ => return None,
            })
        }

        fn i386(number: u64) -> Option<Call> {
            Some(match number {
                $($($i386 => Call::$call,)?)*
                _ => return None,
            })
        }
    };
}

calls! {
    Read                [0]   [3]   "`read`."
    Write               [1]   [4]   "`write`."
    Open                [2]   [5]   "`open`."
    Close               [3]   [6]   "`close`."
    Stat                [4]   []    "`stat`."
    Fstat               [5]   []    "`fstat`."
    Lstat               [6]   []    "`lstat`."
    Stat64              []    [195] "`stat64`."
    Lstat64             []    [196] "`lstat64`."
    Fstat64             []    [197] "`fstat64`."
    Poll                [7]   [168] "`poll`."
    Seek                [8]   [19]  "`lseek`."
    SeekWide            []    [140] "`_llseek`."
    Map                 [9]   []    "`mmap`."
    MapPages            []    [192] "`mmap2`."
    Protect             [10]  [125] "`mprotect`."
    Unmap               [11]  [91]  "`munmap`."
    Break               [12]  [45]  "`brk`."
    Action              [13]  [174] "`rt_sigaction`."
    Mask                [14]  [175] "`rt_sigprocmask`."
    Return              [15]  [173] "`rt_sigreturn`."
    ReturnOld           []    [119] "`sigreturn`."
    Control             [16]  [54]  "`ioctl`."
    ReadAt              [17]  [180] "`pread64`."
    WriteAt             [18]  [181] "`pwrite64`."
    ReadVector          [19]  [145] "`readv`."
    WriteVector         [20]  [146] "`writev`."
    Access              [21]  [33]  "`access`."
    Pipe                [22]  [42]  "`pipe`."
    Select              [23]  [142] "`select`."
    Yield               [24]  [158] "`sched_yield`."
    Remap               [25]  [163] "`mremap`."
    Advise              [28]  [219] "`madvise`."
    Duplicate           [32]  [41]  "`dup`."
    DuplicateTo         [33]  [63]  "`dup2`."
    Pause               [34]  [29]  "`pause`."
    Sleep               [35]  [162] "`nanosleep`."
    Pid                 [39]  [20]  "`getpid`."
    SendFile            [40]  [239] "`sendfile`."
    Clone               [56]  [120] "`clone`."
    Clone3              [435] [435] "`clone3`."
    Fork                [57]  [2]   "`fork`."
    Vfork               [58]  [190] "`vfork`."
    Exec                [59]  [11]  "`execve`."
    Exit                [60]  [1]   "`exit`."
    Wait4               [61]  [114] "`wait4`."
    WaitPid             []    [7]   "`waitpid`."
    Kill                [62]  [37]  "`kill`."
    Name                [63]  [122] "`uname`."
    FileControl         [72]  [221] "`fcntl`."
    FileControlOld      []    [55]  "`fcntl`, with 32-bit locks."
    Truncate            [76]  [193] "`truncate`."
    TruncateOpen        [77]  [194] "`ftruncate`."
    TruncateNarrow      []    [92]  "`truncate`, with a size of 32 bits."
    TruncateOpenNarrow  []    [93]  "`ftruncate`, with a size of 32 bits."
    WorkingDirectory    [79]  [183] "`getcwd`."
    ChangeDirectory     [80]  [12]  "`chdir`."
    ChangeDirectoryOpen [81]  [133] "`fchdir`."
    Rename              [82]  [38]  "`rename`."
    MakeDirectory       [83]  [39]  "`mkdir`."
    RemoveDirectory     [84]  [40]  "`rmdir`."
    Create              [85]  [8]   "`creat`."
    Unlink              [87]  [10]  "`unlink`."
    Link                [86]  [9]   "`link`."
    SymbolicLink        [88]  [83]  "`symlink`."
    ReadLink            [89]  [85]  "`readlink`."
    ChangeMode          [90]  [15]  "`chmod`."
    ChangeModeOpen      [91]  [94]  "`fchmod`."
    ChangeOwner         [92]  [212] "`chown`."
    ChangeOwnerOpen     [93]  [207] "`fchown`."
    ChangeOwnerLink     [94]  [198] "`lchown`."
    UserMask            [95]  [60]  "`umask`."
    TimeOfDay           [96]  [78]  "`gettimeofday`."
    SystemInfo          [99]  [116] "`sysinfo`."
    Times               [100] [43]  "`times`."
    User                [102] [199] "`getuid`."
    Group               [104] [200] "`getgid`."
    EffectiveUser       [107] [201] "`geteuid`."
    EffectiveGroup      [108] [202] "`getegid`."
    UserOld             []    [24]  "`getuid`, 16 bits."
    GroupOld            []    [47]  "`getgid`, 16 bits."
    EffectiveUserOld    []    [49]  "`geteuid`, 16 bits."
    EffectiveGroupOld   []    [50]  "`getegid`, 16 bits."
    SetUser             [105] [213] "`setuid`."
    SetGroup            [106] [214] "`setgid`."
    Groups              [115] [205] "`getgroups`."
    SetProcessGroup     [109] [57]  "`setpgid`."
    ParentPid           [110] [64]  "`getppid`."
    OwnProcessGroup     [111] [65]  "`getpgrp`."
    SetSession          [112] [66]  "`setsid`."
    ProcessGroup        [121] [132] "`getpgid`."
    Session             [124] [147] "`getsid`."
    SignalStack         [131] [186] "`sigaltstack`."
    Pending             [127] [176] "`rt_sigpending`."
    Suspend             [130] [179] "`rt_sigsuspend`."
    FileSystem          [137] [99]  "`statfs`."
    Personality         [135] [136] "`personality`."
    Privilege           [172] [110] "`iopl`."
    Ports               [173] [101] "`ioperm`."
    ArchThread          [158] []    "`arch_prctl`."
    ThreadArea          []    [243] "`set_thread_area`."
    ProcessControl      [157] [172] "`prctl`."
    Mount               [165] [21]  "`mount`."
    Unmount             [166] [52]  "`umount2`."
    Sync                [162] [36]  "`sync`."
    Reboot              [169] [88]  "`reboot`."
    ThreadId            [186] [224] "`gettid`."
    Time                [201] [13]  "`time`."
    Futex               [202] [240] "`futex`."
    FutexWide           []    [422] "`futex_time64`."
    DirectoryEntries    [217] [220] "`getdents64`."
    ThreadIdAddress     [218] [258] "`set_tid_address`."
    ClockTime           [228] [265] "`clock_gettime`."
    ClockTimeWide       []    [403] "`clock_gettime64`."
    ClockResolution     [229] [266] "`clock_getres`."
    ClockSleep          [230] [267] "`clock_nanosleep`."
    ClockSleepWide      []    [407] "`clock_nanosleep_time64`."
    ExitGroup           [231] [252] "`exit_group`."
    ThreadKill          [234] [270] "`tgkill`."
    ThreadKillOld       [200] [238] "`tkill`."
    OpenAt              [257] [295] "`openat`."
    MakeDirectoryAt     [258] [296] "`mkdirat`."
    StatAt              [262] []    "`newfstatat`."
    StatAt64            []    [300] "`fstatat64`."
    UnlinkAt            [263] [301] "`unlinkat`."
    RenameAt            [264] [302] "`renameat`."
    RenameAt2           [316] [353] "`renameat2`."
    SymbolicLinkAt      [266] [304] "`symlinkat`."
    ReadLinkAt          [267] [305] "`readlinkat`."
    ChangeModeAt        [268] [306] "`fchmodat`."
    ChangeOwnerAt       [260] [298] "`fchownat`."
    AccessAt            [269] [307] "`faccessat`."
    AccessAt2           [439] [439] "`faccessat2`."
    SetTimesAt          [280] [320] "`utimensat`."
    PollTime            [271] [309] "`ppoll`."
    RobustList          [273] [311] "`set_robust_list`."
    Duplicate3          [292] [330] "`dup3`."
    Pipe2               [293] [331] "`pipe2`."
    Limits              [302] [340] "`prlimit64`."
    OldLimits           [97]  [191] "`getrlimit`."
    SetLimit            [160] [75]  "`setrlimit`."
    Random              [318] [355] "`getrandom`."
    Rseq                [334] [386] "`rseq`."
}

/// Returns the call of a number; `None` if the kernel does not have it.
#[inline]
pub fn call(abi: Abi, number: u64) -> Option<Call> {
    match abi {
        Abi::X86_64 => x86_64(number),
        Abi::I386 => i386(number),
    }
}
