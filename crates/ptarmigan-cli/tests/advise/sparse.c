/* Writes 200 pages. Each is in a table of its own. Mended: one after the other. */
#include "programs.h"

#define PAGES 200

int main(int argc, char **argv) {
    size_t stride = is_mended(argc, argv) ? PAGE : TABLE;
    char *memory = map(PAGES * TABLE);
    for (size_t page = 0; page < PAGES; page++)
        memory[page * stride] = 1;
    return 0;
}
