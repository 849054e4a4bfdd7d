/*
 * The specification of an index: {key: {a: 1, "b.c": -1}, name: "...", unique: true ...}, checked
 * as MongoDB checks it and with its codes.
 *
 * An option is one row of a table. Options that only MongoDB has (text, geo, and hashed indexes,
 * collations) are refused by name and never ignored: a user would notice an index with another
 * meaning too late. `background`, `v`, and `ns` have no meaning here and are accepted.
 */
#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/index/index.h"
#include "query/match/match.h"

/* MongoDB's code InvalidIndexSpecificationOption. */
#define CODE_INVALID_INDEX_OPTION 197
#define CODE_TOO_MANY_FIELDS      13103

/* ---- the key pattern ------------------------------------------------------------------------ */

static truce_status refuse_key(bson_error_t *error, const char *field, const char *why)
{
    return truce__refuse(CODE_CANNOT_CREATE_INDEX, error, "index key field '%s' %s", field, why);
}

static truce_status spec_check_kind(const char *name, struct value kind, bson_error_t *error)
{
    static const char *const known[] = {"text", "2d", "2dsphere", "geoHaystack", "hashed"};
    uint32_t length;
    const char *text = truce__value_text(kind, &length);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcmp(text, known[i]))
            return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                                 "index key field '%s': %s indexes are not supported", name, text);
    }
    return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                         "index key field '%s' has the unknown index kind '%s'", name, text);
}

/* Checks the direction of a key field: a number that is neither 0 nor NaN, or the name of a kind of
 * index. */
static truce_status check_direction(const char *name, struct value direction, bson_error_t *error)
{
    double number;

    if (direction.type == BSON_TYPE_UTF8)
        return spec_check_kind(name, direction, error);
    if (!truce__value_is_number(direction))
        return truce__refuse_value(
            CODE_CANNOT_CREATE_INDEX, direction, error,
            "index key field '%s' must be a number, 1 (ascending) or -1 (descending)", name);
    number = truce__number_to_double(direction);
    if (isnan(number))
        return refuse_key(error, name,
                          "must not be NaN: expected 1 (ascending) or -1 (descending)");
    if (number == 0)
        return refuse_key(error, name, "must not be 0: expected 1 (ascending) or -1 (descending)");
    return TRUCE_OK;
}

static truce_status spec_check_parts(const struct path *path, bson_error_t *error)
{
    for (uint32_t i = 0; i < path->count; i++) {
        const struct path_part *part = &path->parts[i];

        if (part->length == 0)
            return refuse_key(error, path->text, "has an empty part");
        if (part->name[0] == '$' && (i == 0 || (strncmp(part->name, "$id", part->length) != 0 &&
                                                strncmp(part->name, "$db", part->length) != 0 &&
                                                strncmp(part->name, "$ref", part->length) != 0)))
            return refuse_key(error, path->text, "has a part that begins with '$'");
    }
    return TRUCE_OK;
}

static bool is_wildcard(const char *name, size_t length)
{
    return length >= 3 && !strcmp(name + length - 3, "$**") &&
           (length == 3 || name[length - 4] == '.');
}

static truce_status parse_wildcard(const struct fields *at, struct key_field *field,
                                   bson_error_t *error)
{
    field->wildcard = true;
    if (field->descending)
        return truce__refuse_value(CODE_CANNOT_CREATE_INDEX, at->value, error,
                                   "index key field '%s' is a wildcard and must be positive",
                                   at->key);
    if (at->key_length == 3)
        return TRUCE_OK;
    return truce__path_parse(at->key, at->key_length - 4, &field->path, error);
}

/* Parses one field of the key. */
static truce_status spec_parse_field(const struct fields *at, struct key_field *field,
                                     bson_error_t *error)
{
    truce_status status = check_direction(at->key, at->value, error);

    if (status)
        return status;
    field->descending = truce__number_to_double(at->value) < 0;
    if (is_wildcard(at->key, at->key_length)) {
        status = parse_wildcard(at, field, error);
    } else {
        if (at->key_length == 0)
            return refuse_key(error, "", "is empty");
        status = truce__path_parse(at->key, at->key_length, &field->path, error);
    }
    return status ? status : spec_check_parts(&field->path, error);
}

