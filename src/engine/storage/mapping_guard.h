#ifndef TRUCE_ENGINE_STORAGE_MAPPING_GUARD_H
#define TRUCE_ENGINE_STORAGE_MAPPING_GUARD_H

/* Mapped pages whose file may be truncated. Any thread. */
#include <stddef.h>

/* Guards a mapping: if its file is truncated, reads return zeros and do not kill the process,
 * unless other code in the process handles SIGBUS. A mapping may be guarded several times. */
void truce__mapping_guard(void *mapping, size_t size);
void truce__mapping_unguard(void *mapping);

/* Registers handlers by which a fork holds the mutex of the mappings. Only fork_guard.c calls this
 * function, in its constructor. */
void truce__mapping_watch_forks(void);

#endif
