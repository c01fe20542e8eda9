/* The zoo: without arguments it lists its cases as `cargo xtask suite` reads them; else it runs
 * one. */
#include "zoo.h"

static struct {
    const char *name;
    void (*run)(void);
    const char *reason;
} cases[256];
static size_t number;
static int status;

void add_case(const char *name, void (*run)(void), const char *reason) {
    if (number < sizeof cases / sizeof *cases) {
        cases[number].name = name;
        cases[number].run = run;
        cases[number++].reason = reason;
    }
}

void complain(const char *where, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s: %s\n", where, line, what, strerror(errno));
    status = 1;
}

char *map(size_t bytes, int prot, int flags) {
    char *p = mmap(NULL, bytes, prot, flags, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

char *nowhere(size_t bytes) {
    char *p = map(bytes + 4 * TABLE, PROT_NONE, PRIVATE);
    munmap(p, bytes + 4 * TABLE);
    return (char *)(((uintptr_t)p + 2 * TABLE - 1) & ~(TABLE - 1));
}

char *map_over(char *at, size_t bytes, int prot, int flags, int file) {
    char *p = mmap(at, bytes, prot, flags | MAP_FIXED, file, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

char *aligned(size_t bytes) { return map_over(nowhere(bytes), bytes, RW, PRIVATE, -1); }

int memory_file(size_t bytes) {
    int file = memfd_create("zoo", 0);
    CHECK(file >= 0 && ftruncate(file, bytes) == 0);
    return file;
}

int plain_file(const char *name, size_t bytes) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(file >= 0 && ftruncate(file, bytes) == 0);
    return file;
}

void write_each(volatile char *at, size_t bytes, size_t step) {
    for (size_t i = 0; i < bytes; i += step) {
        at[i] = 1;
    }
}

void read_each(volatile char *at, size_t bytes, size_t step) {
    for (size_t i = 0; i < bytes; i += step) {
        (void)at[i];
    }
}

void write_pages(char *at, size_t bytes) { write_each(at, bytes, PAGE); }
void read_pages(char *at, size_t bytes) { read_each(at, bytes, PAGE); }

char *move(char *from, size_t old, size_t new, int flags, char *to) {
    char *p = mremap(from, old, new, MREMAP_MAYMOVE | flags, to);
    CHECK(p != MAP_FAILED);
    return p;
}

void fork_once(void) {
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void ended(int signal_number) {
    (void)signal_number;
    _exit(0);
}

void end_at(int signal_number) { signal(signal_number, ended); }

int main(int argc, char **argv) {
    for (size_t i = 0; i < number; i++) {
        if (argc < 2) {
            const char *reason = cases[i].reason;
            printf("%s | ./zoo %s%s%s\n", cases[i].name, cases[i].name, reason ? " | " : "",
                   reason ? reason : "");
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return status;
        }
    }
    return argc < 2 ? 0 : 2;
}
