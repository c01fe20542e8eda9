/* See stores.h. This file is not instrumented. */
#define _GNU_SOURCE
#include "stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

ptsan *san;
static uint64_t state;
static uint64_t issued[4096];
static size_t issues;

void settle(void) { ptsan_stores_settle(); }

void *told_memset(void *to, int byte, size_t bytes) { return ptsan_stores_memset(to, byte, bytes); }

void begin(ptsan_arch arch, uint32_t va_bits, uint64_t seed) {
    begin_as((ptsan_options){.arch = arch, .va_bits = va_bits, .adversary_rate = 500, .seed = seed});
}

void begin_as(ptsan_options options) {
    void *ram = mmap((void *)RAM_START, RAM_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (ram != (void *)RAM_START && munmap(ram, RAM_BYTES) == 0) {
        fprintf(stderr, "the addresses from 4 GiB on are in use\n");
        exit(2);
    }
    for (uint64_t at = 0; at < RAM_BYTES; at += 8) {
        *(uint64_t *)(RAM_START + at) = 0xdeadb067;
    }
    options.cpus = CPUS;
    san = ptsan_new(&options, ram, RAM_BYTES, RAM_START);
    if (!san) {
        fprintf(stderr, "%s\n", ptsan_last_error());
        exit(2);
    }
    ptsan_mark_harness(san, "ptsan-released/c/");
    ptsan_space_created(san, SPACE);
    ptsan_stores_begin(san, ram, RAM_BYTES, RAM_START, 8);
    state = options.seed;
    issues = 0;
}

void load_everywhere(uint64_t root) {
    for (int cpu = 0; cpu < CPUS; cpu++) {
        ptsan_switch(san, cpu, root, SPACE);
    }
}

void flush_page_everywhere(uint64_t va) {
    ptsan_flush_page(san, PTSAN_EVERY_CPU, SPACE, va, false);
}

void flush_everything(void) {
    ptsan_flush_all(san, PTSAN_EVERY_CPU);
}

void tlbi_page_everywhere(uint64_t va) {
    if (issues == sizeof issued / sizeof *issued) {
        fprintf(stderr, "too many invalidations without a DSB\n");
        exit(2);
    }
    issued[issues++] = va;
}

void dsb(void) {
    for (size_t i = 0; i < issues; i++) {
        flush_page_everywhere(issued[i]);
    }
    issues = 0;
}

void expect(uint64_t va, uint64_t phys, uint64_t size, uint32_t perms) {
    ptsan_expected says = {.phys = phys, .size = size, .perms = perms};
    ptsan_expect(san, 0, va, phys == PTSAN_NONE ? NULL : &says);
}

bool may(int cpu, uint64_t va, uint32_t kind) {
    return ptsan_access(san, cpu, va, kind, false, NULL) == PTSAN_OK;
}

uint64_t below(uint64_t n) {
    state = state * 0x5851f42d4c957f2dull + 0x14057b7ef767814full;
    return (state >> 33) % n;
}

static bool has(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length) {
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length])) {
            return true;
        }
    }
    return false;
}

void verdict(const char *title, const char *must, const char *may_follow) {
    bool wrong = ptsan_refused(san) != 0;
    printf("%s %s\n", *must ? "==" : "-- silent:", title);
    if (!ptsan_stores_told()) {
        printf("FAILED: no store was told; was the code compiled with -fsanitize=thread?\n");
        wrong = true;
    }
    if (ptsan_total(san) || wrong) {
        char *report = ptsan_report(san);
        printf("%s\n", report);
        ptsan_free_text(report);
    }
    const char *name;
    for (size_t i = 0; (name = ptsan_kind_name(i)); i++) {
        bool found = ptsan_count(san, name) != 0;
        if (found != has(must, name) && !(found && has(may_follow, name))) {
            printf("FAILED: %s was %s\n", name, found ? "not expected" : "not found; is the source fixed?");
            wrong = true;
        }
    }
    ptsan_stores_end();
    ptsan_destroy(san);
    san = NULL;
    munmap((void *)RAM_START, RAM_BYTES);
    if (wrong) {
        exit(1);
    }
}