static bool spec_has_field(const struct index_spec *spec, const struct fields *at)
{
    for (uint32_t i = 0; i < spec->count; i++) {
        if (spec->fields[i].path.text && !strcmp(spec->fields[i].path.text, at->key))
            return true;
    }
    return false;
}

/* Reads the fields of an index. A wildcard must be the only field. */
static truce_status spec_parse_fields(struct value key, struct index_spec *spec,
                                      bson_error_t *error)
{
    struct fields fields = truce__fields(key);

    spec->fields = bson_malloc0(TRUCE_INDEX_FIELDS_MAX * sizeof *spec->fields);
    while (truce__fields_next(&fields)) {
        truce_status status;

        if (spec->count == TRUCE_INDEX_FIELDS_MAX)
            return truce__refuse(CODE_TOO_MANY_FIELDS, error, "an index key has at most %d fields",
                                 TRUCE_INDEX_FIELDS_MAX);
        if (spec_has_field(spec, &fields))
            return refuse_key(error, fields.key, "occurs twice");
        status = spec_parse_field(&fields, &spec->fields[spec->count++], error);
        if (status)
            return status;
    }
    if (spec->count == 0)
        return truce__refuse(CODE_CANNOT_CREATE_INDEX, error, "an index key must not be empty");
    if (spec->count > 1) {
        for (uint32_t i = 0; i < spec->count; i++) {
            if (spec->fields[i].wildcard)
                return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                                     "a wildcard must be the only field of its index");
        }
    }
    return TRUCE_OK;
}

/* Returns whether the key is {_id: 1}, or {_id: -1} or {_id: 1.5}, which are refused. {_id: 2} is
 * an ordinary index. */
static bool is_id_key(struct value key)
{
    struct fields fields = truce__fields(key);
    int64_t direction;

    return truce__fields_next(&fields) && !strcmp(fields.key, "_id") &&
           truce__value_is_number(fields.value) &&
           truce__number_truncate(fields.value, &direction) &&
           (direction == 1 || direction == -1) && !truce__fields_next(&fields);
}

/* Copies and parses the key. The index on _id must be {_id: 1}. */
static truce_status parse_key(struct value key, struct index_spec *spec, bson_error_t *error)
{
    bson_t borrowed;
    truce_status status;

    if (key.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(CODE_TYPE_MISMATCH, key, error,
                                   "index option 'key' must be a document");
    truce__value_bson(key, &borrowed);
    spec->key = bson_copy(&borrowed);
    status = spec_parse_fields(truce__value_document(spec->key), spec, error);
    if (status)
        return status;
    spec->is_id = is_id_key(truce__value_document(spec->key));
    if (spec->is_id && truce__number_to_double(
                           truce__value_field(truce__value_document(spec->key), "_id", 3)) != 1)
        return truce__refuse_value(CODE_BAD_VALUE, truce__value_document(spec->key), error,
                                   "the index on _id must be {_id: 1}");
    return TRUCE_OK;
}

/* ---- options -------------------------------------------------------------------------------- */

typedef truce_status option_function(const char *name, struct value value, struct index_spec *spec,
                                     bson_error_t *error);

static truce_status index_spec_refuse_type(const char *name, struct value value, const char *wanted,
                                           bson_error_t *error)
{
    return truce__refuse_value(CODE_TYPE_MISMATCH, value, error, "index option '%s' must be %s",
                               name, wanted);
}

static truce_status parse_flag(const char *name, struct value value, bool *flag,
                               bson_error_t *error)
{
    if (value.type != BSON_TYPE_BOOL && !truce__value_is_number(value))
        return index_spec_refuse_type(name, value, "true or false", error);
    *flag = truce__value_truth(value);
    return TRUCE_OK;
}

static truce_status option_unique(const char *name, struct value value, struct index_spec *spec,
                                  bson_error_t *error)
{
    return parse_flag(name, value, &spec->unique, error);
}

static truce_status option_sparse(const char *name, struct value value, struct index_spec *spec,
                                  bson_error_t *error)
{
    return parse_flag(name, value, &spec->sparse, error);
}

static truce_status option_hidden(const char *name, struct value value, struct index_spec *spec,
                                  bson_error_t *error)
{
    return parse_flag(name, value, &spec->hidden, error);
}

/* Reads the name of the index. */
static truce_status option_name(const char *name, struct value value, struct index_spec *spec,
                                bson_error_t *error)
{
    uint32_t length;
    const char *text;

    if (value.type != BSON_TYPE_UTF8)
        return index_spec_refuse_type(name, value, "a string", error);
    text = truce__value_text(value, &length);
    if (length == 0)
        return truce__refuse(CODE_CANNOT_CREATE_INDEX, error, "an index name must not be empty");
    if (strlen(text) != length)
        return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                             "an index name must not contain a zero byte");
    if (!strcmp(text, "*"))
        return truce__refuse(CODE_BAD_VALUE, error, "an index must not be named '*'");
    spec->name = bson_strndup(text, length);
    return TRUCE_OK;
}

