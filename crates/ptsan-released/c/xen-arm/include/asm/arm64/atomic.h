/* Atomic operations of the host. */
#ifndef ARM64_ATOMIC_H
#define ARM64_ATOMIC_H

static inline int atomic_add_return(int i, atomic_t *v) {
    return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline int atomic_sub_return(int i, atomic_t *v) {
    return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_add(int i, atomic_t *v) { atomic_add_return(i, v); }
static inline void atomic_sub(int i, atomic_t *v) { atomic_sub_return(i, v); }

static inline void atomic_and(int mask, atomic_t *v) {
    __atomic_and_fetch(&v->counter, mask, __ATOMIC_SEQ_CST);
}

static inline int atomic_cmpxchg(atomic_t *v, int old, int new) {
    __atomic_compare_exchange_n(&v->counter, &old, new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}

static inline int __atomic_add_unless(atomic_t *v, int a, int unless) {
    int was = v->counter;
    return was == unless ? was : atomic_add_return(a, v) - a;
}

#endif
