/* Results of functions when all is well: addresses, answers, findings one by one, the report. */
#include "check.h"

static _Alignas(4096) uint64_t ram[16 * 512];
static ptsan *san;

/* Maps the page at 0x3000 with four tables, from frame 1 on, and loads them on CPU 0. */
static void prepare_for(ptsan_options options) {
    options.cpus = 2;
    memset(ram, 0, sizeof ram);
    /* The frames are at physical addresses from 1 MiB on. */
    san = ptsan_new(&options, ram, sizeof ram, 0x100000);
    CHECK(san != NULL);
    for (int level = 0; level < 4; level++) { /* a table before the entry that points at it */
        uint64_t table = 0x104000 - 4096 * (uint64_t)level;
        CHECK(ptsan_table_allocated(san, table, 4096, level, PTSAN_CONTENT_ZERO) == PTSAN_OK);
        uint64_t bits = options.arch == PTSAN_ARCH_X86_64 ? 7 : level > 0 ? 3 : 0x443;
        ram[(table - 0x100000) / 8 + (level > 0 ? 0 : 3)] = (table + 4096) | bits;
        ptsan_entry_written(san, table + (level > 0 ? 0 : 24));
    }
    CHECK(ptsan_switch(san, 0, 0x101000, 7) == PTSAN_OK && ptsan_live_tables(san) == 4);
}

static void prepare(const char *suppressions) {
    prepare_for((ptsan_options){.arch = PTSAN_ARCH_X86_64, .suppressions = suppressions});
}

