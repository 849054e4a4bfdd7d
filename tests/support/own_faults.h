#ifndef TRUCE_TESTS_SUPPORT_OWN_FAULTS_H
#define TRUCE_TESTS_SUPPORT_OWN_FAULTS_H

/* Included once, by a program that truncates mapped files: otherwise a sanitizer would handle
 * SIGBUS itself. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "handle_sigbus=0";
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "handle_sigbus=0";
}

#endif
