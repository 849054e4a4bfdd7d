#include "bson/field_path.h"

static bool path_is_reference(const char *part, size_t length)
{
    return (length == 3 && (!memcmp(part, "$id", 3) || !memcmp(part, "$db", 3))) ||
           (length == 4 && !memcmp(part, "$ref", 4));
}

static truce_status path_check_part(const char *part, size_t length, bool first,
                                    bson_error_t *error)
{
    if (length == 0)
        return truce__refuse(15998, error, "a field path must not have an empty part");
    if (part[0] == '$' && (first || !path_is_reference(part, length)))
        return truce__refuse(16410, error, "'%.*s': a part of a field path must not begin with '$'",
                             (int)length, part);
    return TRUCE_OK;
}

truce_status truce__field_path_check(const char *text, size_t length, bson_error_t *error)
{
    size_t start = 0, parts = 0;
    truce_status status = TRUCE_OK;

    if (length == 0)
        return truce__refuse(40352, error, "a field path must not be empty");
    if (memchr(text, '\0', length))
        return truce__refuse(16411, error, "a field path must not contain a zero byte");
    if (text[length - 1] == '.')
        return truce__refuse(40353, error, "field path '%.*s' ends with a dot", (int)length, text);
    for (size_t i = 0; i <= length && !status; i++) {
        if (i < length && text[i] != '.')
            continue;
        status = path_check_part(text + start, i - start, start == 0, error);
        start = i + 1;
        if (++parts > PATH_PARTS_MAX)
            return truce__refuse(CODE_OVERFLOW, error, "a field path has at most %d parts",
                                 PATH_PARTS_MAX);
    }
    return status;
}

truce_status truce__field_name_check(const char *name, size_t length, bson_error_t *error)
{
    if (length && memchr(name, '.', length))
        return truce__refuse(16412, error, "'%.*s': a field name must not contain a dot",
                             (int)length, name);
    return path_check_part(name, length, true, error);
}