static void answers(void) {
    uint64_t phys = 0;
    prepare(NULL);
    CHECK(ptsan_access(san, 0, 0x3123, PTSAN_WRITE, true, &phys) == PTSAN_OK && phys == 0x105123);
    CHECK(ptsan_access(san, 0, 0x4000, PTSAN_READ, true, &phys) == PTSAN_FAULT_NOT_PRESENT);
    CHECK(ptsan_access(san, 0, 1ull << 60, PTSAN_READ, true, &phys) == PTSAN_FAULT_NON_CANONICAL);
    CHECK(ptsan_access(san, 1, 0x3000, PTSAN_READ, true, &phys) == PTSAN_FAULT_NO_ROOT && phys == 0x105123);
    COUNT("misuse", 1); /* that CPU has no root loaded */
    CHECK(ptsan_probe_walk(san, 0, 0x4000) == PTSAN_OK && ptsan_adversary_step(san) == PTSAN_OK);
    CHECK(ptsan_lazy(san, 0) == PTSAN_OK && ptsan_resume(san, 0) == PTSAN_OK);

    ptsan_expected page = {.phys = 0x105008, .size = 4096};
    page.perms = PTSAN_PERM_READ | PTSAN_PERM_WRITE | PTSAN_PERM_USER_EXEC | PTSAN_PERM_KERNEL_EXEC | PTSAN_PERM_USER;
    CHECK(ptsan_expect(san, 0, 0x3008, &page) == PTSAN_OK);
    CHECK(ptsan_expect_below(san, 0x101000, 0x3008, &page) == PTSAN_OK);
    CHECK(ptsan_expect(san, 0, 0x5000, NULL) == PTSAN_FAULT_NOT_PRESENT);
    COUNT("disagreement", 0);
    page.perms = PTSAN_PERM_NOTHING;
    CHECK(ptsan_expect(san, 0, 0x3008, &page) == PTSAN_OK);
    COUNT("disagreement", 1);
    CHECK(ptsan_expect(san, 0, 0x3008, NULL) == PTSAN_OK);
    page.perms = 0; /* not compared */
    CHECK(ptsan_expect(san, 0, 0x3008, &page) == PTSAN_OK);
    COUNT("disagreement", 2);
    page.size = 1 << 21;
    CHECK(ptsan_expect(san, 0, 0x3008, &page) == PTSAN_OK);
    COUNT("disagreement", 3);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

static void one_by_one(void) {
    ptsan_finding f;
    prepare(NULL);
    CHECK(!ptsan_finding_at(san, 0, &f));
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
    ram[0x3000 / 8] = 0;
    ptsan_entry_written(san, 0x103000);
    CHECK(ptsan_table_freed(san, 0x104000, 4096) == PTSAN_OK);
    CHECK(ptsan_finding_at(san, 0, &f) && !ptsan_finding_at(san, 1, &f));
    CHECK(strcmp(f.kind, "free-before-flush") == 0 && strcmp(f.rule, "HeldInStructureCache") == 0);
    CHECK(strstr(f.text, "paging-structure cache") != NULL && strstr(f.note, "CPU 0 is active") != NULL);
    CHECK(f.frame == 0x104000 && f.cpu == 0 && f.level == 0 && f.space == 7 && f.count == 1 && f.event > 0);
    CHECK(ptsan_flush_page(san, 0, 7, 0x3000, false) == PTSAN_OK);
    CHECK(ptsan_leave(san, 0) == PTSAN_OK);
    ptsan_table_allocated(san, 0x107000, 4096, 0, PTSAN_CONTENT_ZERO); /* never linked */
    CHECK(ptsan_finish(san) == PTSAN_OK && ptsan_finish(san) == PTSAN_OK);
    COUNT("leak", 4);
    bool has_level = false;
    for (size_t i = 0; ptsan_finding_at(san, i, &f); i++)
        has_level |= f.frame == 0x107000 && f.level == 0;
    CHECK(has_level);
    CHECK(ptsan_finding_at(san, 1, &f) && f.va == PTSAN_NONE && f.cpu == -1 && f.space == PTSAN_NONE);
    const char *note = f.note;
    char *text = ptsan_finding_text(san, 1);
    CHECK(strncmp(text, "leak: ", 6) == 0 && strstr(text, note) != NULL);
    ptsan_free_text(text);
    size_t kinds = 0;
    while (ptsan_kind_name(kinds) != NULL)
        CHECK(ptsan_count(san, ptsan_kind_name(kinds++)) != PTSAN_NONE);
    CHECK(kinds >= 19 && ptsan_refused(san) == 0);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

static void operations(void) {
    prepare(NULL);
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
    uint64_t slow = ptsan_operation_begins(san), other = ptsan_operation_begins(san);
    CHECK(slow != 0 && other != 0 && slow != other);
    ram[0x4018 / 8] = 0;
    ptsan_entry_written(san, 0x104018);
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK); /* no flush yet */
    CHECK(ptsan_total(san) == 0);
    CHECK(ptsan_operation_ends(san, other) == PTSAN_OK && ptsan_total(san) == 0);
    CHECK(ptsan_operation_ends(san, slow) == PTSAN_OK);
    COUNT("stale-use", 1);
    CHECK(ptsan_operation_ends(san, slow) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

/* The flushes other than `ptsan_flush_page`: each drops the translation. */
static void flushes(void) {
    for (int way = 0; way < 5; way++) {
        prepare(NULL);
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        switch (way) {
        case 0: CHECK(ptsan_flush_range(san, 0, 7, 0x2000, 0x4000, 4096, true) == PTSAN_OK); break;
        case 1: CHECK(ptsan_flush_every_space(san, 0, 0x3000, 0x3001, 4096, false) == PTSAN_OK); break;
        case 2: CHECK(ptsan_flush_space(san, PTSAN_EVERY_CPU, 7) == PTSAN_OK); break;
        case 3: CHECK(ptsan_flush_all(san, PTSAN_THIS_CPU) == PTSAN_OK); break;
        case 4: CHECK(ptsan_flush_range(san, 0, 7, 0x4000, 0x8000, 4096, false) == PTSAN_OK); break;
        }
        bool stale = ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK;
        CHECK(stale == (way == 4)); /* that one is for other pages */
        COUNT("stale-use", stale ? 1u : 0u);
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

static void every_cpu(void) {
    for (int32_t cpu = PTSAN_EVERY_CPU; cpu < 2; cpu++) {
        prepare(NULL);
        CHECK(ptsan_run_on(san, 1) == PTSAN_OK && ptsan_switch(san, PTSAN_THIS_CPU, 0x101000, 7) == PTSAN_OK);
        for (int32_t both = 0; both < 2; both++)
            CHECK(ptsan_access(san, both, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        CHECK(ptsan_flush_page(san, cpu, 7, 0x3000, false) == PTSAN_OK);
        for (int32_t both = 0; both < 2; both++) {
            bool flushed = cpu == PTSAN_EVERY_CPU || cpu == both || (cpu == PTSAN_THIS_CPU && both == 1);
            int32_t want = flushed ? PTSAN_FAULT_NOT_PRESENT : PTSAN_OK;
            CHECK(ptsan_access(san, both, 0x3000, PTSAN_READ, true, NULL) == want);
        }
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

/* Loads, stores and fetches, of user and supervisor. */
static void permissions(void) {
    /* For each kind of access, whether user and supervisor may make it. */
    const struct {
        uint64_t entry;
        bool allowed[3][2];
    } pages[] = {
        {0x105007, {{true, true}, {true, true}, {true, true}}},
        {0x105005, {{true, true}, {false, false}, {true, true}}},            /* read-only */
        {0x105003, {{false, true}, {false, true}, {false, true}}},           /* supervisor */
        {0x105007 | 1ull << 63, {{true, true}, {true, true}, {false, false}}}, /* no execution */
    };
    for (size_t page = 0; page < sizeof pages / sizeof *pages; page++) {
        prepare(NULL);
        ram[0x4018 / 8] = pages[page].entry;
        ptsan_entry_written(san, 0x104018);
        for (uint32_t kind = PTSAN_READ; kind <= PTSAN_EXEC; kind++)
            for (int supervisor = 0; supervisor < 2; supervisor++) {
                int32_t want = pages[page].allowed[kind][supervisor] ? PTSAN_OK : PTSAN_FAULT_PERMISSION;
                CHECK(ptsan_access(san, 0, 0x3000, kind, supervisor == 0, NULL) == want);
            }
        CHECK(ptsan_total(san) == 0 && ptsan_destroy(san) == PTSAN_OK);
    }
}

/* Walks that no access asks for: a CPU holds the last table after them. */
static void walks(void) {
    for (int way = 0; way < 5; way++) {
        ptsan_finding f;
        ptsan_options options = {.arch = PTSAN_ARCH_X86_64};
        if (way == 2) {
            options.adversary_rate = 1000;
            options.seed = 1;
        }
        prepare_for(options);
        switch (way) {
        case 0: break;
        case 1: CHECK(ptsan_probe_walk(san, 0, 0x3000) == PTSAN_OK); break;
        case 2:
            for (int step = 0; step < 200; step++)
                CHECK(ptsan_adversary_step(san) == PTSAN_OK);
            break;
        case 3:
            CHECK(ptsan_probe_walk(san, 0, 0x3000) == PTSAN_OK && ptsan_lazy(san, 0) == PTSAN_OK);
            break;
        case 4:
            CHECK(ptsan_probe_walk(san, 0, 0x3000) == PTSAN_OK && ptsan_lazy(san, 0) == PTSAN_OK);
            CHECK(ptsan_resume(san, 0) == PTSAN_OK);
            break;
        }
        ram[0x3000 / 8] = 0;
        CHECK(ptsan_table_freed(san, 0x104000, 4096) == PTSAN_OK);
        COUNT("free-before-flush", way > 0 ? 1u : 0u);
        if (way > 0)
            CHECK(ptsan_finding_at(san, 0, &f) && (strstr(f.note, "CPU 0 is lazy") != NULL) == (way == 3));
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

/* A flush of the last level alone leaves the entry of the table above in AArch64's walk cache. */
static void last_level(void) {
    for (int way = 0; way < 6; way++) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_AARCH64_4K});
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x3000 / 8] = 0;
        bool leaf_only = way % 2 == 1;
        switch (way / 2) {
        case 0: ptsan_flush_page(san, 0, 7, 0x3000, leaf_only); break;
        case 1: ptsan_flush_range(san, 0, 7, 0x2000, 0x4000, 4096, leaf_only); break;
        case 2: ptsan_flush_every_space(san, 0, 0x2000, 0x4000, 4096, leaf_only); break;
        }
        CHECK(ptsan_table_freed(san, 0x104000, 4096) == PTSAN_OK);
        COUNT("free-before-flush", leaf_only ? 1u : 0u);
        CHECK(ptsan_total(san) == leaf_only && ptsan_destroy(san) == PTSAN_OK);
    }
}

/* A TLBI of one exception level drops nothing of another's. */
static void other_exception_level(void) {
    for (uint32_t level = 0; level < 8; level++) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_AARCH64_4K, .exception_level = 2});
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        ptsan_entry_written(san, 0x104018);
        bool known = level % 4 > 0;
        int32_t done = level < 4 ? ptsan_flush_of(san, 0, level % 4, 7, 0x3000, 0x4000, 4096, false)
                                 : ptsan_flush_all_of(san, 0, level % 4);
        CHECK(done == (known ? PTSAN_OK : PTSAN_ERROR_BAD_ARGUMENT));
        CHECK(ptsan_frame_freed(san, 0x105000, 4096) == PTSAN_OK);
        COUNT("data-freed-before-flush", level % 4 == 2 ? 0u : 1u);
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

/* Walkers store to the program's memory. */
static void bits_of_walkers(void) {
    prepare_for((ptsan_options){.arch = PTSAN_ARCH_X86_64, .flags = PTSAN_FLAG_WALKERS_SET_BITS});
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK && ram[0x4018 / 8] == (0x105000 | 0x27));
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_WRITE, true, NULL) == PTSAN_OK && ram[0x4018 / 8] == (0x105000 | 0x67));
    CHECK(ptsan_total(san) == 0 && ptsan_destroy(san) == PTSAN_OK);
}

static void spaces(void) {
    prepare(NULL);
    CHECK(ptsan_space_created(san, 9) == PTSAN_OK && ptsan_flush_space(san, 0, 9) == PTSAN_OK);
    CHECK(ptsan_space_destroyed(san, 9) == PTSAN_OK && ptsan_total(san) == 0);
    CHECK(ptsan_flush_space(san, 0, 9) == PTSAN_OK && ptsan_total(san) == 0); /* as at boot */
    CHECK(ptsan_table_linked(san, 0x101000, 3, 0x10a000) == PTSAN_OK);
    COUNT("unknown-table", 1);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

/* A CPU of 32-bit PowerPC finds a page where its handler puts it. */
static void hashed(void) {
    static _Alignas(65536) uint8_t memory[2 * 65536]; /* the hash table, then tables */
    const ptsan_options options = {.arch = PTSAN_ARCH_POWERPC};
    const uint64_t root = 0x10000, table = 0x11000, entry = table + 3 * 4, group = (5 ^ 3) * 64;
    const uint8_t link[4] = {0, 1, 0x10, 1}, page[4] = {0, 8, 4, 1 | 2 | 4}; /* present, hashed, user, writable */
    uint64_t vsids[16] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, phys = 0;
    san = ptsan_new(&options, memory, sizeof memory, 0);
    CHECK(ptsan_hash_table(san, 0, 65536, PTSAN_HASH_LAYOUT_BITS32) == PTSAN_OK);
    CHECK(ptsan_segments(san, 1, root, vsids) == PTSAN_OK);
    ptsan_table_allocated(san, root, 4096, 1, PTSAN_CONTENT_ZERO);
    ptsan_table_allocated(san, table, 4096, 0, PTSAN_CONTENT_ZERO);
    memcpy(memory + root, link, 4), memcpy(memory + entry, page, 4);
    ptsan_switch(san, 0, root, 1);
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, &phys) == PTSAN_FAULT_NOT_HASHED);
    CHECK(ptsan_check_hash_table(san) == 0);
    const uint8_t hash_entry[8] = {0x80, 0, 5 << 7 >> 8, (5 << 7) & 0xff, 0, 8, 0, 2}; /* VSID 5, page 3 */
    memcpy(memory + group, hash_entry, 8);
    CHECK(ptsan_hash_written(san, group) == PTSAN_OK && ptsan_total(san) == 0);
    CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, &phys) == PTSAN_OK && phys == 0x80000);
    CHECK(ptsan_check_hash_table(san) == 1 && ptsan_total(san) == 0);
    memory[entry + 3] &= ~2; /* the bit goes, the page stays in the hash table */
    CHECK(ptsan_check_hash_table(san) == 1);
    COUNT("hash-table", 1);
    memory[group + 7] = 3;
    CHECK(ptsan_hash_written(san, group) == PTSAN_OK && ptsan_count(san, "hash-table") >= 2);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

/* Data frames: mapped, perhaps cached, and flushed. */
static void frames(void) {
    for (int way = 0; way < 6; way++) {
        prepare(NULL);
        ptsan_entry_written(san, 0x104018); /* the page is known, and stores are told */
        bool clears = way != 1, flushes = way == 2 || way == 5;
        if (clears) {
            ram[0x4018 / 8] = 0;
            ptsan_entry_written(san, 0x104018);
        }
        if (flushes)
            ptsan_flush_page(san, 0, 7, 0x3000, false);
        switch (way) {
        case 0: case 1: case 2: ptsan_frame_freed(san, 0x105000, 4096); break;
        case 3: ptsan_frame_reused(san, 0x105000, 4096); break;
        case 4: case 5: ptsan_table_allocated(san, 0x105000, 4096, 0, PTSAN_CONTENT_ZERO); break;
        }
        COUNT("data-freed-before-flush", way < 2 ? 1u : 0u);
        COUNT("data-reused-before-flush", way == 3 || way == 4 ? 1u : 0u);
        CHECK(ptsan_total(san) == !flushes && ptsan_destroy(san) == PTSAN_OK);
    }
    /* Without told stores, a CPU holds the translations that it was told to walk for. */
    for (int mapped = 0; mapped < 2; mapped++) {
        ptsan_options options = {.arch = PTSAN_ARCH_X86_64, .flags = PTSAN_FLAG_NO_BACKTRACES};
        memset(ram, 0, sizeof ram);
        san = ptsan_new(&options, ram, sizeof ram, 0x100000);
        for (uint64_t level = 0; level < 4; level++)
            ptsan_table_allocated(san, 0x104000 - 4096 * level, 4096, (int32_t)level, PTSAN_CONTENT_ZERO);
        ptsan_switch(san, 0, 0x101000, 7);
        ram[0x1000 / 8] = 0x102007, ram[0x2000 / 8] = 0x103007, ram[0x3000 / 8] = 0x104007;
        ram[0x4018 / 8] = 0x105007;
        if (mapped)
            CHECK(ptsan_frame_mapped(san, 7, 0x3000) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        CHECK(ptsan_frame_freed(san, 0x105000, 4096) == PTSAN_OK);
        COUNT("data-freed-before-flush", (uint64_t)mapped);
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

/* A debt of CPUs is a finding when it is due, at the latest at the end. */
static void debts(void) {
    for (int end = 0; end < 3; end++) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_X86_64, .debts = end == 2 ? 1 : 0});
        ram[0x4020 / 8] = 0x106007;
        ptsan_entry_written(san, 0x104020);
        ram[0x4018 / 8] = 0, ram[0x4020 / 8] = 0;
        ptsan_entry_written(san, 0x104018), ptsan_entry_written(san, 0x104020);
        COUNT("flush-missing", 0);
        CHECK((end == 1 ? ptsan_finish(san) : ptsan_flushes_done(san)) == PTSAN_OK);
        COUNT("flush-missing", end == 2 ? 1u : 2u); /* a cause for each store that is remembered */
        CHECK(ptsan_debts_dropped(san) == (end == 2 ? 1u : 0u));
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

/* On AArch64 a flush counts between two barriers, and a root after one. */
static void barriers(void) {
    for (uint32_t left_out = 0; left_out < 4; left_out++) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_AARCH64_4K, .flags = PTSAN_FLAG_BARRIERS});
        if (left_out != 1)
            CHECK(ptsan_barrier(san, 0, PTSAN_BARRIER_KIND_INSTRUCTION) == PTSAN_OK);
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        ptsan_entry_written(san, 0x104018);
        if (left_out != 2)
            CHECK(ptsan_barrier(san, 0, PTSAN_BARRIER_KIND_DATA) == PTSAN_OK);
        ptsan_flush_page(san, PTSAN_EVERY_CPU, 7, 0x3000, false);
        if (left_out != 3)
            CHECK(ptsan_barrier(san, PTSAN_THIS_CPU, PTSAN_BARRIER_KIND_DATA) == PTSAN_OK);
        CHECK(ptsan_flushes_done(san) == PTSAN_OK);
        COUNT("flush-missing", left_out == 0 ? 0u : 1u);
        CHECK(ptsan_total(san) == (left_out == 0 ? 0u : 1u) && ptsan_destroy(san) == PTSAN_OK);
    }
}

