#ifndef TRUCE_TESTS_SUPPORT_DAMAGE_H
#define TRUCE_TESTS_SUPPORT_DAMAGE_H

/* A store's file as bytes, to be damaged and written elsewhere. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"

struct image {
    uint8_t *bytes;
    size_t size;
};

/* Reads the file. False, with the test failed: it cannot be read. */
bool image_read(struct image *image, const char *path);
/* Writes the image to `path`, and removes the log and the lock file of an earlier one. */
bool image_write(const struct image *image, const char *path);
struct image image_copy(const struct image *image);
void image_release(struct image *image);

/* Gives page `number` (from 1) the checksum that its bytes need. */
void image_seal(struct image *image, uint32_t number);

/* Returns the most harmful value in the place of a byte: numbers near zero and near their end,
 * kinds of pages, another bit. */
uint8_t harmed(struct random *random, uint8_t byte);

/* Changes so many bytes, of the first pages and the beginnings of pages more often than others;
 * `sealed`: with valid checksums, as an attacker would. */
void image_harm(struct image *image, struct random *random, int changes, bool sealed);

#endif
