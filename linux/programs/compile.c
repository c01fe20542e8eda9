/* Process 1: a C compiler in the guest. It compiles a program that needs no library to an
 * executable, and runs that. Linked with libtcc (gcc -static -o init compile.c -ltcc -ldl -lm
 * -lpthread). */
#include <libtcc.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#define CALL "\"syscall\" : \"=a\"(result) : \"a\"(number), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\""
enum { EXIT = 60, WRITE = 1 };
#elif defined __i386__
#define CALL "\"int $0x80\" : \"=a\"(result) : \"a\"(number), \"b\"(a), \"c\"(b), \"d\"(c)"
enum { EXIT = 1, WRITE = 4 };
#else
enum { EXIT = 93, WRITE = 64 };
#define CODE "0xaa0003e8, 0xaa0103e0, 0xaa0203e1, 0xaa0303e2, 0xd4000001, 0xd65f03c0"
#endif
#ifdef CALL
static const char begin[] = "static long call(long number, long a, long b, long c) {\n"
                            "    long result;\n"
                            "    __asm__ volatile(" CALL ");\n"
                            "    return result;\n"
                            "}\n";
#else
/* The compiler has no assembler for it: the code is a table among the functions. It moves the
 * number to the register for that, the arguments one down, makes the call, and returns. */
static const char begin[] = "static const unsigned code[] __attribute__((section(\".text\"))) = {" CODE "};\n"
                            "static long call(long number, long a, long b, long c) {\n"
                            "    return ((long (*)(long, long, long, long))code)(number, a, b, c);\n"
                            "}\n";
#endif
static const char end[] =
    "void _start(void) { call(%d, 1, (long)\"COMPILED\\n\", 9); call(%d, sum(), 0, 0); }\n";

static void show(void *nothing, const char *message) {
    (void)nothing;
    printf("%s\n", message);
}

int main(void) {
    static char source[1 << 20];
    size_t len = 0;
    len += sprintf(source + len, "%s", begin);
    for (int i = 0; i < 2000; i++)
        len += sprintf(source + len, "static int f%d(int x) { return x * %d %% 7 + (x >> %d); }\n", i, i + 1, i % 31);
    len += sprintf(source + len, "static int sum(void) {\n    int all = 1;\n");
    for (int i = 0; i < 2000; i++)
        len += sprintf(source + len, "    all += f%d(all & 255);\n", i);
    len += sprintf(source + len, "    return all & 127;\n}\n");
    len += sprintf(source + len, end, WRITE, EXIT);

    TCCState *state = tcc_new();
    if (!state)
        return 1;
    tcc_set_error_func(state, 0, show);
    tcc_set_options(state, "-nostdlib -nostdinc -static");
    if (tcc_set_output_type(state, TCC_OUTPUT_EXE) || tcc_compile_string(state, source) ||
        tcc_output_file(state, "/made"))
        return 2;
    tcc_delete(state);
    printf("compiled %zu bytes\n", len);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/made", "/made", (char *)0);
        _exit(126);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("the program returned %d\n", WEXITSTATUS(status));
    return !WIFEXITED(status) || WEXITSTATUS(status) >= 126;
}
