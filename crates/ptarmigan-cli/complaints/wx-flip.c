/* Symptom: a compiler at run time times out since it marks code writable, then executable.
 * Cure: change the pages that are written, not the whole region. Huge pages for the region leave
 * mprotect a 512th of the entries.
 * Thread: ruby/ruby#5032 */
#include "complaint.h"

#define CODE (16 * MIB)

int main(int count, char **arguments) {
    char *code = map(CODE);
    memset(code, 0xc3, CODE);
    mprotect(code, CODE, PROT_READ | PROT_EXEC);
    for (size_t block = 0; block < 1000; block++) {
        size_t at = block * 200 % (CODE - TABLE);
        char *from = is_cured(count, arguments) ? code + (at & -PAGE) : code;
        size_t bytes = is_cured(count, arguments) ? 2 * PAGE : CODE;
        mprotect(from, bytes, PROT_READ | PROT_WRITE);
        memset(code + at, 0xc3, 200);
        mprotect(from, bytes, PROT_READ | PROT_EXEC);
    }
    return 0;
}
