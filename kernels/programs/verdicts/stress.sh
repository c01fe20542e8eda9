# shellcheck shell=sh disable=SC2034,SC2154 # it is a part of kernels/verdicts
# stress-ng of Debian, a dynamic program, with --verify: its stressors of memory and of processes, a
# few rounds of each.

title="stress-ng --verify"
# 3 is for a lack of memory or files, 4 for calls that the kernel does not have, 5 for a stressor
# that a signal ended.
statuses="0=pass 1=fail 2=fail 3=no-resource 4=not-implemented 5=signaled 7=untrusted"

prepare() {
    tree=$(debian --root amd64 stress-ng 2>"$work/said") ||
        missing "no stress-ng of Debian's: $(tail -n 1 "$work/said")"
    [ -x "$tree/usr/bin/stress-ng" ] || missing "no stress-ng of Debian's: $(tail -n 1 "$work/said")"
    cp -a "$tree/." "$root/"
    for name in mlockmany oom-pipe; do
        leave_out stress/$name "stress-ng runs it with --pathological alone: it can make a machine unusable"
    done
    # Stressor, rounds, options.
    while read -r name rounds options; do
        wanted "stress/$name" || continue
        # shellcheck disable=SC2086 # words
        add "stress/$name" 60 0 skipping /usr/bin/stress-ng --seed 1 --timeout 10 --verify "--$name" 1 \
            "--$name-ops" "$rounds" $options
    done <<END_OF_TESTS
atomic 20
bad-altstack 4
bigheap 200 --bigheap-growth 64K
brk 2000
bsearch 2
clone 10
context 200
daemon 20
dev-shm 5
env 20
exec 20
exit-group 20
fault 200
fork 50
full 20
futex 200
heapsort 1 --heapsort-size 4096
hsearch 2 --hsearch-size 1024
judy 1 --judy-size 4096
list 2 --list-size 500
lockbus 5
lsearch 1 --lsearch-size 1024
madvise 10
malloc 500
matrix 10
matrix-3d 2
mcontend 1
membarrier 5
memcpy 5
memfd 5 --memfd-bytes 4M
memrate 1 --memrate-bytes 1M
memthrash 4
mergesort 1 --mergesort-size 4096
mincore 20
misaligned 20
mlock 20
mmap 4 --mmap-bytes 4M
mmapaddr 50
mmapfixed 4
mmapfork 1
mmaphuge 5 --mmaphuge-mmaps 4
mmapmany 20
mprotect 20
mremap 20 --mremap-bytes 2M
msync 20 --msync-bytes 1M
msyncmany 2
munmap 5
null 50
numa 2
pagemove 2 --pagemove-bytes 1M
pageswap 50
physpage 20
pipe 200
pipeherd 10
pkey 20
prefetch 2
pthread 20
qsort 1 --qsort-size 4096
radixsort 1 --radixsort-size 4096
randlist 1 --randlist-items 1000
remap 10
resources 2
rmap 10
secretmem 2
shellsort 1 --shellsort-size 4096
shm 4 --shm-bytes 2M --shm-objs 4
shm-sysv 4 --shm-sysv-bytes 1M --shm-sysv-segs 4
skiplist 1 --skiplist-size 1024
sparsematrix 1 --sparsematrix-items 500 --sparsematrix-size 100
stack 20
stackmmap 10
str 10
stream 2
swap 2
tlb-shootdown 20
tmpfs 1
tree 1 --tree-size 2000
tsearch 1 --tsearch-size 2000
userfaultfd 4 --userfaultfd-bytes 256K
vfork 50
vforkmany 2
vm 20 --vm-bytes 4M
vm-addr 8
vm-rw 20 --vm-rw-bytes 1M
vm-segv 5
vm-splice 50
wait 5
wcs 10
zero 50
zlib 2
zombie 20
END_OF_TESTS
}