/* An entry through which another CPU may write is exchanged, or its dirty bit may be lost. */
/* A flush by intermediate physical address spares combined translations. */
static void two_stages(void) {
    for (int flushed = -2; flushed <= 1; flushed++) {
        prepare_for((ptsan_options){
            .arch = PTSAN_ARCH_AARCH64_STAGE2_4K, .va_bits = 48, .flags = PTSAN_FLAG_TWO_STAGES});
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, false, NULL) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        ptsan_entry_written(san, 0x104018);
        CHECK(ptsan_flush_page(san, PTSAN_EVERY_CPU, 7, 0x3000, false) == PTSAN_OK);
        CHECK(flushed == 1 || ptsan_stage1_flushed(san, flushed) == PTSAN_OK);
        CHECK(ptsan_flushes_done(san) == PTSAN_OK);
        COUNT("flush-missing", flushed == 1 ? 1u : 0u);
        CHECK(ptsan_stage1_flushed(san, -9) == PTSAN_ERROR_BAD_ARGUMENT && ptsan_destroy(san) == PTSAN_OK);
    }
}

/* Maps a page at 0xffff000000003000 in tables from frame 6 on, which are the upper tree of
 * CPU 0. */
static void prepare_both(void) {
    prepare_for((ptsan_options){.arch = PTSAN_ARCH_AARCH64_4K, .flags = PTSAN_FLAG_BOTH_TREES});
    for (int level = 0; level < 4; level++) {
        uint64_t table = 0x109000 - 4096 * (uint64_t)level;
        CHECK(ptsan_table_allocated(san, table, 4096, level, PTSAN_CONTENT_ZERO) == PTSAN_OK);
        ram[(table - 0x100000) / 8 + (level > 0 ? 0 : 3)] = (table + 4096) | (level > 0 ? 3 : 0x443);
        ptsan_entry_written(san, table + (level > 0 ? 0 : 24));
    }
    CHECK(ptsan_switch_upper(san, 0, 0x106000, 0) == PTSAN_OK && ptsan_live_tables(san) == 8);
}

