/* Symptom: a runtime with many coroutines maps and unmaps a stack for each.
 * Cure: a list of free stacks.
 * Thread: lalinsky/zio#436 */
#include "complaint.h"
#include <ucontext.h>

#define SIZE (64 * PAGE)
#define COUNT 64

static ucontext_t main_context, contexts[COUNT];
static volatile int sum;

static void task(void) {
    char buffer[6000];
    memset(buffer, sum, sizeof buffer);
    sum += buffer[77];
}

static char *new_stack(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE;
    char *stack = checked(mmap(0, SIZE, PROT_NONE, flags, -1, 0), "mmap");
    mprotect(stack + PAGE, SIZE - PAGE, PROT_READ | PROT_WRITE);
    return stack;
}

int main(int count, char **arguments) {
    char *stacks[COUNT] = { 0 };
    for (int round = 0; round < 200; round++)
        for (int i = 0; i < COUNT; i++) {
            if (!stacks[i])
                stacks[i] = new_stack();
            getcontext(&contexts[i]);
            contexts[i].uc_stack.ss_sp = stacks[i];
            contexts[i].uc_stack.ss_size = SIZE;
            contexts[i].uc_link = &main_context;
            makecontext(&contexts[i], task, 0);
            swapcontext(&main_context, &contexts[i]);
            if (!is_cured(count, arguments)) {
                munmap(stacks[i], SIZE);
                stacks[i] = 0;
            }
        }
    return 0;
}
