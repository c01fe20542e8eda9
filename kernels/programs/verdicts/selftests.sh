# shellcheck shell=sh disable=SC2034,SC2154 # it is a part of kernels/verdicts
# The tests of memory that come with Linux 6.1 (tools/testing/selftests/vm), with the arguments of
# their own script.

title="Linux's tests of memory"
# As that script has it: 4 is a test that was skipped, all others are failures.
statuses="0=pass 4=skip *=fail"
# Tests map 2 GiB, and ask for large pages.
memory=4G words=transparent_hugepage=madvise
nobody=65534

prepare() {
    source=$("$here/../crates/ptsan-released/c/fetch" linux 2>"$work/said") ||
        missing "no tests of Debian's source of Linux: $(tail -n 1 "$work/said")"
    for library in libcap-dev libnuma-dev; do
        directory=$(debian amd64 $library 2>"$work/said") ||
            missing "no $library, which tests need: $(tail -n 1 "$work/said")"
        set -- "$@" "-I$directory/usr/include" "-L$directory/usr/lib/x86_64-linux-gnu"
    done
    leave_out vm/transhuge-stress "it does not end by itself"
    leave_out vm/write_to_hugetlbfs "a part of scripts about control groups"
    leave_out vm/compaction_test "it calls a shell, and is about pages of hugetlbfs"
    leave_out vm/hmm-tests "they need a module of the kernel that Debian does not build"
    leave_out vm/hugetlb-madvise "it fails on Linux 6.1, and needs hugetlbfs"
    leave_out vm/userfaultfd-hugetlb "it fails on Linux in this guest, and needs hugetlbfs and userfaultfd"
    leave_out vm/userfaultfd-hugetlb-shared "it fails on Linux in this guest, and needs hugetlbfs and userfaultfd"
    leave_out vm/split_huge_page_test "it fails on Linux in this guest, and needs debugfs"
    leave_out vm/va_128TBswitch "for five levels of tables, which QEMU's CPU has and the kernels here do not use"
    mkdir -p "$root/tests" "$root/huge" "$root/sys"
    # Name, seconds, user, program and arguments.
    while read -r name seconds user program arguments; do
        wanted "vm/$name" || continue
        if ! [ -x "$root/tests/$program" ]; then
            # Some have functions in common.
            shared=""
            ! grep -q '"vm_util.h"' "$source/tools/testing/selftests/vm/$program.c" ||
                shared=$source/tools/testing/selftests/vm/vm_util.c
            # shellcheck disable=SC2086 # none, or one word
            if ! gcc -O2 -w -s -static -pthread -no-pie -mxsave -I"$source" "$@" -o "$root/tests/$program" \
                "$source/tools/testing/selftests/vm/$program.c" $shared -lcap -lnuma -ldl -lrt -lm 2>"$work/said"; then
                not_compiled "vm/$name"
                continue
            fi
        fi
        # Words that tests print which end well and have tried nothing.
        skipped=-
        case $name in
        migration) skipped=threads ;;
        protection_keys) skipped=unsupported ;;
        thuge-gen) skipped=shmmax ;;
        esac
        # shellcheck disable=SC2086 # words
        add "vm/$name" "$seconds" "$user" "$skipped" "/tests/$program" $arguments
    done <<END_OF_TESTS
gup_test-fast 20 0 gup_test -u
gup_test-pin 20 0 gup_test -a
gup_test-dump 20 0 gup_test -ct -F 0x1 0 19 0x1000
hugepage-mmap 30 0 hugepage-mmap
hugepage-mremap 30 0 hugepage-mremap /huge/huge_mremap
hugepage-shm 30 0 hugepage-shm
hugepage-vmemmap 30 0 hugepage-vmemmap
khugepaged 120 0 khugepaged
ksm_tests-merge 60 0 ksm_tests -M -p 10
ksm_tests-unmerge 60 0 ksm_tests -U
ksm_tests-zero-0 60 0 ksm_tests -Z -p 10 -z 0
ksm_tests-zero-1 60 0 ksm_tests -Z -p 10 -z 1
ksm_tests-nodes-1 60 0 ksm_tests -N -m 1
ksm_tests-nodes-0 60 0 ksm_tests -N -m 0
madv_populate 20 0 madv_populate
map_fixed_noreplace 20 0 map_fixed_noreplace
map_hugetlb 30 0 map_hugetlb
map_populate 20 0 map_populate
memfd_secret 20 0 memfd_secret
migration 60 0 migration
mlock-random-test 60 0 mlock-random-test
mlock2-tests 20 0 mlock2-tests
mrelease_test 20 0 mrelease_test
mremap_dontunmap 20 0 mremap_dontunmap
mremap_test 300 0 mremap_test
on-fault-limit 20 $nobody on-fault-limit
protection_keys 120 0 protection_keys
soft-dirty 60 0 soft-dirty
thuge-gen 30 0 thuge-gen
userfaultfd-anon 60 0 userfaultfd anon 20 4
userfaultfd-shmem 60 0 userfaultfd shmem 20 4
virtual_address_range 120 0 virtual_address_range
END_OF_TESTS
}