static void both_trees(void) {
    const uint64_t high = 0xffff000000003000;
    uint64_t phys;
    ptsan_finding f;
    prepare_both();
    CHECK(ptsan_access(san, 0, 0x3123, PTSAN_READ, true, &phys) == PTSAN_OK && phys == 0x105123);
    CHECK(ptsan_access(san, 0, high + 0x123, PTSAN_READ, true, &phys) == PTSAN_OK && phys == 0x10a123);
    CHECK(ptsan_access(san, 0, high + 0x1000, PTSAN_READ, true, &phys) == PTSAN_FAULT_NOT_PRESENT);
    ptsan_expected page = {.phys = 0x10a008, .size = 4096};
    CHECK(ptsan_expect(san, 0, high + 8, &page) == PTSAN_OK && ptsan_total(san) == 0);
    /* The page of the upper tree goes. A flush of the lower half is not one of it. */
    ram[0x9018 / 8] = 0;
    ptsan_entry_written(san, 0x109018);
    CHECK(ptsan_flush_page(san, PTSAN_EVERY_CPU, 0, 0x3000, false) == PTSAN_OK);
    CHECK(ptsan_flush_page(san, PTSAN_EVERY_CPU, 7, 0x3000, false) == PTSAN_OK);
    CHECK(ptsan_flushes_done(san) == PTSAN_OK);
    COUNT("flush-missing", 1);
    CHECK(ptsan_finding_at(san, 0, &f) && f.va == high && !ptsan_finding_at(san, 1, &f));
    char *report = ptsan_report(san);
    CHECK(strstr(report, "flush-missing: ") && strstr(report, "0xffff000000003000"));
    ptsan_free_text(report);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
    for (int whole = 0; whole < 2; whole++) { /* one flush is told once, and is of both */
        prepare_both();
        uint64_t operation = ptsan_operation_begins(san);
        CHECK(ptsan_access(san, 0, high, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x9018 / 8] = 0, ram[0x4018 / 8] = 0;
        ptsan_entry_written(san, 0x109018), ptsan_entry_written(san, 0x104018);
        CHECK(whole ? ptsan_flush_all(san, PTSAN_EVERY_CPU) == PTSAN_OK
                    : ptsan_flush_page(san, PTSAN_EVERY_CPU, 0, high, false) == PTSAN_OK
                        && ptsan_flush_page(san, PTSAN_EVERY_CPU, 7, 0x3000, false) == PTSAN_OK);
        CHECK(ptsan_operation_ends(san, operation) == PTSAN_OK && ptsan_flushes_done(san) == PTSAN_OK);
        CHECK(ptsan_total(san) == 0);
        /* What is wrong in itself is one finding. */
        CHECK(ptsan_leave(san, 0) == PTSAN_OK && ptsan_leave_upper(san, 0) == PTSAN_OK);
        ptsan_table_freed(san, 0x106000, 4096), ptsan_table_freed(san, 0x106000, 4096);
        COUNT("double-free", 1);
        ptsan_table_allocated(san, 0x109000, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
        COUNT("double-allocate", 1);
        ram[0xa000 / 8] = 1;
        ptsan_table_allocated(san, 0x10a000, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_ZERO);
        COUNT("not-zero", 1);
        ptsan_flush_all(san, 77);
        COUNT("misuse", 1);
        CHECK(ptsan_finish(san) == PTSAN_OK);
        COUNT("leak", 8);
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
    prepare(NULL);
    CHECK(ptsan_switch_upper(san, 0, 0x106000, 0) == PTSAN_ERROR_BAD_ARGUMENT);
    CHECK(ptsan_leave_upper(san, 0) == PTSAN_ERROR_BAD_ARGUMENT && ptsan_destroy(san) == PTSAN_OK);
    ptsan_options watched = {.arch = PTSAN_ARCH_AARCH64_4K, .flags = PTSAN_FLAG_BOTH_TREES};
    CHECK(ptsan_watch_new(&watched, 4096, 0) == NULL && strstr(ptsan_last_error(), "BOTH_TREES"));
}

/* Extended page tables: INVEPT is of all of a guest, or of all. */
static void guests(void) {
    for (unsigned flushed = 0; flushed < 2; flushed++) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_EPT});
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x4018 / 8] = 0;
        ptsan_entry_written(san, 0x104018);
        CHECK(!flushed || ptsan_flush_space(san, 0, 7) == PTSAN_OK);
        CHECK(ptsan_frame_freed(san, 0x105000, 4096) == PTSAN_OK);
        COUNT("data-freed-before-flush", 1 - flushed);
        CHECK(ptsan_flush_page(san, 0, 7, 0x3000, false) == PTSAN_OK);
        COUNT("misuse", 1); /* there is no such instruction */
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

/* The allocator hands frames out after a full flush only. */
static void frees_at_flush(void) {
    for (int flushed = 0; flushed < 2; flushed++) {
        prepare(NULL);
        CHECK(ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL) == PTSAN_OK);
        ram[0x3000 / 8] = 0;
        ptsan_entry_written(san, 0x103000);
        CHECK(ptsan_table_freed_at_flush(san, 0x104000, 4096) == PTSAN_OK && ptsan_total(san) == 0);
        CHECK(!flushed || ptsan_flush_all(san, 0) == PTSAN_OK);
        ptsan_table_allocated(san, 0x104000, 4096, PTSAN_ANY_LEVEL, PTSAN_CONTENT_UNKNOWN);
        COUNT("free-before-flush", !flushed);
        CHECK(ptsan_total(san) == !flushed && ptsan_destroy(san) == PTSAN_OK);
    }
}

