#include "tests/support/random_bson.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const texts[] = {"", "a", "b", "ab", "abc", "B", "\xc3\xa9", "\xff", "a.b", "x"};

static const double doubles[] = {
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    0.5,
    1.5,
    2.0,
    1e15,
    1e22,
    1e300,
    -1e300,
    5e-324,
    -5e-324,
    DBL_MIN,
    DBL_MAX,
    -DBL_MAX,
    INFINITY,
    -INFINITY,
    NAN,
    9007199254740992.0,
    9007199254740994.0,
    9223372036854775808.0,
    -9223372036854775808.0,
    9223372036854774784.0,
    0.30000000000000004,
};

static const int64_t longs[] = {
    0,
    1,
    -1,
    2,
    10,
    255,
    256,
    65536,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    INT64_MAX - 1,
    INT64_MIN + 1,
    9007199254740991,
    9007199254740992,
    9007199254740993,
    -9007199254740993,
    1000000000000000,
    1000000000000000000,
};

static const char *const decimals[] = {
    "0",
    "-0",
    "0E+10",
    "1",
    "1.0",
    "1.00",
    "-1",
    "0.1",
    "0.5",
    "0.50",
    "1.5",
    "2",
    "10",
    "1E+1",
    "0.1000000000000000055511151231257827",
    "0.1000000000000000055511151231257828",
    "0.30000000000000004",
    "9007199254740993",
    "9007199254740992.5",
    "-9007199254740992.5",
    "9223372036854775807",
    "9223372036854775807.5",
    "9223372036854775808",
    "-9223372036854775808",
    "1E+22",
    "1E+300",
    "1.000000000000000052504760255204420E+300",
    "1E+309",
    "-1E+400",
    "1E+6144",
    "9.999999999999999999999999999999999E+6144",
    "1E-324",
    "5E-324",
    "4.940656458412465E-324",
    "4.940656458412465441765687928682214E-324",
    "1E-6176",
    "-1E-6176",
    "1E-400",
    "1.797693134862315708145274237317043E+308",
    "1.797693134862315708145274237317044E+308",
    "Infinity",
    "-Infinity",
    "NaN",
};

#define PICK(random, pool) ((pool)[truce__random_below(random, sizeof(pool) / sizeof *(pool))])

static double random_double(struct random *random)
{
    uint64_t bits = truce__random_next(random);
    double number;

    switch (truce__random_below(random, 4)) {
    case 0:
        memcpy(&number, &bits, sizeof number);
        return number;
    case 1:
        return (double)(int64_t)truce__random_below(random, 20) - 10;
    default:
        return PICK(random, doubles);
    }
}

static int64_t random_long(struct random *random)
{
    switch (truce__random_below(random, 4)) {
    case 0:
        return (int64_t)(truce__random_next(random) >> truce__random_below(random, 64));
    case 1:
        return (int64_t)truce__random_below(random, 20) - 10;
    default:
        return PICK(random, longs);
    }
}

static bson_decimal128_t random_decimal(struct random *random)
{
    bson_decimal128_t number = {.high = truce__random_next(random),
                                .low = truce__random_next(random)};
    char text[64];

    switch (truce__random_below(random, 5)) {
    case 0: /* Any bits, also those that are not canonical. */
        return number;
    case 1:
        snprintf(text, sizeof text, "%.17g", ldexp(random_double(random), 0));
        break;
    case 2:
        snprintf(text, sizeof text, "%lld", (long long)random_long(random));
        break;
    default:
        snprintf(text, sizeof text, "%s", PICK(random, decimals));
        break;
    }
    if (!bson_decimal128_from_string(text, &number))
        bson_decimal128_from_string("0", &number);
    return number;
}

static void random_text(struct random *random, char *text, int *length)
{
    static const char alphabet[] = {'a', 'b', '\0', '\1', '\377', 'B'};

    if (truce__random_below(random, 2)) {
        strcpy(text, PICK(random, texts));
        *length = (int)strlen(text);
        return;
    }
    *length = (int)truce__random_below(random, 6);
    for (int i = 0; i < *length; i++)
        text[i] = PICK(random, alphabet);
    text[*length] = '\0';
}

