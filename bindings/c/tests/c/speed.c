/* Pairs of alloc and free by turns: in Rust, in Rust on lists that check their pages, and in C,
 * which does the same checks: `speed`; or `speed WHO N`, WHO from 0 on, for a counter of
 * instructions. */
#include "host.h"
#include <time.h>

#define ROUNDS 41
#define PAIRS 200000

/* Not in the header: see src/yardstick.rs. */
void pt_yardstick_pairs(struct pt_cpu *cpu, uint64_t n);
void pt_yardstick_checked(struct pt_cpu *cpu, void *memory, size_t bytes, uint64_t n);

#define BOOT ((size_t)4 << 20)
static void *boot;
static void checked_pairs(struct pt_cpu *on, uint64_t n) { pt_yardstick_checked(on, boot, BOOT, n); }

__attribute__((noinline)) void c_pairs(struct pt_cpu *on, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        void *page = pt_quicklist_alloc(on, 0);
        pt_quicklist_free(on, page);
    }
}

/* Of the program alone: others may run on the CPU in between. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double times[3][ROUNDS], ratios[2][ROUNDS];
    static const char *const names[3] = {"rust", "rust, checked", "c"};
    void (*const pairs[3])(struct pt_cpu *, uint64_t) = {pt_yardstick_pairs, checked_pairs, c_pairs};
    ram = reserve(LOW_BYTES), boot = reserve(BOOT);
    struct pt_config config = configured();
    config.verify_every = 255; /* as the lists in Rust */
    begin(config);
    OK(pt_quicklist_free(&cpu, pt_quicklist_alloc(&cpu, 0)));
    if (argc == 3) {
        pairs[(argv[1][0] - '0') % 3](&cpu, strtoull(argv[2], NULL, 10));
        finish();
        return 0;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned who = 0; who < 3; who++) {
            double start = now();
            pairs[who](&cpu, PAIRS);
            times[who][round] = (now() - start) / PAIRS;
        }
        for (unsigned who = 0; who < 2; who++)
            ratios[who][round] = times[2][round] / times[who][round];
    }
    finish();
    for (unsigned who = 0; who < 3; who++) {
        qsort(times[who], ROUNDS, sizeof(double), ascending);
        printf("%s: %.2f ns a pair\n", names[who], times[who][ROUNDS / 2]);
    }
    for (unsigned who = 0; who < 2; who++) {
        qsort(ratios[who], ROUNDS, sizeof(double), ascending);
        printf("c to %s: %.2f (quartiles %.2f to %.2f)\n", names[who], ratios[who][ROUNDS / 2],
               ratios[who][ROUNDS / 4], ratios[who][ROUNDS * 3 / 4]);
    }
    return 0;
}