static void bits(void) {
    for (int way = 0; way < 3; way++) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_X86_64, .flags = PTSAN_FLAG_ACCESSED_DIRTY});
        ram[0x4018 / 8] = 0x105027; /* accessed, not dirty */
        ptsan_entry_written(san, 0x104018);
        CHECK(ptsan_run_on(san, way == 2 ? 0 : 1) == PTSAN_OK); /* CPU 0 has the root loaded */
        ram[0x4018 / 8] = 0x105025;
        CHECK((way == 1 ? ptsan_entry_exchanged : ptsan_entry_written)(san, 0x104018) == PTSAN_OK);
        COUNT("bit-lost", way == 0 ? 1u : 0u);
        ptsan_flush_page(san, 0, 7, 0x3000, false);
        CHECK(ptsan_run_on(san, 0) == PTSAN_OK && ptsan_destroy(san) == PTSAN_OK);
    }
    for (uint32_t flag = 0; flag <= PTSAN_FLAG_WRITE_XOR_EXECUTE; flag += PTSAN_FLAG_WRITE_XOR_EXECUTE) {
        prepare_for((ptsan_options){.arch = PTSAN_ARCH_X86_64, .flags = flag});
        COUNT("write-execute", flag == 0 ? 0u : 1u); /* the page itself is both */
        ram[0x4020 / 8] = 0x8000000000106007, ram[0x4028 / 8] = 0x106005;
        ptsan_entry_written(san, 0x104020);
        COUNT("write-execute", flag == 0 ? 0u : 1u);
        ptsan_entry_written(san, 0x104028);
        COUNT("write-execute", flag == 0 ? 0u : 2u);
        CHECK(ptsan_destroy(san) == PTSAN_OK);
    }
}

