#ifndef TRUCE_BASE_TERMINAL_ESCAPE_H
#define TRUCE_BASE_TERMINAL_ESCAPE_H

/*
 * Characters that a message must show as escapes.
 *
 * A terminal obeys some of them: control characters (C0 with DEL, and C1) and line separators
 * (U+2028, U+2029). It also obeys characters that change the direction of text (U+061C, U+200E,
 * U+200F, U+202A to U+202E, U+2066 to U+2069).
 *
 * Others are invisible, so a reader cannot see why a string is wrong: spaces other than U+0020,
 * marks without width, the byte order mark, variation selectors, and tags.
 */
#include "base/utf8.h"

/* Returns whether a terminal obeys the character. */
static inline int truce__code_controls(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* Returns whether the character is invisible or looks like a plain space. */
static inline int truce__code_hides(uint32_t code)
{
    return code == 0xa0 || code == 0xad || code == 0x34f || code == 0x1680 || code == 0x115f ||
           code == 0x1160 || code == 0x17b4 || code == 0x17b5 ||
           (code >= 0x180b && code <= 0x180f) || (code >= 0x2000 && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202f) || (code >= 0x205f && code <= 0x206f) ||
           code == 0x3000 || code == 0x3164 || (code >= 0xfe00 && code <= 0xfe0f) ||
           code == 0xfeff || code == 0xffa0 || (code >= 0xfff0 && code <= 0xfffb) ||
           (code >= 0xe0000 && code <= 0xe0fff);
}

/* Returns the number of bytes of the control character at the beginning of `text`, or 0 if `text`
 * begins with another character. */
static inline size_t truce__text_control(const char *text, size_t length)
{
    size_t size;
    uint32_t code = truce__text_code(text, length, &size);

    return size && truce__code_controls(code) ? size : 0;
}

/* Returns the code point of a control character of `size` bytes. */
static inline unsigned truce__text_control_code(const char *text, size_t size)
{
    return truce__text_code(text, size, &size);
}

#endif