static truce_status option_partial(const char *name, struct value value, struct index_spec *spec,
                                   bson_error_t *error)
{
    bson_t borrowed;

    if (value.type != BSON_TYPE_DOCUMENT)
        return index_spec_refuse_type(name, value, "a document", error);
    truce__value_bson(value, &borrowed);
    spec->partial_filter = bson_copy(&borrowed);
    return TRUCE_OK;
}

static truce_status parse_expire(const char *name, struct value value, int code,
                                 struct index_spec *spec, bson_error_t *error)
{
    double seconds;

    if (!truce__value_is_number(value))
        return index_spec_refuse_type(name, value, "a number", error);
    seconds = truce__number_to_double(value);
    if (!(seconds >= 0 && seconds <= INT32_MAX))
        return truce__refuse_value(
            code, value, error, "index option '%s' must be from 0 to %d seconds", name, INT32_MAX);
    spec->expire_after_s = (int64_t)seconds;
    return TRUCE_OK;
}

static truce_status option_expire(const char *name, struct value value, struct index_spec *spec,
                                  bson_error_t *error)
{
    return parse_expire(name, value, CODE_CANNOT_CREATE_INDEX, spec, error);
}

static truce_status option_version(const char *name, struct value value, struct index_spec *spec,
                                   bson_error_t *error)
{
    int64_t version;

    if (!truce__value_is_number(value))
        return index_spec_refuse_type(name, value, "a number", error);
    if (!truce__number_to_int64(value, &version) || version < 1 || version > 2)
        return truce__refuse_value(CODE_CANNOT_CREATE_INDEX, value, error,
                                   "index option 'v' must be 1 or 2");
    return TRUCE_OK;
}

static truce_status option_ignored(const char *name, struct value value, struct index_spec *spec,
                                   bson_error_t *error)
{
    return TRUCE_OK;
}

static truce_status option_collation(const char *name, struct value value, struct index_spec *spec,
                                     bson_error_t *error)
{
    struct value locale;
    uint32_t length;

    if (value.type != BSON_TYPE_DOCUMENT)
        return index_spec_refuse_type(name, value, "a document", error);
    locale = truce__value_field(value, "locale", 6);
    if (locale.type == BSON_TYPE_UTF8 && !strcmp(truce__value_text(locale, &length), "simple"))
        return TRUCE_OK;
    return truce__refuse_value(CODE_COMMAND_NOT_SUPPORTED, value, error,
                               "index option 'collation' must be {locale: 'simple'}");
}

static truce_status option_unsupported(const char *name, struct value value,
                                       struct index_spec *spec, bson_error_t *error)
{
    return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                         "index option '%s' is not supported by this store", name);
}

static const struct option {
    const char *name;
    option_function *parse;
    /* The index of _id may have the option. */
    bool of_id;
} options[] = {
    {"name", option_name, true},
    {"unique", option_unique, false},
    {"sparse", option_sparse, false},
    {"partialFilterExpression", option_partial, false},
    {"expireAfterSeconds", option_expire, false},
    {"v", option_version, true},
    {"ns", option_ignored, true},
    {"background", option_ignored, false},
    {"collation", option_collation, true},
    {"wildcardProjection", option_unsupported, false},
    {"hidden", option_hidden, false},
    {"storageEngine", option_unsupported, false},
    {"weights", option_unsupported, false},
    {"default_language", option_unsupported, false},
    {"language_override", option_unsupported, false},
    {"textIndexVersion", option_unsupported, false},
    {"2dsphereIndexVersion", option_unsupported, false},
    {"bits", option_unsupported, false},
    {"min", option_unsupported, false},
    {"max", option_unsupported, false},
    {"bucketSize", option_unsupported, false},
    {"clustered", option_unsupported, false},
    {"prepareUnique", option_unsupported, false},
    {"dropDups", option_ignored, false},
};

