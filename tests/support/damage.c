#include "tests/support/damage.h"

#include <bson/bson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/storage/checksum_vfs.h"
#include "tests/support/test.h"

bool image_read(struct image *image, const char *path)
{
    FILE *file = fopen(path, "rb");
    bool good;

    *image = (struct image){0};
    if (!CHECK(file))
        return false;
    fseek(file, 0, SEEK_END);
    image->size = (size_t)ftell(file);
    rewind(file);
    image->bytes = bson_malloc(image->size + 1);
    good = fread(image->bytes, 1, image->size, file) == image->size;
    fclose(file);
    return CHECK(good);
}

bool image_write(const struct image *image, const char *path)
{
    static const char *const beside[] = {"-wal", "-shm", "-lock"};
    char name[500];
    FILE *file;
    bool good;

    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(name, sizeof name, "%s%s", path, beside[i]);
        unlink(name);
    }
    unlink(path);
    file = fopen(path, "wb");
    if (!CHECK(file))
        return false;
    good = fwrite(image->bytes, 1, image->size, file) == image->size;
    return CHECK(!fclose(file) && good);
}

struct image image_copy(const struct image *image)
{
    struct image copy = {bson_malloc(image->size + 1), image->size};

    memcpy(copy.bytes, image->bytes, image->size);
    return copy;
}

void image_release(struct image *image)
{
    bson_free(image->bytes);
    *image = (struct image){0};
}

void image_seal(struct image *image, uint32_t number)
{
    uint8_t *page = image->bytes + (size_t)(number - 1) * KV_PAGE_BYTES;
    uint64_t sum = BSON_UINT64_TO_LE(truce__kv_page_sum(page, number));

    memcpy(page + KV_PAGE_BYTES - KV_SUM_BYTES, &sum, sizeof sum);
}

/* ---- harm ------------------------------------------------------------------------------------ */

uint8_t harmed(struct random *random, uint8_t byte)
{
    static const uint8_t chosen[] = {0, 1, 2, 5, 13, 0x7f, 0x80, 0xff};

    if (truce__random_below(random, 3))
        return (uint8_t)(byte ^ 1 << truce__random_below(random, 8));
    return chosen[truce__random_below(random, sizeof chosen)];
}

/* About half of the changes are in the first bytes of a page, where a page of a tree has its
 * pointers. */
void image_harm(struct image *image, struct random *random, int changes, bool sealed)
{
    uint64_t pages = image->size / KV_PAGE_BYTES, first = pages < 8 ? pages : 8;

    for (int i = 0; i < changes; i++) {
        uint64_t page = truce__random_below(random, truce__random_below(random, 4) ? pages : first);
        uint64_t place =
            truce__random_below(random, truce__random_below(random, 2) ? 64 : KV_PAGE_BYTES);
        uint8_t *at = image->bytes + page * KV_PAGE_BYTES + place;

        *at = harmed(random, *at);
        if (sealed)
            image_seal(image, (uint32_t)page + 1);
    }
}
