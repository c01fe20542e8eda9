/* Process 1, or any process of Linux: programs that change pieces of large pages at random: unmap
 * them, map them anew, protect them, move them, give them back, fork while they are there. After
 * each call all pages have to show what a list says. Others do so with memory that they share.
 * `transparent_hugepage=always` on the command line lets the kernel make large pages; the programs
 * also ask for them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROGRAMS = 4, SHARERS = 3, CALLS = 150, FORKED_CALLS = 6, PAGE = 4096, IN_SPAN = 512, PAGES = 4 * IN_SPAN };

/* What a page has to show: it is missing, may be read, or may be written; and its number. */
static struct page {
    int prot;
    unsigned value;
} pages[PAGES];
static char *memory, *aside;
static unsigned state;

static unsigned next(unsigned below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}

static sigjmp_buf before;
static void jump(int number) { siglongjmp(before, number); }

static volatile unsigned *word(int page) { return (volatile unsigned *)(memory + (size_t)page * PAGE); }

/* Whether the page can be written, and is, with this value in its first and in its last word. */
static int write_page(int page, unsigned value) {
    if (sigsetjmp(before, 1))
        return 0;
    word(page)[0] = value;
    word(page)[PAGE / sizeof value - 1] = value;
    return 1;
}

/* Whether the page can be read, and has the value. */
static int shows(int page, unsigned value) {
    if (sigsetjmp(before, 1))
        return 0;
    return word(page)[0] == value && word(page)[PAGE / sizeof value - 1] == value;
}

static int wrong(const char *what, int page) {
    printf("WRONG %s: page %d, prot %d, value %u\n", what, page, pages[page].prot, pages[page].value);
    return 1;
}

static int look(const char *what) {
    for (int i = 0; i < PAGES; i++)
        if (pages[i].prot & PROT_READ && !shows(i, pages[i].value))
            return wrong(what, i);
    /* A page of each kind, so that signals are few. */
    int i = (int)next(PAGES);
    if (!pages[i].prot && shows(i, pages[i].value))
        return wrong(what, i);
    if (!(pages[i].prot & PROT_WRITE) && write_page(i, 1))
        return wrong(what, i);
    return 0;
}

static void set(int first, int count, int prot, unsigned value) {
    for (int i = first; i < first + count; i++)
        pages[i] = (struct page){prot, value};
}

static int are_there(int first, int count) {
    for (int i = first; i < first + count; i++)
        if (!pages[i].prot)
            return 0;
    return 1;
}

/* Writes a page of each whole span of the range, which the kernel may map by a large page then. */
static int begin_spans(int first, int count) {
    for (int i = (first + IN_SPAN - 1) / IN_SPAN * IN_SPAN; i + IN_SPAN <= first + count; i += IN_SPAN) {
        int page = i + (int)next(IN_SPAN);
        if (pages[page].prot & PROT_WRITE && !write_page(page, pages[page].value = next(1 << 20)))
            return 1;
    }
    return 0;
}

static int map(int first, int count) {
    set(first, count, PROT_READ | PROT_WRITE, 0);
    char *at = memory + (size_t)first * PAGE;
    size_t size = (size_t)count * PAGE;
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
        return 1;
    if (next(2) && madvise(at, size, MADV_HUGEPAGE))
        return 1;
    return begin_spans(first, count);
}

static int program(int calls);