bool truce__index_option_is_known(const char *name)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(options[i].name, name))
            return true;
    return !strcmp(name, "key");
}

/* Fails because an index has an unknown option. */
static truce_status index_spec_refuse_option(const char *name, bson_error_t *error)
{
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].parse != option_unsupported && options[i].parse != option_ignored)
            truce__nearest_word_offer(&nearest, options[i].name);
    return truce__refuse(CODE_INVALID_INDEX_OPTION, error, "unknown index option \"%s\"%s", name,
                         truce__nearest_word_hint(&nearest, hint));
}

/* Parses one option. `given` has a bit for each option before it. */
static truce_status spec_parse_option(const struct fields *at, struct index_spec *spec,
                                      uint64_t *given, bson_error_t *error)
{
    _Static_assert(sizeof options / sizeof *options <= 64, "a bit for each option");

    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strcmp(options[i].name, at->key) != 0)
            continue;
        if (*given & UINT64_C(1) << i)
            return truce__refuse(40413, error, "index option '%s' is given twice", at->key);
        *given |= UINT64_C(1) << i;
        if (spec->is_id && !options[i].of_id)
            return truce__refuse(CODE_INVALID_INDEX_OPTION, error,
                                 "index option '%s' is not for the index on _id", at->key);
        return options[i].parse(at->key, at->value, spec, error);
    }
    return index_spec_refuse_option(at->key, error);
}

/* ---- conflicts between options -------------------------------------------------------------- */

/* Returns the operator that a partial filter must not have, or NULL. */
static const char *kind_not_allowed(const struct match_node *node)
{
    switch (node->kind) {
    case MATCH_AND:
    case MATCH_OR:
    case MATCH_TRUE:
    case MATCH_FALSE:
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
    case MATCH_IN:
    case MATCH_EXISTS:
    case MATCH_TYPE:
        break;
    case MATCH_NOT:
        return "a negation";
    case MATCH_NOR:
        return "$nor";
    case MATCH_REGEX:
        return "$regex";
    case MATCH_MOD:
        return "$mod";
    case MATCH_SIZE:
        return "$size";
    default:
        return "such an operator";
    }
    for (uint32_t i = 0; i < node->children_count; i++) {
        const char *found = kind_not_allowed(node->children[i]);

        if (found)
            return found;
    }
    return NULL;
}

static bool spec_has_expression(const struct match_node *node)
{
    if (node->kind == MATCH_EXPR)
        return true;
    for (uint32_t i = 0; i < node->children_count; i++) {
        if (spec_has_expression(node->children[i]))
            return true;
    }
    return false;
}

/* Compiles partialFilterExpression, and checks that it has only operators that are allowed in
 * it. */
static truce_status compile_partial(struct index_spec *spec, bson_error_t *error)
{
    const char *wrong;
    truce_status status = truce__match_new(spec->partial_filter, &spec->partial, error);

    if (status)
        return status;
    if (spec_has_expression(truce__match_root(spec->partial)))
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, error,
                             "partialFilterExpression must not use $expr");
    wrong = kind_not_allowed(truce__match_root(spec->partial));
    if (wrong)
        return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                             "partialFilterExpression must not use %s", wrong);
    return TRUCE_OK;
}

/* Checks options that exclude each other. */
static truce_status check_together(const struct index_spec *spec, bson_error_t *error)
{
    const char *wrong = NULL;

    if (spec->sparse && spec->partial_filter)
        wrong = "an index is either sparse or partial, not both";
    else if (spec->fields[0].wildcard && spec->unique)
        wrong = "a wildcard index must not be unique";
    else if (spec->fields[0].wildcard && spec->sparse)
        wrong = "a wildcard index is sparse by itself and has no option 'sparse'";
    else if (spec->fields[0].wildcard && spec->expire_after_s >= 0)
        wrong = "a wildcard index must not have expireAfterSeconds";
    else if (spec->count > 1 && spec->expire_after_s >= 0)
        wrong = "an index with expireAfterSeconds has exactly one field";
    return wrong ? truce__refuse(CODE_CANNOT_CREATE_INDEX, error, "%s", wrong) : TRUCE_OK;
}

