//! The table of calls: their names, their numbers, and what makes them.

use super::events::milliseconds;
use super::files::AT_FDCWD;
use super::stat::NOFOLLOW;
use super::time::Width;
use super::{Stop, Sys};
use crate::arch::{Abi, Arch, Context};
use crate::errno::Errno;
use crate::task::{Ends, Wait};

/// The directory that a task is in, as an argument.
const HERE: u64 = AT_FDCWD as u64;
/// `AT_REMOVEDIR`.
const DIRECTORY: u64 = 0x200;
/// `O_CREAT | O_WRONLY | O_TRUNC`.
const NEW: u64 = 0o1101;

/// Defines the calls. Each has its names under Linux, and its result; its numbers on x86-64, on
/// i386 and on newer architectures (`asm-generic/unistd.h`), where it has some.
macro_rules! calls {
    (|$sys:ident, $a:ident| $(
        $names:literal [$($x86_64:literal)*] [$($i386:literal)*] [$($generic:literal)*] $result:expr;
    )*) => {
        impl<A: Arch> Sys<'_, A> {
            /// Makes the call with a number.
            #[inline]
            pub(super) fn make(&mut self, number: u64) -> Result<u64, Stop> {
                let $sys = self;
                let mut $a = [0; 6];
                for (n, argument) in $a.iter_mut().enumerate() {
                    *argument = $sys.body.context.argument(n);
                }
                Ok(match A::ABI {
                    Abi::X86_64 => match number {
                        $($($x86_64 => $result,)*)*
                        _ => return Err($sys.unknown(number)),
                    },
                    Abi::I386 => match number {
                        $($($i386 => $result,)*)*
                        _ => return Err($sys.unknown(number)),
                    },
                    Abi::Aarch64 | Abi::Riscv64 => match number {
                        $($($generic => $result,)*)*
                        _ => return Err($sys.unknown(number)),
                    },
                })
            }
        }
    };
}

