#ifndef TRUCE_TESTS_SUPPORT_DAMAGE_H
#define TRUCE_TESTS_SUPPORT_DAMAGE_H

/* A store's file as bytes, to be damaged and written elsewhere. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image {
    uint8_t *bytes;
    size_t size;
};

/* False, with the test failed, if it cannot be read. */
bool image_read(struct image *image, const char *path);
/* Removes what stands beside `path`, too. */
bool image_write(const struct image *image, const char *path);
void image_release(struct image *image);

/* Gives page `number` (from 1) the checksum that its bytes want. */
void image_seal(struct image *image, uint32_t number);

#endif
