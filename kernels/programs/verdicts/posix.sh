# shellcheck shell=sh disable=SC2034,SC2154 # it is a part of kernels/verdicts
# The Open POSIX Test Suite: conformance tests of interfaces of memory, and of fork.

title="POSIX tests"
# Exit statuses of the suite.
statuses="0=pass 1=fail 2=unresolved 4=unsupported 5=untested"
interfaces="fork mlock mlockall mmap msync munlock munlockall munmap shm_open shm_unlink"

prepare() {
    source=$("$here/../crates/ptsan-released/c/fetch" posixtestsuite 2>"$work/said") ||
        missing "no tests of Debian's posixtestsuite: $(tail -n 1 "$work/said")"
    leave_out shm_open/23-1 "a million calls by 1,000 processes: its verdict is the speed of the machine"
    for interface in $interfaces; do
        if ! [ -d "$source/conformance/interfaces/$interface" ]; then
            [ -n "$asked" ] || echo "no tests: $interface"
            continue
        fi
        for file in "$source/conformance/interfaces/$interface"/*.c; do
            name=$interface/$(basename "$file" .c)
            # One without is a part of others.
            if ! grep -qw main "$file" || ! wanted "$name"; then continue; fi
            mkdir -p "$root/tests/$interface"
            # The suite's own options but -Werror; no optimization moves an access that is to fault.
            if gcc -std=gnu99 -D_POSIX_C_SOURCE=200112L -O0 -w -s -static -pthread -I"$source/include" \
                -o "$root/tests/$name" "$file" -lrt 2>"$work/said"; then
                add "$name" 20 0 - "/tests/$name"
            else
                not_compiled "$name"
            fi
        done
    done
}