calls! { |sys, a|
    // Descriptors.
    "read"                 [0]   [3]      [63]  sys.read(a[0], a[1], a[2], None)?;
    "write"                [1]   [4]      [64]  sys.write(a[0], a[1], a[2], None)?;
    "pread64"              [17]  [180]    [67]  sys.read(a[0], a[1], a[2], Some(Self::wide(a[3], a[4])))?;
    "pwrite64"             [18]  [181]    [68]  sys.write(a[0], a[1], a[2], Some(Self::wide(a[3], a[4])))?;
    "readv"                [19]  [145]    [65]  sys.vector([a[0], a[1], a[2]], None, false)?;
    "writev"               [20]  [146]    [66]  sys.vector([a[0], a[1], a[2]], None, true)?;
    "preadv"               [295] [333]    [69]  sys.vector([a[0], a[1], a[2]], Some(Self::wide(a[3], a[4])), false)?;
    "pwritev"              [296] [334]    [70]  sys.vector([a[0], a[1], a[2]], Some(Self::wide(a[3], a[4])), true)?;
    "preadv2"              [327] [378]    [286] sys.vector_with_flags(a, false)?;
    "pwritev2"             [328] [379]    [287] sys.vector_with_flags(a, true)?;
    "sendfile"             [40]  []       [71]  sys.send_file(a, 8)?;
    "sendfile"             []    [187]    []    sys.send_file(a, 4)?;
    "sendfile64"           []    [239]    []    sys.send_file(a, 8)?;
    "copy_file_range"      [326] [377]    [285] sys.copy_range(a)?;
    "open"                 [2]   [5]      []    sys.open(HERE, a[0], a[1], a[2])?;
    "openat"               [257] [295]    [56]  sys.open(a[0], a[1], a[2], a[3])?;
    "creat"                [85]  [8]      []    sys.open(HERE, a[0], NEW, a[1])?;
    "close"                [3]   [6]      [57]  sys.close(a[0])?;
    "lseek"                [8]   []       [62]  sys.seek(a[0], a[1] as i64, a[2])?;
    "lseek"                []    [19]     []    sys.seek(a[0], i64::from(a[1] as i32), a[2])?;
    "_llseek"              []    [140]    []    {
        let at = sys.seek(a[0], (a[1] << 32 | a[2] & 0xffff_ffff) as i64, a[4])?;
        sys.answer(a[3], &at.to_le_bytes())?
    };
    "pipe"                 [22]  [42]     []    sys.pipe(a[0], 0)?;
    "pipe2"                [293] [331]    [59]  sys.pipe(a[0], a[1])?;
    "dup"                  [32]  [41]     [23]  sys.duplicate(a[0], 0, false)?;
    "dup2"                 [33]  [63]     []    sys.duplicate_to(a[0], a[1], 0, true)?;
    "dup3"                 [292] [330]    [24]  sys.duplicate_to(a[0], a[1], a[2], false)?;
    "fcntl, fcntl64"       [72]  [55 221] [25]  sys.control(a[0], a[1], a[2])?;
    "ioctl"                [16]  [54]     [29]  sys.device_control(a[0], a[1], a[2])?;
    "poll"                 [7]   [168]    []    sys.poll(a[0], a[1], milliseconds(a[2]))?;
    "ppoll"                [271] [309]    [73]  {
        let timeout = sys.timeout(a[2], Width::Word)?;
        sys.with_mask(a[3], a[4], |sys| sys.poll(a[0], a[1], timeout))?
    };
    "ppoll_time64"         []    [414]    []    {
        let timeout = sys.timeout(a[2], Width::Wide)?;
        sys.with_mask(a[3], a[4], |sys| sys.poll(a[0], a[1], timeout))?
    };
    "select"               [23]  [142]    []    sys.select(a, 1000, Width::Word)?;
    "pselect6"             [270] [308]    [72]  sys.select_masked(a, Width::Word)?;
    "pselect6_time64"      []    [413]    []    sys.select_masked(a, Width::Wide)?;
    "epoll_create"         [213] [254]    []    if a[0] as i32 > 0 { sys.create_set(0)? } else { return Err(Errno::EINVAL.into()) };
    "epoll_create1"        [291] [329]    [20]  sys.create_set(a[0])?;
    "epoll_ctl"            [233] [255]    [21]  sys.control_set(a)?;
    "epoll_wait"           [232] [256]    []    sys.wait_for_set([a[0], a[1], a[2]], milliseconds(a[3]))?;
    "epoll_pwait"          [281] [319]    [22]  {
        sys.with_mask(a[4], a[5], |sys| sys.wait_for_set([a[0], a[1], a[2]], milliseconds(a[3])))?
    };
    "epoll_pwait2"         [441] [441]    [441] {
        let timeout = sys.timeout(a[3], Width::Wide)?;
        sys.with_mask(a[4], a[5], |sys| sys.wait_for_set([a[0], a[1], a[2]], timeout))?
    };
    "eventfd"              [284] [323]    []    sys.event_file(a[0], 0)?;
    "eventfd2"             [290] [328]    [19]  sys.event_file(a[0], a[1])?;
    "timerfd_create"       [283] [322]    [85]  sys.timer_file(a[0], a[1])?;
    "timerfd_settime"      [286] [325]    [86]  sys.set_timer(a, Width::Word)?;
    "timerfd_settime64"    []    [411]    []    sys.set_timer(a, Width::Wide)?;
    "timerfd_gettime"      [287] [326]    [87]  sys.timer_setting(a[0], a[1], Width::Word)?;
    "timerfd_gettime64"    []    [410]    []    sys.timer_setting(a[0], a[1], Width::Wide)?;

    // There are no sockets.
    "socket, socketpair"   [41 53] [359 360] [198 199] return Err(sys.no_sockets().into());
    "socketcall"           []    [102]    []    return Err(sys.no_sockets().into());
    "bind, listen, accept, accept4, connect, getsockname, getpeername, getsockopt, setsockopt, shutdown, sendto, \
     recvfrom, sendmsg, recvmsg, sendmmsg, recvmmsg"
        [49 50 43 288 42 51 52 55 54 48 44 45 46 47 307 299] [361 363 364 362 367 368 365 366 373 369 371 370 372 345 337]
        [200 201 202 242 203 204 205 209 208 210 206 207 211 212 269 243] return Err(sys.no_socket(a[0]).into());

    // Files and directories.
    "stat, stat64"         [4]   [195]    []    sys.stat_at([HERE, a[0], a[1], 0, 0, 0])?;
    "lstat, lstat64"       [6]   [196]    []    sys.stat_at([HERE, a[0], a[1], NOFOLLOW, 0, 0])?;
    "fstat, fstat64"       [5]   [197]    [80]  sys.stat_open(a[0], a[1])?;
    "newfstatat, fstatat64" [262] [300]    [79]  sys.stat_at(a)?;
    "statx"                [332] [383]    [291] sys.stat_extended(a)?;
    "statfs"               [137] [99]     [43]  sys.existing(HERE, a[0]).and_then(|_| sys.file_system(a[1], A::ABI.word()))?;
    "fstatfs"              [138] [100]    [44]  sys.file(a[0]).and_then(|_| sys.file_system(a[1], A::ABI.word()))?;
    "statfs64"             []    [268]    []    sys.existing(HERE, a[0]).and_then(|_| sys.file_system_wide(a[2], a[1]))?;
    "fstatfs64"            []    [269]    []    sys.file(a[0]).and_then(|_| sys.file_system_wide(a[2], a[1]))?;
    // There is one user.
    "access"               [21]  [33]     []    sys.access(HERE, a[0], a[1], 0)?;
    "faccessat"            [269] [307]    [48]  sys.access(a[0], a[1], a[2], 0)?;
    "faccessat2"           [439] [439]    [439] sys.access(a[0], a[1], a[2], a[3])?;
    "chown"                [92]  [212]    []    sys.change_owner(HERE, a[0], [a[1], a[2]], 0)?;
    "lchown"               [94]  [198]    []    sys.change_owner(HERE, a[0], [a[1], a[2]], NOFOLLOW)?;
    "fchownat"             [260] [298]    [54]  sys.change_owner(a[0], a[1], [a[2], a[3]], a[4])?;
    "fchown"               [93]  [207]    [55]  sys.change_owner_of(a[0], [a[1], a[2]])?;
    "chown, of 16 bits"    []    [182]    []    sys.change_owner(HERE, a[0], [a[1], a[2]].map(Self::short_owner), 0)?;
    "lchown, of 16 bits"   []    [16]     []    sys.change_owner(HERE, a[0], [a[1], a[2]].map(Self::short_owner), NOFOLLOW)?;
    "fchown, of 16 bits"   []    [95]     []    sys.change_owner_of(a[0], [a[1], a[2]].map(Self::short_owner))?;
    "utimensat"            [280] [320]    [88]  sys.set_times(a, Width::Word)?;
    "utimensat_time64"     []    [412]    []    sys.set_times(a, Width::Wide)?;
    "chmod"                [90]  [15]     []    sys.existing(HERE, a[0]).map(|inode| sys.set_mode(inode, a[1]))?;
    "fchmodat"             [268] [306]    [53]  sys.existing(a[0], a[1]).map(|inode| sys.set_mode(inode, a[2]))?;
    "fchmod"               [91]  [94]     [52]  sys.change_mode(a[0], a[1])?;
    // No file has extended attributes.
    "setxattr, getxattr, removexattr" [188 191 197] [226 229 235] [5 8 14] sys.attribute_at(a[0], a[1], 0)?;
    "lsetxattr, lgetxattr, lremovexattr" [189 192 198] [227 230 236] [6 9 15] sys.attribute_at(a[0], a[1], NOFOLLOW)?;
    "fsetxattr, fgetxattr, fremovexattr" [190 193 199] [228 231 237] [7 10 16] sys.attribute_of(a[0], a[1])?;
    "listxattr"            [194] [232]    [11]  sys.list_attributes(a[0], 0)?;
    "llistxattr"           [195] [233]    [12]  sys.list_attributes(a[0], NOFOLLOW)?;
    "flistxattr"           [196] [234]    [13]  sys.file(a[0]).map(|_| 0)?;
    "umask"                [95]  [60]     [166] {
        core::mem::replace(&mut sys.process().umask, a[0] as u16 & 0o777).into()
    };
    "truncate, truncate64" [76]  [193]    [45]  sys.truncate(a[0], Self::wide(a[1], a[2]))?;
    "ftruncate, ftruncate64" [77]  [194]    [46]  sys.truncate_open(a[0], Self::wide(a[1], a[2]))?;
    "truncate"             []    [92]     []    sys.truncate(a[0], i64::from(a[1] as i32) as u64)?;
    "ftruncate"            []    [93]     []    sys.truncate_open(a[0], i64::from(a[1] as i32) as u64)?;
    "fallocate"            [285] [324]    [47]  {
        let (at, len) = match A::ABI {
            Abi::I386 => (Self::wide(a[2], a[3]), Self::wide(a[4], a[5])),
            _ => (a[2], a[3]),
        };
        sys.allocate(a[0], a[1], at, len)?
    };
    "fadvise64"            [221] []       [223] sys.advise_file(a[0], a[2], a[3])?;
    "fadvise64"            []    [250]    []    sys.advise_file(a[0], a[3], a[4])?;
    "fadvise64_64"         []    [272]    []    sys.advise_file(a[0], Self::wide(a[3], a[4]), a[5])?;
    "fsync, fdatasync"     [74 75] [118 148] [82 83] sys.synchronize(a[0])?;
    "syncfs"               [306] [344]    [267] sys.file(a[0]).map(|_| 0)?;
    "sync_file_range"      [277] []       [84]  sys.synchronize_range(a[0], a[1], a[2], a[3])?;
    "sync_file_range"      []    [314]    []    {
        sys.synchronize_range(a[0], Self::wide(a[1], a[2]), Self::wide(a[3], a[4]), a[5])?
    };
    "flock"                [73]  [143]    [32]  sys.lock_whole(a[0], a[1])?;
    "getcwd"               [79]  [183]    [17]  sys.working_directory(a[0], a[1])?;
    "chdir"                [80]  [12]     [49]  sys.existing(HERE, a[0]).and_then(|inode| sys.enter(inode))?;
    "fchdir"               [81]  [133]    [50]  sys.inode_of(a[0]).and_then(|inode| sys.enter(inode))?;
    "getdents64"           [217] [220]    [61]  sys.entries(a[0], a[1], a[2])?;
    "mkdir"                [83]  [39]     []    sys.make_directory(HERE, a[0], a[1])?;
    "mkdirat"              [258] [296]    [34]  sys.make_directory(a[0], a[1], a[2])?;
    "mknod"                [133] [14]     []    sys.make_node(HERE, a[0], a[1])?;
    "mknodat"              [259] [297]    [33]  sys.make_node(a[0], a[1], a[2])?;
    "rmdir"                [84]  [40]     []    sys.unlink(HERE, a[0], true)?;
    "unlink"               [87]  [10]     []    sys.unlink(HERE, a[0], false)?;
    "unlinkat"             [263] [301]    [35]  sys.unlink(a[0], a[1], a[2] & DIRECTORY != 0)?;
    "rename"               [82]  [38]     []    sys.rename([HERE, a[0]], [HERE, a[1]])?;
    "renameat, renameat2"  [264 316] [302 353] [38 276] sys.rename([a[0], a[1]], [a[2], a[3]])?;
    "link"                 [86]  [9]      []    sys.link([HERE, a[0]], [HERE, a[1]], 0)?;
    "linkat"               [265] [303]    [37]  sys.link([a[0], a[1]], [a[2], a[3]], a[4])?;
    "symlink"              [88]  [83]     []    sys.make_link(a[0], HERE, a[1])?;
    "symlinkat"            [266] [304]    [36]  sys.make_link(a[0], a[1], a[2])?;
    "readlink"             [89]  [85]     []    sys.read_link(HERE, a[0], a[1], a[2])?;
    "readlinkat"           [267] [305]    [78]  sys.read_link(a[0], a[1], a[2], a[3])?;
    "mount"                [165] [21]     [40]  sys.mount(a[1], a[2])?;
    "umount2"              [166] [52]     [39]  return Err(Errno::EINVAL.into());
    "sync"                 [162] [36]     [81]  0;

    // Memory.
    "mmap"                 [9]   []       [222] sys.map(a)?;
    "mmap2"                []    [192]    []    sys.map([a[0], a[1], a[2], a[3], a[4], a[5] << 12])?;
    "mprotect"             [10]  [125]    [226] sys.protect(a[0], a[1], a[2])?;
    "munmap"               [11]  [91]     [215] sys.unmap(a[0], a[1])?;
    "mremap"               [25]  [163]    [216] sys.remap(a)?;
    "madvise"              [28]  [219]    [233] sys.advise(a[0], a[1], a[2])?;
    "mlock"                [149] [150]    [228] sys.lock_memory(a[0], a[1], true, true)?;
    "mlock2"               [325] [376]    [284] sys.lock_memory_with(a[0], a[1], a[2])?;
    "munlock"              [150] [151]    [229] sys.lock_memory(a[0], a[1], false, false)?;
    "mlockall"             [151] [152]    [230] sys.lock_all_with(a[0])?;
    "munlockall"           [152] [153]    [231] sys.lock_all(0)?;
    "mincore"              [27]  [218]    [232] sys.in_memory(a[0], a[1], a[2])?;
    "msync"                [26]  [144]    [227] sys.synchronize_memory(a[0], a[1], a[2])?;
    "memfd_create"         [319] [356]    [279] sys.create_memory_file(a[0], a[1])?;
    "shmget"               [29]  [395]    [194] sys.keyed_memory(a[0], a[1], a[2])?;
    "shmat"                [30]  [397]    [196] sys.attach_keyed(a[0], a[1], a[2])?;
    "shmdt"                [67]  [398]    [197] sys.detach_keyed(a[0])?;
    "shmctl"               [31]  [396]    [195] sys.control_keyed(a[0], a[1], a[2])?;
    "ipc"                  []    [117]    []    sys.keyed_call(a)?;
    "brk"                  [12]  [45]     [214] sys.set_break(a[0])?;

    // Processes and threads.
    "clone"                [56]  [120]    [220] sys.clone(a)?;
    "clone3"               [435] [435]    [435] sys.clone3(a[0], a[1])?;
    "fork"                 [57]  [2]      []    sys.fork()?;
    "vfork"                [58]  [190]    []    sys.vfork()?;
    "execve"               [59]  [11]     [221] sys.execute(a[0], a[1], a[2])?;
    "execveat"             [322] [358]    [281] sys.execute_at(a)?;
    "exit"                 [60]  [1]      [93]  return Err(Stop::End(Ends::Task, (a[0] as i32 & 0xff) << 8));
    "exit_group"           [231] [252]    [94]  return Err(Stop::End(Ends::Process, (a[0] as i32 & 0xff) << 8));
    "wait4"                [61]  [114]    [260] sys.wait(a[0], a[1], a[2], a[3])?;
    "waitid"               [247] [284]    [95]  sys.wait_for([a[0], a[1], a[2], a[3], a[4]])?;
    "waitpid"              []    [7]      []    sys.wait(a[0], a[1], a[2], 0)?;
    "futex"                [202] [240]    [98]  sys.futex(a, Width::Word)?;
    "futex_time64"         []    [422]    []    sys.futex(a, Width::Wide)?;
    "set_robust_list"      [273] [311]    [99]  sys.set_robust_list(a[0], a[1])?;
    "get_robust_list"      [274] [312]    [100] sys.robust_list(a[0], a[1], a[2])?;
    "rseq"                 [334] [386]    [293] return Err(Errno::ENOSYS.into());
    "sched_setaffinity"    [203] [241]    [122] sys.set_affinity(a[0], a[1], a[2])?;
    "sched_getaffinity"    [204] [242]    [123] sys.affinity(a[0], a[1], a[2])?;
    "sched_getscheduler"   [145] [157]    [120] sys.policy(a[0])?;
    "sched_getparam"       [143] [155]    [121] sys.rank(a[0], a[1])?;
    "sched_setscheduler"   [144] [156]    [119] sys.set_policy(a[0], Some(a[1]), a[2])?;
    "sched_setparam"       [142] [154]    [118] sys.set_policy(a[0], None, a[1])?;
    "sched_rr_get_interval" [148] [161]    [127] sys.turn_length(a[0], a[1], Width::Word)?;
    "sched_rr_get_interval_time64" []    [423]    []    sys.turn_length(a[0], a[1], Width::Wide)?;
    "sched_get_priority_max" [146] [159]    [125] Self::priority_range(a[0], false)?;
    "sched_get_priority_min" [147] [160]    [126] Self::priority_range(a[0], true)?;
    "getpriority"          [140] [96]     [141] sys.priority(a[0], a[1])?;
    "setpriority"          [141] [97]     [140] sys.set_priority(a[0], a[1], a[2])?;
    "getcpu"               [309] [318]    [168] sys.current_cpu(a[0], a[1])?;
    "sched_yield"          [24]  [158]    [124] return Err(Stop::GiveWay);
    "getpid"               [39]  [20]     [172] sys.process().pid as u64;
    "gettid"               [186] [224]    [178] sys.task().tid as u64;
    "set_tid_address"      [218] [258]    [96]  {
        sys.task().clear_tid = a[0];
        sys.task().tid as u64
    };
    "getppid"              [110] [64]     [173] {
        let (own, parent) = (sys.process_slot(), sys.process().parent);
        if own == crate::task::INIT { 0 } else { sys.state.tasks.process(parent).pid as u64 }
    };
    "getpgrp"              [111] [65]     []    sys.process().group as u64;
    "getpgid"              [121] [132]    [155] sys.process_with(a[0]).map(|process| sys.state.tasks.process(process).group as u64)?;
    "setpgid"              [109] [57]     [154] sys.set_group(a[0], a[1])?;
    "getsid"               [124] [147]    [156] sys.process_with(a[0]).map(|process| sys.state.tasks.process(process).session as u64)?;
    "setsid"               [112] [66]     [157] sys.new_session()?;
    "getuid, getgid, geteuid, getegid" [102 104 107 108] [199 200 201 202 24 47 49 50] [174 175 176 177] 0;
    "getgroups"            [115] [205]    [158] sys.groups(a[0], a[1])?;
    "setgroups"            [116] [206]    [159] sys.set_groups(a[0], a[1])?;
    "setuid, setgid"       [105 106] [213 214] [146 144] Self::set_owners(&a[..1])?;
    "setreuid, setregid"   [113 114] [203 204] [145 143] Self::set_owners(&a[..2])?;
    "setresuid, setresgid" [117 119] [208 210] [147 149] Self::set_owners(&a[..3])?;
    "getresuid, getresgid" [118 120] [209 211] [148 150] sys.owners(&a[..3])?;
    "arch_prctl"           [158] []       []    sys.set_thread(a[0], a[1])?;
    "set_thread_area"      []    [243]    []    sys.set_thread_area(a[0])?;
    "prctl"                [157] [172]    [167] return Err(Errno::EINVAL.into());
    "personality"          [135] [136]    [92]  0;
    "iopl, ioperm"         [172 173] [110 101] []    {
        sys.process().ports = true;
        0
    };
    "getrusage"            [98]  [77]     [165] sys.usage(a[0], a[1])?;
    "prlimit64"            [302] [340]    [261] sys.limits(a, 8)?;
    "getrlimit"            [97]  [191]    [163] sys.limits([0, a[0], 0, a[1], 0, 0], A::ABI.word())?;
    "setrlimit"            [160] [75]     [164] sys.limits([0, a[0], a[1], 0, 0, 0], A::ABI.word())?;

    // Signals.
    "rt_sigaction"         [13]  [174]    [134] sys.action(a[0], a[1], a[2], a[3])?;
    "rt_sigprocmask"       [14]  [175]    [135] sys.mask(a[0], a[1], a[2], a[3])?;
    "rt_sigreturn, sigreturn" [15]  [173 119] [139] sys.handler_returns()?;
    "rt_sigpending"        [127] [176]    [136] sys.pending(a[0])?;
    "rt_sigtimedwait"      [128] [177]    [137] sys.take_signal(a, Width::Word)?;
    "rt_sigtimedwait_time64" []    [421]    []    sys.take_signal(a, Width::Wide)?;
    "rt_sigsuspend"        [130] [179]    [133] sys.suspend(a[0], a[1])?;
    "sigaltstack"          [131] [186]    [132] sys.signal_stack(a[0], a[1])?;
    "kill"                 [62]  [37]     [129] sys.kill(a[0], a[1])?;
    "tgkill"               [234] [270]    [131] sys.kill_thread(a[0], a[1], a[2])?;
    "tkill"                [200] [238]    [130] sys.kill_thread(0, a[0], a[1])?;
    "pause"                [34]  [29]     []    return Err(Stop::Block(Wait::Time));

    // Time.
    "nanosleep"            [35]  [162]    [101] sys.sleep(None, a[0], a[1], Width::Word)?;
    "clock_nanosleep"      [230] [267]    [115] sys.sleep_by(a, Width::Word)?;
    "clock_nanosleep_time64" []    [407]    []    sys.sleep_by(a, Width::Wide)?;
    "clock_gettime"        [228] [265]    [113] sys.clock_time(a[0], a[1], Width::Word)?;
    "clock_gettime64"      []    [403]    []    sys.clock_time(a[0], a[1], Width::Wide)?;
    "clock_getres"         [229] [266]    [114] sys.clock_resolution(a[0], a[1], Width::Word)?;
    "clock_getres_time64"  []    [406]    []    sys.clock_resolution(a[0], a[1], Width::Wide)?;
    "alarm"                [37]  [27]     []    sys.alarm(a[0]);
    "setitimer"            [38]  [104]    [103] sys.set_interval(a[0], a[1], a[2])?;
    "getitimer"            [36]  [105]    [102] sys.interval(a[0], a[1])?;
    "timer_create"         [222] [259]    [107] sys.create_timer(a[0], a[1], a[2])?;
    "timer_settime"        [223] [260]    [110] sys.set_made_timer(a, Width::Word)?;
    "timer_settime64"      []    [409]    []    sys.set_made_timer(a, Width::Wide)?;
    "timer_gettime"        [224] [261]    [108] sys.made_timer(a[0], a[1], Width::Word)?;
    "timer_gettime64"      []    [408]    []    sys.made_timer(a[0], a[1], Width::Wide)?;
    "timer_getoverrun"     [225] [262]    [109] sys.overrun(a[0])?;
    "timer_delete"         [226] [263]    [111] sys.delete_timer(a[0])?;
    "gettimeofday"         [96]  [78]     [169] sys.time_of_day(a[0])?;
    "time"                 [201] [13]     []    sys.seconds(a[0])?;
    "times"                [100] [43]     [153] sys.times(a[0])?;

    // The system.
    "uname"                [63]  [122]    [160] sys.name(a[0])?;
    "sysinfo"              [99]  [116]    [179] sys.system_info(a[0])?;
    "getrandom"            [318] [355]    [278] sys.random(a[0], a[1])?;
    "reboot"               [169] [88]     [142] sys.reboot(a)?;
}
