/* Process 1: scripts that are cut or lie, and limits: descriptors, open files, arguments. Answers
   are those of Linux, but that user 0 has no limit of open files there. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

static void save(const char *name, const char *text, size_t len, mode_t mode) {
    unlink(name);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, mode);
    check("a file", file >= 0 && write(file, text, len) == (ssize_t)len);
    close(file);
}

/* What /shows got as its arguments, as one line. */
static char shown[4096];

/* Begins a file; returns the error, or 0 if it could begin. */
static int begins(const char *name) {
    int ends[2], status = 0, n = 0, got;
    if (pipe(ends) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {"own", "x", 0};
        dup2(ends[1], 5);
        execv(name, arguments);
        _exit(errno);
    }
    close(ends[1]);
    while ((got = read(ends[0], shown + n, sizeof shown - 1 - n)) > 0)
        n += got;
    shown[n] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void script(const char *what, int error, const char *arguments, const char *text, size_t len) {
    save("/script", text, len, 0755);
    int got = begins("/script");
    int is_right = got == error && (error || !strcmp(shown, arguments));
    if (!is_right)
        printf("%s: error %d, arguments '%s'\n", what, got, shown);
    check(what, is_right);
}
#define SCRIPT(what, error, arguments, text) script(what, error, arguments, text, sizeof text - 1)

static void scripts(void) {
    SCRIPT("a script", 0, "/init|/script|x", "#!/init\necho\n");
    SCRIPT("blanks", 0, "/init|-a  -b|/script|x", "#! \t/init  -a  -b \t\n");
    SCRIPT("a script without a newline", 0, "/init|/script|x", "#!/init");
    SCRIPT("an argument without a newline", 0, "/init|-a|/script|x", "#!/init -a");
    SCRIPT("a zero in the line", 0, "/init|/script|x", "#!/init\0y\n");
    SCRIPT("blanks alone", ENOEXEC, "", "#! \t \n");
    SCRIPT("no name", ENOEXEC, "", "#!\n/init\n");
    SCRIPT("half a mark", ENOEXEC, "", "#");
    SCRIPT("an interpreter that is missing", ENOENT, "", "#!/missing\n");
    SCRIPT("a path through a file", ENOTDIR, "", "#!/init/x\n");
    SCRIPT("a directory", EACCES, "", "#!/\n");
    SCRIPT("itself", ELOOP, "", "#!/script\n");
    char line[400];
    memset(line, 'a', sizeof line);
    memcpy(line, "#!/", 3);
    script("a name that is cut", ENOEXEC, "", line, sizeof line);
    memcpy(line, "#!/init ", 8);
    save("/script", line, sizeof line, 0755);
    check("an argument that is cut", begins("/script") == 0 && strlen(shown) == strlen("/init||/script|x") + 247);
    save("/plain", "#!/init\n", 8, 0644);
    check("a script that may not be executed", begins("/plain") == EACCES);
    SCRIPT("an interpreter that may not be executed", EACCES, "", "#!/plain\n");
    save("/plain", "text", 4, 0755);
    SCRIPT("an interpreter that is no program", ENOEXEC, "", "#!/plain\n");
    /* Scripts that read scripts: five. */
    save("/s1", "#!/init 1\n", 10, 0755);
    save("/s2", "#!/s1 2\n", 8, 0755);
    save("/s3", "#!/s2\n", 6, 0755);
    save("/s4", "#!/s3 4\n", 8, 0755);
    SCRIPT("a script that a script reads", 0, "/init|1|/s1|2|/s2|/script|x", "#!/s2\n");
    SCRIPT("five scripts", 0, "/init|1|/s1|2|/s2|/s3|4|/s4|/script|x", "#!/s4\n");
    save("/s5", "#!/s4\n", 6, 0755);
    SCRIPT("six scripts", ELOOP, "", "#!/s5\n");
    for (const char *name = "12345"; *name; name++) {
        char path[4] = {'/', 's', *name, 0};
        unlink(path);
    }
    unlink("/script");
    unlink("/plain");
}

static void descriptors(void) {
    struct rlimit limit, lower;
    check("a limit", getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 256 && limit.rlim_cur <= limit.rlim_max);
    save("/kept", "text", 4, 0600);
    int first = dup(0), last = first, most = limit.rlim_cur;
    while (last >= 0 && last < most - 1)
        last = dup(0);
    check("the last descriptor", last == most - 1);
    ANSWERS(EMFILE, dup(0));
    ANSWERS(EMFILE, open("/kept", O_RDONLY));
    ANSWERS(EMFILE, open("/missing", O_RDONLY));
    /* No file is made, and none is cut. */
    ANSWERS(EMFILE, open("/new", O_RDWR | O_CREAT, 0600));
    ANSWERS(ENOENT, access("/new", F_OK));
    ANSWERS(EMFILE, open("/kept", O_RDWR | O_TRUNC));
    struct stat facts;
    check("a file that was to be cut", stat("/kept", &facts) == 0 && facts.st_size == 4);
    int ends[2];
    ANSWERS(EMFILE, pipe(ends));
    close(last);
    ANSWERS(EMFILE, pipe(ends));
    check("the place is free again", dup(0) == last);
    ANSWERS(EMFILE, fcntl(0, F_DUPFD, first));
    ANSWERS(EINVAL, fcntl(0, F_DUPFD, most));
    ANSWERS(EBADF, dup2(0, most));
    ANSWERS(EBADF, dup2(0, -1));
    /* They are all inherited, and closed by a program that is begun if it says so. */
    for (int file = first; file <= last; file++)
        if (file != last - 1)
            fcntl(file, F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {"init", "open", 0};
        execv("/init", arguments);
        _exit(1);
    }
    int status;
    check("descriptors that exec closes", waitpid(child, &status, 0) == child && status == 0);
    for (int file = first; file <= last; file++)
        close(file);
    ANSWERS(EBADF, close(last));
    /* A lower limit. */
    lower = limit;
    lower.rlim_cur = 10;
    ANSWERS(0, dup2(0, 20));
    ANSWERS(0, setrlimit(RLIMIT_NOFILE, &lower));
    int count = 0, got[16];
    while (count < 16 && (got[count] = dup(0)) >= 0)
        count++;
    check("a lower limit", errno == EMFILE && got[count - 1] == 9);
    ANSWERS(0, fcntl(20, F_GETFD));
    ANSWERS(EBADF, dup2(0, 10));
    struct pollfd files[11] = {{.fd = 0}};
    ANSWERS(EINVAL, poll(files, 11, 0));
    while (count > 0)
        close(got[--count]);
    ANSWERS(0, setrlimit(RLIMIT_NOFILE, &limit));
    close(20);
    lower.rlim_cur = lower.rlim_max + 1;
    ANSWERS(EINVAL, setrlimit(RLIMIT_NOFILE, &lower));
    /* High descriptors in sets. */
    ANSWERS(0, pipe(ends));
    int high = fcntl(ends[0], F_DUPFD, 200);
    fd_set reads;
    struct timeval now = {0, 0};
    FD_ZERO(&reads);
    FD_SET(high, &reads);
    check("nothing to be read", high >= 200 && select(high + 1, &reads, 0, 0, &now) == 0 && !FD_ISSET(high, &reads));
    ANSWERS(0, write(ends[1], "x", 1));
    FD_SET(high, &reads);
    check("a high descriptor in a set", select(high + 1, &reads, 0, 0, &now) == 1 && FD_ISSET(high, &reads));
    close(high);
    close(ends[0]);
    close(ends[1]);
}

/* Open files of all processes. */
static void open_files(void) {
    int hold[2], say[2];
    ANSWERS(0, pipe(hold));
    ANSWERS(0, pipe(say));
    int children = 0;
    char answer = 0;
    while (children < 30 && answer != 'F') {
        if (fork() == 0) {
            close(hold[1]);
            int file;
            while ((file = open("/kept", O_RDONLY)) >= 0)
                ;
            answer = errno == EMFILE ? 'M' : errno == ENFILE ? 'F' : '?';
            if (answer == 'F') {
                int made = open("/new", O_RDWR | O_CREAT, 0600);
                if (made >= 0 || errno != ENFILE || access("/new", F_OK) == 0)
                    answer = '?';
            }
            (void)!write(say[1], &answer, 1);
            (void)!read(hold[0], &answer, 1);
            _exit(0);
        }
        children++;
        if (read(say[0], &answer, 1) != 1 || answer == '?')
            break;
    }
    check("open files of all processes", answer == 'F' && children > 2);
    close(hold[1]);
    while (wait(0) > 0)
        ;
    int file = open("/kept", O_RDONLY);
    check("one more afterwards", file >= 0);
    close(file);
    close(hold[0]);
    close(say[0]);
    close(say[1]);
    unlink("/kept");
}

static char *list[300001];

/* Begins this program with texts of `len` bytes each, which end with a zero; returns the error, or
 * 0 if all came. */
static int passes(int count, size_t len, int in_environment) {
    static char text[200000];
    memset(text, 'y', len);
    text[len - 1] = 0;
    for (int i = 0; i < count; i++)
        list[i] = text;
    list[count] = 0;
    char number[20], size[20];
    sprintf(number, "%d", count);
    sprintf(size, "%zu", len);
    char *own[] = {"pass", number, size, 0}, *none[] = {0};
    pid_t child = fork();
    if (child == 0) {
        execve("/init", in_environment ? own : list, in_environment ? list : none);
        _exit(errno);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A quarter of the stack's limit, 128 KiB at the least and 6 MiB at the most, for texts, the words
   that lead to them, and the name of the program; 128 KiB for one text. */
static void arguments(void) {
    const size_t word = sizeof(char *), name = sizeof "/init";
    check("one text of 128 KiB", passes(1, 131072, 0) == 0);
    check("one byte more", passes(1, 131073, 0) == E2BIG);
    check("sixteen in the environment, without words", passes(16, 131072, 1) == E2BIG);
    check("fifteen", passes(15, 131072, 1) == 0);
    check("many", passes(100000, 2, 0) == 0);
    check("many in the environment", passes(100000, 8, 1) == 0);
    /* Up to the limit, to the byte. */
    for (int large = 0; large < 2; large++) {
        struct rlimit stack, before;
        getrlimit(RLIMIT_STACK, &before);
        stack = before;
        stack.rlim_cur = large ? 64 << 20 : 8 << 20;
        check("a limit of the stack", setrlimit(RLIMIT_STACK, &stack) == 0);
        size_t limit = large ? 6 << 20 : 2 << 20;
        int count = (limit - name - 1000) / (1000 + word);
        size_t rest = limit - name - count * (1000 + word);
        static char text[1000], last[3000];
        memset(text, 'z', sizeof text - 1);
        for (int i = 0; i < count; i++)
            list[i] = text;
        list[count] = last;
        list[count + 1] = 0;
        for (int more = 0; more < 2; more++) {
            memset(last, 'z', sizeof last);
            last[rest - word - 1 + more] = 0;
            int status;
            pid_t child = fork();
            if (child == 0) {
                execve("/init", list, 0);
                _exit(errno);
            }
            waitpid(child, &status, 0);
            check(more ? "one byte beyond the limit" : "up to the limit", status == (more ? E2BIG << 8 : 0));
        }
        setrlimit(RLIMIT_STACK, &before);
    }
    list[0] = (char *)-1, list[1] = 0;
    ANSWERS(EFAULT, execve("/init", list, 0));
    ANSWERS(EFAULT, execve("/init", (char **)-8, 0));
}

int main(int count, char **words) {
    if (getpid() != 1) {
        extern char **environ;
        if (count >= 1 && words[0][0] == 'z')
            return 0;
        if (count >= 1 && words[0][0] == 'y') {
            size_t len = strlen(words[0]);
            for (int i = 1; i < count; i++)
                if (strlen(words[i]) != len)
                    return 1;
            return 0;
        }
        if (count == 3 && !strcmp(words[0], "pass")) {
            int found = 0;
            for (char **at = environ; *at; at++)
                found += strlen(*at) + 1 == (size_t)atoi(words[2]);
            return found != atoi(words[1]);
        }
        if (count == 2 && !strcmp(words[1], "open")) {
            int open = 0;
            for (int file = 3; file < 4096; file++)
                open += fcntl(file, F_GETFD) >= 0;
            return open != 1;
        }
        for (int i = 0; i < count; i++)
            if (write(5, words[i], strlen(words[i])) < 0 || (i + 1 < count && write(5, "|", 1) < 0))
                return 1;
        return 0;
    }
    scripts();
    descriptors();
    open_files();
    arguments();
    printf("LIMITS %s, %d answers\n", failures ? "wrong" : "right", checks);
    return failures != 0;
}
