/* Uses 100 chunks of 2 MiB, every fourth page, and gives them back in pieces of 64 KiB. Mended:
 * gives back whole chunks. */
#include "programs.h"

#define CHUNKS 100
#define PIECE (16 * PAGE)

int main(int argc, char **argv) {
    size_t step = is_mended(argc, argv) ? TABLE : PIECE;
    char *memory = map(CHUNKS * TABLE);
    for (char *chunk = memory; chunk < memory + CHUNKS * TABLE; chunk += TABLE) {
        for (size_t at = 0; at < TABLE; at += 4 * PAGE)
            chunk[at] = 1;
        for (size_t at = 0; at < TABLE; at += step)
            advise(chunk + at, step, MADV_DONTNEED);
    }
    return 0;
}
