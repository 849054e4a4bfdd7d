#ifndef TRUCE_BASE_THREAD_H
#define TRUCE_BASE_THREAD_H

/* The threads that the library makes. */
#include <pthread.h>
#include <stdbool.h>

/* As pthread_create, with all signals blocked: these are for the threads of the program. False: there is no thread. */
bool truce__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
