# The beginning of each job of jobs.toml: it stops at the first command that fails, and says the
# time of CPUs.
set -Eeuo pipefail
unset BASH_ENV RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_TARGET_DIR
# Set by the `cargo` that runs the program of the jobs. CARGO alone would compile a dependency with
# the tool-chain that its own file names.
unset CARGO RUSTUP_TOOLCHAIN "${!CARGO_PKG_@}" "${!CARGO_MANIFEST_@}"
export CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=never NO_COLOR=1 CARGO_INCREMENTAL=0 LC_ALL=C
# Seconds for a boot: two emulated machines and the tests of the other lane share two CPUs.
export KERNEL_TIMEOUT=${KERNEL_TIMEOUT:-300}
trap 'times >"$CI_TIMES"' EXIT

# The program that runs the jobs: `cargo xtask` would wait for the builds of the other lane.
xtask() { "$CI_XTASK" "$@"; }

# All features of the sanitizer: with one set of features in builds of the workspace, tests,
# examples, lints and documentation compile each crate once.
sanitizer=ptsan/watch,ptsan/aarch64-paging,ptsan/page-table-generic,ptsan/page_table_multiarch_copy_from
sanitizer+=,ptsan/x86_64

# Runs commands at once, as most boots keep one CPU busy. Prints the output of each, one after
# the other.
together() {
    local command number failed=() pids=() logs
    logs=$(mktemp -d)
    for command; do
        # shellcheck disable=SC2086 # a command and its arguments
        $command >"$logs/${#pids[@]}" 2>&1 &
        pids+=($!)
    done
    for number in "${!pids[@]}"; do
        wait "${pids[$number]}" || failed+=("${@:number+1:1}")
        cat "$logs/$number"
    done
    rm -rf "$logs"
    ((${#failed[@]} == 0)) || { printf 'failed: %s\n' "${failed[@]}" >&2 && return 1; }
}

# Runs a command whose exit code 2 or 3 says that the machine, or its network, does not have what is
# needed.
or_warn() {
    local code=$1 status=0
    shift
    "$@" || status=$?
    [[ $status == "$code" ]] && echo "WARNING: not done here: $*" && return 0
    return "$status"
}