static void random_container(struct random *random, bson_t *document, const char *key, bool array,
                             unsigned depth)
{
    static const char *const names[] = {"a", "b", "c", "d", "0", "1", ""};
    bson_t child;
    unsigned count = (unsigned)truce__random_below(random, 4);

    if (array)
        BSON_APPEND_ARRAY_BEGIN(document, key, &child);
    else
        BSON_APPEND_DOCUMENT_BEGIN(document, key, &child);
    for (unsigned i = 0; i < count; i++) {
        char number[12];

        snprintf(number, sizeof number, "%u", i);
        random_append(random, &child, array ? number : PICK(random, names), depth);
    }
    if (array)
        bson_append_array_end(document, &child);
    else
        bson_append_document_end(document, &child);
}

static void random_scalar(struct random *random, bson_t *document, const char *key)
{
    bson_decimal128_t decimal;
    bson_oid_t oid;
    bson_t *scope;
    /* A variable, because the macros of libbson evaluate their argument twice. */
    const char *word = PICK(random, texts);
    char text[16];
    int length;

    random_text(random, text, &length);
    switch (truce__random_below(random, 19)) {
    case 0:
        BSON_APPEND_MINKEY(document, key);
        break;
    case 1:
        BSON_APPEND_MAXKEY(document, key);
        break;
    case 2:
        BSON_APPEND_NULL(document, key);
        break;
    case 3:
        BSON_APPEND_UNDEFINED(document, key);
        break;
    case 4:
        BSON_APPEND_BOOL(document, key, truce__random_below(random, 2));
        break;
    case 5:
        BSON_APPEND_DATE_TIME(document, key, random_long(random));
        break;
    case 6:
        BSON_APPEND_TIMESTAMP(document, key, (uint32_t)truce__random_below(random, 3),
                              (uint32_t)random_long(random));
        break;
    case 7:
        bson_oid_init_from_string(&oid, "0123456789abcdef01234567");
        oid.bytes[truce__random_below(random, 12)] = (uint8_t)truce__random_below(random, 256);
        BSON_APPEND_OID(document, key, &oid);
        break;
    case 8:
        BSON_APPEND_BINARY(document, key, (bson_subtype_t)truce__random_below(random, 2),
                           (const uint8_t *)text, (uint32_t)length);
        break;
    case 9:
        BSON_APPEND_REGEX(document, key, word, truce__random_below(random, 2) ? "i" : "");
        break;
    case 10:
        bson_oid_init_from_string(&oid, "0123456789abcdef01234567");
        BSON_APPEND_DBPOINTER(document, key, word, &oid);
        break;
    case 11:
        BSON_APPEND_CODE(document, key, word);
        break;
    case 12:
        scope = random_document(random, 0);
        BSON_APPEND_CODE_WITH_SCOPE(document, key, word, scope);
        bson_destroy(scope);
        break;
    case 13:
        BSON_APPEND_SYMBOL(document, key, word);
        break;
    case 14:
        bson_append_utf8(document, key, -1, text, length);
        break;
    case 15:
        BSON_APPEND_INT32(document, key, (int32_t)random_long(random));
        break;
    case 16:
        BSON_APPEND_INT64(document, key, random_long(random));
        break;
    case 17:
        BSON_APPEND_DOUBLE(document, key, random_double(random));
        break;
    default:
        decimal = random_decimal(random);
        BSON_APPEND_DECIMAL128(document, key, &decimal);
        break;
    }
}

void random_append(struct random *random, bson_t *document, const char *key, unsigned depth)
{
    if (depth > 0 && truce__random_below(random, 3) == 0)
        random_container(random, document, key, truce__random_below(random, 2), depth - 1);
    else
        random_scalar(random, document, key);
}

bson_t *random_document(struct random *random, unsigned depth)
{
    static const char *const names[] = {"a", "b", "c", "d", "0", "1"};
    bson_t *document = bson_new();
    unsigned count = (unsigned)truce__random_below(random, 5);

    for (unsigned i = 0; i < count; i++)
        random_append(random, document, PICK(random, names), depth);
    return document;
}
