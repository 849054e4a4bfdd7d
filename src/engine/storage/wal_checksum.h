#ifndef TRUCE_ENGINE_STORAGE_WAL_CHECKSUM_H
#define TRUCE_ENGINE_STORAGE_WAL_CHECKSUM_H

/* The running checksum of SQLite's log, which has two sums of 32 bits. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Continues the checksum over `bytes`, in words of the byte order that the header of the log
 * states. `size` is a multiple of 8. */
void truce__wal_checksum_add(uint32_t sum[2], bool big, const uint8_t *bytes, size_t size);

#endif
