#include "server/saslprep.h"

#include <string.h>

struct range {
    uint32_t first, last;
};

/* RFC 3454, B.1: commonly mapped to nothing */
static const struct range nothing[] = {{0xad, 0xad},     {0x34f, 0x34f},   {0x1806, 0x1806},
                                       {0x180b, 0x180d}, {0x200c, 0x200d}, {0x2060, 0x2060},
                                       {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}};

/* RFC 3454, C.1.2: spaces that are not ASCII's */
static const struct range spaces[] = {{0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                      {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};

/* Assigned in Unicode 3.2, written from left to right or without direction, of combining class 0 and the same in
 * NFKC (NFKC_Quick_Check is Yes). */
static const struct range kept[] = {
    {0x20, 0x7e},     {0xa1, 0xa7},     {0xa9, 0xa9},     {0xab, 0xac},     {0xae, 0xae},
    {0xb0, 0xb1},     {0xb6, 0xb7},     {0xbb, 0xbb},     {0xbf, 0x131},    {0x134, 0x13e},
    {0x141, 0x148},   {0x14a, 0x17e},   {0x180, 0x1c3},   {0x1cd, 0x1f0},   {0x1f4, 0x220},
    {0x222, 0x233},   {0x250, 0x2ad},   {0x386, 0x386},   {0x388, 0x38a},   {0x38c, 0x38c},
    {0x38e, 0x3a1},   {0x3a3, 0x3ce},   {0x400, 0x482},   {0x48a, 0x4ce},   {0x4d0, 0x4f5},
    {0x4f8, 0x4f9},   {0x531, 0x556},   {0x561, 0x586},   {0x10d0, 0x10f8}, {0x1e00, 0x1e99},
    {0x1ea0, 0x1ef9}, {0x2010, 0x2010}, {0x2012, 0x2016}, {0x2018, 0x2023}, {0x20a0, 0x20a7},
    {0x20a9, 0x20b1}, {0x3041, 0x3096}, {0x30a1, 0x30fa}, {0x4e00, 0x9fa5}, {0xac00, 0xd7a3}};

static bool is_within(const struct range *ranges, size_t count, uint32_t character)
{
    for (size_t i = 0; i < count; i++)
        if (character >= ranges[i].first && character <= ranges[i].last)
            return true;
    return false;
}

#define WITHIN(ranges, character) is_within(ranges, sizeof(ranges) / sizeof *(ranges), character)

truce_status saslprep(const char *password, char **prepared, bson_error_t *error)
{
    char *result = bson_malloc0(strlen(password) + 1), *to = result;
    bool good = bson_utf8_validate(password, strlen(password), false);

    for (const char *at = password; good && *at; at = bson_utf8_next_char(at)) {
        uint32_t character = bson_utf8_get_char(at);
        size_t length = (size_t)(bson_utf8_next_char(at) - at);

        if (WITHIN(nothing, character))
            continue;
        good = WITHIN(kept, character) || WITHIN(spaces, character);
        if (WITHIN(spaces, character)) {
            *to++ = ' ';
        } else {
            memcpy(to, at, length);
            to += length;
        }
    }
    good = good && to > result;
    if (good) {
        *prepared = result;
        return TRUCE_OK;
    }
    bson_free(result);
    *prepared = NULL;
    return truce__refuse(
        CODE_BAD_VALUE, error,
        password[0]
            ? "the password has a character that SCRAM-SHA-256 cannot take here: use ASCII, "
              "or letters of Latin, Greek, Cyrillic, Hangul, Kana and Han"
            : "the password is empty");
}
