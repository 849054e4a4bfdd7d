#include "tests/support/damage.h"

#include <bson/bson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/storage/kv_page.h"
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
