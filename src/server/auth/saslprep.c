#include "server/auth/saslprep.h"

#include <limits.h>
#include <string.h>
#include <unicode/usprep.h>
#include <unicode/ustring.h>

#include "base/limits.h"
#include "server/auth/scram.h"

#define HOW USPREP_DEFAULT /* The default refuses characters that Unicode 3.2 does not have. */

/* A UTF-16 string. Its memory is wiped after use, because it is a password. */
struct units {
    UChar *all;
    int32_t count;
};

static void units_release(struct units *units)
{
    if (units->all)
        scram_wipe(units->all, (size_t)units->count * sizeof *units->all);
    bson_free(units->all);
}

static void units_make(struct units *units, int32_t count)
{
    units->all = bson_malloc0(((size_t)count + 1) * sizeof *units->all);
    units->count = count;
}

static UErrorCode units_of(const char *text, struct units *units)
{
    int32_t size = (int32_t)strlen(text), count = 0;
    UErrorCode code = U_ZERO_ERROR;

    units_make(units, size); /* A string never has more units of UTF-16 than bytes of UTF-8. */
    u_strFromUTF8(units->all, size + 1, &count, text, size, &code);
    units->count = count;
    return code;
}

/* Runs SASLprep, first to measure the result and then to write it. The caller releases `prepared`,
 * also after a failure. */
static UErrorCode saslprep_prepare(const struct units *typed, struct units *prepared)
{
    UErrorCode code = U_ZERO_ERROR, measured = U_ZERO_ERROR;
    UStringPrepProfile *profile = usprep_openByType(USPREP_RFC4013_SASLPREP, &code);
    int32_t count = 0;

    if (U_SUCCESS(code)) {
        count = usprep_prepare(profile, typed->all, typed->count, NULL, 0, HOW, NULL, &measured);
        code = measured == U_BUFFER_OVERFLOW_ERROR ? U_ZERO_ERROR : measured;
    }
    if (U_SUCCESS(code)) {
        units_make(prepared, count);
        usprep_prepare(profile, typed->all, typed->count, prepared->all, count + 1, HOW, NULL,
                       &code);
    }
    usprep_close(profile);
    return code;
}

static char *saslprep_text_of(const struct units *units)
{
    size_t room = 3 * (size_t)units->count + 1;
    char *text = bson_malloc0(room);
    UErrorCode code = U_ZERO_ERROR;

    u_strToUTF8(text, (int32_t)room, NULL, units->all, units->count, &code);
    return text;
}

truce_status saslprep(const char *password, char **prepared, bson_error_t *error)
{
    struct units typed = {0}, units = {0};
    size_t size = strlen(password);
    UErrorCode code = U_INVALID_CHAR_FOUND;

    *prepared = NULL;
    if (size > TRUCE_PASSWORD_MAX)
        return truce__refuse(CODE_BAD_VALUE, error, "the password has %zu bytes, the maximum is %d",
                             size, TRUCE_PASSWORD_MAX);
    if (bson_utf8_validate(password, size, false))
        code = units_of(password, &typed);
    if (U_SUCCESS(code))
        code = saslprep_prepare(&typed, &units);
    if (U_SUCCESS(code) && units.count)
        *prepared = saslprep_text_of(&units);
    units_release(&typed);
    units_release(&units);
    if (*prepared)
        return TRUCE_OK;
    return truce__refuse(CODE_BAD_VALUE, error,
                         U_SUCCESS(code) ? "the password is empty"
                                         : "Error preprocessing password: it has a character that "
                                           "SASLprep (RFC 4013) does not allow (%s)",
                         u_errorName(code));
}