static void formats(void) {
    prepare(NULL);
    ptsan_table_freed(san, 0x104000, 4096); /* CPU 0 holds no entry of it, but its link stays */
    ptsan_access(san, 0, 0x3000, PTSAN_READ, true, NULL);
    CHECK(ptsan_total(san) > 0);
    static const char *const begins[] = {"ptsan: ", "ptsan: ", "::", "{\""};
    char *texts[4];
    for (uint32_t i = 0; i < 4; i++) {
        texts[i] = ptsan_report_as(san, PTSAN_FORMAT_TEXT + i);
        CHECK(texts[i] != NULL && strncmp(texts[i], begins[i], strlen(begins[i])) == 0);
    }
    CHECK(strstr(texts[0], "  found in") && !strstr(texts[1], "  found in"));
    CHECK(strstr(texts[3], "\"type\":\"finding\"") || strstr(texts[3], "\"type\": \"finding\""));
    for (int i = 0; i < 4; i++)
        ptsan_free_text(texts[i]);
    CHECK(ptsan_report_as(san, 0) == NULL && ptsan_report_as(san, 5) == NULL && ptsan_refused(san) == 2);
    char *summary = ptsan_summary(san);
    CHECK(summary != NULL && strstr(summary, "memory-corruption") && strstr(summary, "cause"));
    ptsan_free_text(summary);
    CHECK(ptsan_report_as(NULL, PTSAN_FORMAT_TEXT) == NULL && ptsan_summary(NULL) == NULL);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

/* A hook of the test, in a function of its own. */
static __attribute__((noinline)) int hw_table_returned(uint64_t table) {
    int refused = ptsan_table_freed(san, table, 4096);
    return refused;
}

/* The line outside the harness is the one that reports name. */
static void harness(void) {
    char want[32];
    prepare(NULL);
    CHECK(ptsan_mark_harness(san, "hw_*") == PTSAN_OK);
    int line = __LINE__ + 1;
    int refused = hw_table_returned(0x10a000);
    CHECK(refused == PTSAN_OK && snprintf(want, sizeof want, " results.c:%d ", line) > 0);
    char *report = ptsan_report_as(san, PTSAN_FORMAT_SHORT);
    CHECK(strstr(report, want) != NULL);
    ptsan_free_text(report);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

/* One store, two kinds of findings: one finding, with both numbers. */
static void causes(void) {
    ptsan_finding f;
    prepare(NULL);
    ram[0x2000 / 8] = 0; /* unlinks the last table with its page, without a flush */
    ptsan_entry_written(san, 0x102000);
    CHECK(ptsan_frame_freed(san, 0x105000, 4096) == PTSAN_OK);
    CHECK(ptsan_table_freed(san, 0x103000, 4096) == PTSAN_OK);
    CHECK(ptsan_finding_at(san, 0, &f) && !ptsan_finding_at(san, 1, &f));
    CHECK(strcmp(f.kind, "data-freed-before-flush") == 0 && f.count == 1 && f.total == 2);
    COUNT("free-before-flush", 1);
    CHECK(ptsan_destroy(san) == PTSAN_OK);
}

int main(void) {
    formats();
    harness();
    causes();
    answers();
    one_by_one();
    operations();
    flushes();
    every_cpu();
    permissions();
    walks();
    last_level();
    other_exception_level();
    bits_of_walkers();
    spaces();
    hashed();
    frames();
    debts();
    barriers();
    two_stages();
    guests();
    both_trees();
    frees_at_flush();
    bits();
    prepare("leak  # the tests end here\nstale-use");
    ptsan_leave(san, 0);
    fflush(stdout);
    CHECK(ptsan_end(san) == 0); /* lists allowed findings, and unused suppressions */
    prepare(NULL);
    ptsan_leave(san, 0);
    ptsan_flush_all(san, 55);
    ptsan_flush_all(san, -55);
    return ptsan_end(san); /* four leaks, a misuse and a refused call */
}