/* A call on a range; says its name in `*name`, and whether it failed. */
static int call(int forks, const char **name) {
    int first = (int)next(PAGES), count = 1 + (int)next(PAGES - first);
    switch (next(3)) {
    case 0: count = 1 + (int)next(count < 8 ? count : 8); break;
    case 1: first = first / IN_SPAN * IN_SPAN, count = IN_SPAN; break;
    }
    char *at = memory + (size_t)first * PAGE;
    size_t size = (size_t)count * PAGE;
    int there = are_there(first, count);
    switch (next(forks ? 9 : 8)) {
    case 0:
    case 1:
        *name = "writes";
        for (int i = first; i < first + count; i++)
            if (pages[i].prot & PROT_WRITE && !write_page(i, pages[i].value = next(1 << 20)))
                return 1;
        return 0;
    case 2:
        *name = "mmap";
        return map(first, count);
    case 3:
        *name = "munmap";
        set(first, count, 0, 0);
        return munmap(at, size);
    case 4: {
        *name = "mprotect";
        int prot = next(2) ? PROT_READ : PROT_READ | PROT_WRITE;
        for (int i = first; there && i < first + count; i++)
            pages[i].prot = prot;
        return there && mprotect(at, size, prot);
    }
    case 5:
        *name = "dontneed";
        for (int i = first; there && i < first + count; i++)
            pages[i].value = 0;
        return there && (madvise(at, size, MADV_DONTNEED) || begin_spans(first, count));
    case 6: {
        *name = "mremap";
        /* Pages of several areas cannot be moved by one call: a failure leaves all as it is. */
        size_t shift = next(2) ? 0 : PAGE;
        char *to = mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, aside + shift);
        if (to == MAP_FAILED)
            return 0;
        return mremap(to, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at;
    }
    case 7:
        *name = "advice";
        return there && madvise(at, size, next(2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    default: {
        *name = "fork";
        fflush(stdout);
        unsigned seed = next(1 << 20);
        pid_t child = fork();
        if (child == 0) {
            state = seed;
            int bad = program(FORKED_CALLS);
            fflush(stdout);
            _exit(bad);
        }
        /* Both write what they share. */
        int bad = program(FORKED_CALLS), status;
        return child < 0 || waitpid(child, &status, 0) != child || status || bad;
    }
    }
}

static int program(int calls) {
    for (int i = 0; i < calls; i++) {
        const char *name;
        /* An idle CPU may make large pages of pieces meanwhile. */
        if (i % 8 == 7)
            usleep(20000);
        int failed = call(calls > FORKED_CALLS, &name);
        if (failed)
            printf("WRONG %s\n", name);
        if (failed || look(name))
            return 1;
    }
    return 0;
}

/* Pages that were read first are small. Idle CPUs have time to make large pages of them. */
static int rest(void) {
    set(0, PAGES, PROT_READ | PROT_WRITE, 0);
    size_t size = (size_t)PAGES * PAGE;
    if (mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != memory)
        return 1;
    for (int turn = 0; turn < 2; turn++) {
        if (look("reads"))
            return 1;
        for (int i = turn; i < PAGES; i += 3)
            if (!write_page(i, pages[i].value = next(1 << 20)))
                return wrong("writes", i);
        usleep(400000);
    }
    return look("rest");
}

/* One of the programs that share memory of so many pages: it writes pages of its own, takes pieces
 * from its space and protects some, and sees its pages still. */
static int sharer(int own, int count) {
    for (int i = own; i < count; i += SHARERS)
        if (!write_page(i, (unsigned)i + 1))
            return wrong("shared writes", i);
    for (int i = IN_SPAN / 2; i + 9 < count; i += IN_SPAN) {
        char *at = memory + (size_t)i * PAGE;
        if (munmap(at, 3 * PAGE) || madvise(at + 3 * PAGE, 3 * PAGE, MADV_DONTNEED) ||
            mprotect(at + 6 * PAGE, 3 * PAGE, PROT_READ))
            return wrong("shared pieces", i);
        if (shows(i, (unsigned)i + 1) || write_page(i + 6, 1))
            return wrong("shared pieces", i);
    }
    for (int i = own; i < count; i += SHARERS) {
        int piece = (i + IN_SPAN / 2) % IN_SPAN;
        if (piece >= 3 && !shows(i, (unsigned)i + 1))
            return wrong("shared reads", i);
    }
    return 0;
}

/* Waits for a child. */
static int has_failed(void) {
    int status;
    return wait(&status) < 0 || status;
}

/* Memory that programs share, which the kernel may keep in blocks. The first one to touch it is a
 * child. */
static int share(void) {
    int count = 3 * IN_SPAN + 5, bad = 0;
    size_t size = (size_t)count * PAGE;
    memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, size, MADV_HUGEPAGE))
        return 1;
    for (int own = 0; own < SHARERS; own++)
        if (fork() == 0) {
            bad = sharer(own, count);
            fflush(stdout);
            _exit(bad);
        }
    for (int i = 0; i < SHARERS; i++)
        bad |= has_failed();
    for (int i = 0; i < count && !bad; i++)
        bad = !shows(i, (unsigned)i + 1) && wrong("shared", i);
    return bad || munmap(memory, size);
}

/* Starts one of the programs. */
static void start(const char *path, int number) {
    if (fork() == 0) {
        char text[12];
        snprintf(text, sizeof text, "%d", number + 1);
        execl(path, path, text, (char *)0);
        _exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        state = (unsigned)atoi(argv[1]);
        signal(SIGSEGV, jump);
        /* The gap ends at a multiple of a large page's size on no kernel by chance: it is made
         * so. */
        size_t size = (size_t)PAGES * PAGE, span = (size_t)IN_SPAN * PAGE;
        char *whole = mmap(0, 2 * size + 2 * span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memory = (char *)(((unsigned long)whole + span - 1) & ~(span - 1));
        aside = memory + size;
        munmap(aside, size + PAGE);
        int bad = map(0, PAGES) || program(CALLS) || rest();
        fflush(stdout);
        return bad;
    }
    signal(SIGSEGV, jump);
    int bad = share();
    signal(SIGSEGV, SIG_DFL);
    for (int i = 0; i < PROGRAMS; i++)
        start(argv[0], i);
    for (int i = 0; i < PROGRAMS; i++)
        bad |= has_failed();
    /* One more that is alone: beside the others no CPU of a slow machine is idle. */
    start(argv[0], PROGRAMS);
    bad |= has_failed();
    printf("PIECES %s\n", bad ? "wrong" : "right");
    return bad;
}
