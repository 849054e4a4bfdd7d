#include "bson/binary_text.h"

#include <ctype.h>
#include <string.h>

/* ---- base64 --------------------------------------------------------------------------------- */

static const char *base64_digits(bool url)
{
    return url ? "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
               : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}

size_t truce__base64_write(const uint8_t *bytes, size_t size, bool url, char *text)
{
    const char *digits = base64_digits(url);
    char *at = text;

    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (left > 2 ? bytes[i + 2] : 0);

        *at++ = digits[group >> 18];
        *at++ = digits[group >> 12 & 63];
        if (left > 1 || !url)
            *at++ = left > 1 ? digits[group >> 6 & 63] : '=';
        if (left > 2 || !url)
            *at++ = left > 2 ? digits[group & 63] : '=';
    }
    return (size_t)(at - text);
}

bool truce__base64_read(const char *text, size_t length, bool url, uint8_t *bytes, size_t *size)
{
    const char *digits = base64_digits(url), *digit;
    uint32_t group = 0;
    size_t digits_count = length;

    *size = 0;
    while (digits_count && length - digits_count < 2 && text[digits_count - 1] == '=')
        digits_count--;
    if ((!url || digits_count < length) && length % 4)
        return false;
    if (digits_count % 4 == 1)
        return false;
    for (size_t i = 0; i < digits_count; i++) {
        digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        group = group << 6 | (uint32_t)(digit - digits);
        if (i % 4)
            bytes[(*size)++] = (uint8_t)(group >> (2 * (3 - i % 4)));
    }
    /* The last group has 12 bits for one byte, or 18 bits for two. The bits that are left over must
     * be 0. */
    return !(digits_count % 4) || !(group & (digits_count % 4 == 2 ? 15 : 3));
}

/* ---- hexadecimal digits --------------------------------------------------------------------- */

static void hex_digits(const uint8_t *bytes, size_t size, const char *digits, char *text)
{
    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
}

void truce__hex_write(const uint8_t *bytes, size_t size, char *text)
{
    hex_digits(bytes, size, "0123456789ABCDEF", text);
}

void truce__hex_show(const uint8_t *bytes, size_t size, char *text)
{
    hex_digits(bytes, size, "0123456789abcdef", text);
    text[2 * size] = '\0';
}

int truce__hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool truce__hex_read(const char *text, size_t length, uint8_t *bytes)
{
    if (length % 2)
        return false;
    for (size_t i = 0; i < length; i += 2) {
        int high = truce__hex_digit(text[i]), low = truce__hex_digit(text[i + 1]);

        if (high < 0 || low < 0)
            return false;
        bytes[i / 2] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---- UUIDs ---------------------------------------------------------------------------------- */

static bool uuid_has_hyphen(size_t at)
{
    return at == 8 || at == 13 || at == 18 || at == 23;
}

void truce__uuid_write(const uint8_t bytes[UUID_BYTES], char text[UUID_TEXT])
{
    char digits[2 * UUID_BYTES + 1], *next = digits;

    truce__hex_show(bytes, UUID_BYTES, digits);
    for (size_t i = 0; i < UUID_TEXT; i++)
        text[i] = uuid_has_hyphen(i) ? '-' : *next++;
}

bool truce__uuid_read(const char *text, size_t length, uint8_t bytes[UUID_BYTES])
{
    char digits[2 * UUID_BYTES], *next = digits;

    if (length != UUID_TEXT)
        return false;
    for (size_t i = 0; i < UUID_TEXT; i++) {
        if (!uuid_has_hyphen(i))
            *next++ = text[i];
        else if (text[i] != '-')
            return false;
    }
    return truce__hex_read(digits, sizeof digits, bytes);
}
