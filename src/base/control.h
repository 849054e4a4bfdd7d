#ifndef TRUCE_BASE_CONTROL_H
#define TRUCE_BASE_CONTROL_H

/*
 * Characters that a terminal obeys instead of showing them: control characters (C0 with DEL, C1) and
 * those that change the direction of the text around them (U+061C, U+200E, U+200F, U+202A to U+202E,
 * U+2066 to U+2069), and the separators of lines (U+2028, U+2029). In UTF-8 each has one to three bytes.
 */
#include <stddef.h>
#include <stdint.h>

/* How many bytes the control character has that `text` begins with; 0: it begins with none. */
static inline size_t truce__text_control(const char *text, size_t length)
{
    const uint8_t *at = (const uint8_t *)text;

    if (length && (at[0] < 0x20 || at[0] == 0x7f))
        return 1;
    if (length >= 2 && at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
        return 2;
    if (length >= 2 && at[0] == 0xd8 && at[1] == 0x9c)
        return 2;
    if (length < 3 || at[0] != 0xe2)
        return 0;
    if (at[1] == 0x80 && (at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae)))
        return 3;
    return at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9 ? 3 : 0;
}

/* The number of a control character of so many bytes in Unicode. */
static inline unsigned truce__text_control_code(const char *text, size_t size)
{
    const uint8_t *at = (const uint8_t *)text;

    if (size == 1)
        return at[0];
    if (size == 2)
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
}

#endif
