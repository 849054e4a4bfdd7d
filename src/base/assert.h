#ifndef TRUCE_BASE_ASSERT_H
#define TRUCE_BASE_ASSERT_H

/* Assertions are on in every build. They detect bugs only. Faults of input, disks, and networks are
 * reported as statuses. */
#define truce_assert(condition)                                                                    \
    ((condition) ? (void)0 : truce__assert_failed(#condition, __FILE__, __LINE__, __func__))

/* Prints the condition and its position to standard error, then aborts. */
_Noreturn void truce__assert_failed(const char *condition, const char *file, int line,
                                    const char *function);

#endif