/* Returns the default name "a_1_b_-1". */
static char *usual_name(const bson_t *key)
{
    bson_string_t *name = bson_string_new(NULL);
    struct fields fields = truce__fields(truce__value_document(key));
    bool first = true;

    while (truce__fields_next(&fields)) {
        char number[32];
        int64_t whole;

        if (truce__number_to_int64(fields.value, &whole))
            snprintf(number, sizeof number, "%" PRId64, whole);
        else
            snprintf(number, sizeof number, "%g", truce__number_to_double(fields.value));
        bson_string_append_printf(name, "%s%s_%s", first ? "" : "_", fields.key, number);
        first = false;
    }
    return bson_string_free(name, false);
}

/* Sets the name of the index: _id_, the given one, or one made from the key. */
static truce_status spec_settle_name(struct index_spec *spec, bson_error_t *error)
{
    if (spec->is_id) {
        bson_free(spec->name);
        spec->name = bson_strdup("_id_");
        return TRUCE_OK;
    }
    if (!spec->name)
        spec->name = usual_name(spec->key);
    if (!strcmp(spec->name, "_id_"))
        return truce__refuse(CODE_BAD_VALUE, error, "the name '_id_' is for the index on _id only");
    if (strlen(spec->name) > TRUCE_INDEX_NAME_MAX)
        return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                             "an index name has at most %d bytes, '%s' has more",
                             TRUCE_INDEX_NAME_MAX, spec->name);
    return TRUCE_OK;
}

/* Parses a whole specification. The key comes first, because options depend on it. */
static truce_status spec_parse(struct value specification, struct index_spec *spec,
                               bson_error_t *error)
{
    struct fields fields = truce__fields(specification);
    struct value key = truce__value_field(specification, "key", 3);
    uint64_t given = 0;
    truce_status status;

    if (!key.type)
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "the index specification has no 'key'");
    status = parse_key(key, spec, error);
    while (!status && truce__fields_next(&fields)) {
        if (strcmp(fields.key, "key") != 0)
            status = spec_parse_option(&fields, spec, &given, error);
    }
    if (!status)
        status = check_together(spec, error);
    if (!status && spec->partial_filter)
        status = compile_partial(spec, error);
    return status ? status : spec_settle_name(spec, error);
}

truce_status truce__index_spec_parse(const bson_t *specification, struct index_spec *spec,
                                     bson_error_t *error)
{
    truce_status status;

    *spec = (struct index_spec){.expire_after_s = -1};
    status = spec_parse(truce__value_document(specification), spec, error);
    if (status)
        truce__index_spec_release(spec);
    return status;
}

void truce__index_spec_release(struct index_spec *spec)
{
    bson_free(spec->name);
    for (uint32_t i = 0; i < spec->count; i++)
        truce__path_release(&spec->fields[i].path);
    bson_free(spec->fields);
    bson_destroy(spec->key);
    bson_destroy(spec->partial_filter);
    truce__match_free(spec->partial);
    *spec = (struct index_spec){.expire_after_s = -1};
}

/* ---- changes -------------------------------------------------------------------------------- */

static truce_status change_option(const struct fields *at, struct index_spec *spec,
                                  bson_error_t *error)
{
    if (!strcmp(at->key, "hidden"))
        return parse_flag(at->key, at->value, &spec->hidden, error);
    if (!strcmp(at->key, "expireAfterSeconds"))
        return parse_expire(at->key, at->value, CODE_INVALID_OPTIONS, spec, error);
    return truce__refuse(CODE_INVALID_OPTIONS, error,
                         "the index option '%s' cannot be changed: only hidden and "
                         "expireAfterSeconds can",
                         at->key);
}

truce_status truce__index_change(struct index_spec *spec, const bson_t *changes,
                                 bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(changes));
    struct index_spec changed = *spec;
    truce_status status = TRUCE_OK;

    if (bson_empty(changes))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "no index option to change is given: expected hidden or "
                             "expireAfterSeconds");
    while (!status && truce__fields_next(&fields))
        status = change_option(&fields, &changed, error);
    if (status)
        return status;
    if (spec->is_id && changed.hidden)
        return truce__refuse(CODE_BAD_VALUE, error, "the index of _id cannot be hidden");
    if (changed.expire_after_s >= 0 && (spec->is_id || check_together(&changed, NULL)))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "an index with expireAfterSeconds has exactly one field, not _id, and "
                             "is not a wildcard");
    spec->hidden = changed.hidden;
    spec->expire_after_s = changed.expire_after_s;
    return TRUCE_OK;
}
