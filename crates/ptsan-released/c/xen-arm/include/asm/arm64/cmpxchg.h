/* Atomic operations of the host. */
#ifndef ARM64_CMPXCHG_H
#define ARM64_CMPXCHG_H

#define xchg(at, value) __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST)
#define cmpxchg(at, old, new)                                                                  \
    ({                                                                                         \
        __typeof__(*(at)) was = (__typeof__(*(at)))(old);                                      \
        __atomic_compare_exchange_n(at, &was, new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
        was;                                                                                   \
    })
#define guest_cmpxchg cmpxchg

#endif
