#ifndef TRUCE_BASE_THREAD_H
#define TRUCE_BASE_THREAD_H

/* Starts threads of the library. */
#include <pthread.h>
#include <stdbool.h>

/* Starts a thread as pthread_create does. The thread blocks all signals, which belong to the
 * threads of the program. Returns false if the system cannot create a thread. */
bool truce__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
