#ifndef TRUCE_BASE_UTF8_H
#define TRUCE_BASE_UTF8_H

/* Characters of UTF-8. */
#include <stddef.h>
#include <stdint.h>

/* Returns the number of bytes of the whole characters within the first `size` bytes. Reads
 * text[size], too. */
static inline size_t truce__text_whole(const char *text, size_t size)
{
    while (size && ((unsigned char)text[size] & 0xc0) == 0x80)
        size--;
    return size;
}

/* Returns the first character and, in `size`, its number of bytes, which is 0 if the bytes are not
 * a character of UTF-8. Accepts surrogates, and characters in more than two bytes that fewer could
 * encode. */
static inline uint32_t truce__text_code(const char *text, size_t length, size_t *size)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t bytes = !length        ? 0
                   : at[0] < 0x80 ? 1
                   : at[0] < 0xc2 ? 0
                   : at[0] < 0xe0 ? 2
                   : at[0] < 0xf0 ? 3
                   : at[0] < 0xf5 ? 4
                                  : 0;
    uint32_t code;

    *size = 0;
    if (!bytes || bytes > length)
        return 0;
    code = bytes == 1 ? at[0] : at[0] & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    *size = bytes;
    return code;
}

#endif
