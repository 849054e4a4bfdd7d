/* Ids of documents as people paste them: what one command prints another takes. */
#include <stdlib.h>
#include <string.h>

#include "bson/json.h"
#include "cli/document/doc.h"

/* What no word begins with, and what is no word. */
static bool is_json(const char *text)
{
    return text[0] == '{' || text[0] == '[' || text[0] == '"' || text[0] == '\'' ||
           !strcmp(text, "true") || !strcmp(text, "false") || !strcmp(text, "null");
}

static bool doc_id_is_number(const char *text)
{
    char *end;

    if (!text[0] || !strchr("-0123456789", text[0]) || strpbrk(text, "xXnNpP"))
        return false;
    (void)strtod(text, &end);
    return *end == '\0';
}

/* ID as Extended JSON, 24 hexadecimal digits, or a word as it stands; `holder` has it as "v". */
bool cli_doc_id(const struct cli *cli, const char *text, bson_t *holder)
{
    char *wrapped = bson_strdup_printf("{\"v\": %s}", text);
    struct json_reader reader = {.typed = true};
    bson_error_t ignored;
    bson_oid_t oid;
    bson_t read;
    bool good = true;

    bson_init(holder);
    if (bson_oid_is_valid(text, strlen(text))) {
        bson_oid_init_from_string(&oid, text);
        BSON_APPEND_OID(holder, "v", &oid);
    } else if (!is_json(text) && !strpbrk(text, " \t") && !doc_id_is_number(text)) {
        BSON_APPEND_UTF8(holder, "v", text);
    } else if (truce__json_read(&reader, wrapped, strlen(wrapped), &read, NULL, &ignored))
        good = cli_usage(cli, "ID is a value of Extended JSON, or a word, not \"%s\"", text) < 0;
    else {
        bson_concat(holder, &read);
    }
    truce__json_reader_release(&reader);
    bson_free(wrapped);
    return good;
}

bson_value_t cli_doc_id_in(const bson_t *holder)
{
    bson_value_t none = {0};
    bson_iter_t iter;

    return bson_iter_init_find(&iter, holder, "v") ? *bson_iter_value(&iter) : none;
}
