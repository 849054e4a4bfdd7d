#ifndef TRUCE_TESTS_SUPPORT_DAMAGE_H
#define TRUCE_TESTS_SUPPORT_DAMAGE_H

/* The bytes of a store's file, which a test corrupts and writes to another file. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"

struct image {
    uint8_t *bytes;
    size_t size;
};

/* Reads the file. If this fails, fails the test and returns false. */
bool image_read(struct image *image, const char *path);
/* Writes the image to `path`, and removes the log and the lock file of an earlier one. */
bool image_write(const struct image *image, const char *path);
struct image image_copy(const struct image *image);
void image_release(struct image *image);

/* Sets the checksum of page `number` (from 1) to that of its bytes. */
void image_seal(struct image *image, uint32_t number);

/* Returns a random harmful replacement of a byte: a number near zero or near the maximum, a page
 * type, or the byte with another bit. */
uint8_t harmed(struct random *random, uint8_t byte);

/* Changes `changes` random bytes: about a quarter of them in the first eight pages, and about half
 * of them in the first 64 bytes of a page. If `sealed` is true, the pages get valid checksums, as
 * an attacker would write them. */
void image_harm(struct image *image, struct random *random, int changes, bool sealed);

#endif
