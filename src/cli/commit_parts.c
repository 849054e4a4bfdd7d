#include "cli/commit_parts.h"

#include <string.h>

/* One change of the list: {"update": collection, "id": ..., "with": {...}, "if": {...}} and its kin. */
struct part {
    const char *verb, *collection;
    bson_value_t id;
    bson_t with, guard;
    bool has_id, has_with, has_guard;
};

static const struct verb {
    const char *name;
    bool id, with, guard;
} verbs[] = {
    {"insert", false, true, false},  {"update", true, true, true},   {"replace", true, true, true},
    {"remove", true, false, true},   {"require", true, false, true}, {"hold", true, false, true},
    {"missing", true, false, false}, {"change", true, true, false},
};

static const struct verb *verb_named(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    }
    return NULL;
}

bool cli_take_document(const bson_iter_t *iter, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;

    if (!BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    bson_iter_document(iter, &length, &bytes);
    return bson_init_static(document, bytes, length);
}

static int bad_part(const struct cli *cli, int number, const char *what)
{
    return cli_usage(cli, "change %d: %s", number, what);
}

static int read_field(const struct cli *cli, int number, const bson_iter_t *iter, struct part *part)
{
    const char *key = bson_iter_key(iter);

    if (!strcmp(key, "id")) {
        part->has_id = true;
        part->id = *bson_iter_value((bson_iter_t *)iter);
    } else if (!strcmp(key, "with")) {
        part->has_with = cli_take_document(iter, &part->with);
        return part->has_with ? CLI_DONE : bad_part(cli, number, "\"with\" must be a document");
    } else if (!strcmp(key, "if")) {
        part->has_guard = cli_take_document(iter, &part->guard);
        return part->has_guard ? CLI_DONE : bad_part(cli, number, "\"if\" must be a document");
    } else if (verb_named(key) && !part->verb && BSON_ITER_HOLDS_UTF8(iter)) {
        part->verb = key;
        part->collection = bson_iter_utf8(iter, NULL);
    } else {
        return cli_usage(cli,
                         "change %d: \"%s\" is neither a verb with a collection (insert, update, "
                         "replace, remove, require, hold, missing, change) nor id, with, if",
                         number, key);
    }
    return CLI_DONE;
}

static int check_part(const struct cli *cli, int number, const struct part *part)
{
    const struct verb *verb = part->verb ? verb_named(part->verb) : NULL;

    if (!verb)
        return bad_part(cli, number,
                        "says nothing to do: {\"update\": \"COLLECTION\", \"id\": ..., \"with\": "
                        "{...}}");
    if (verb->id != part->has_id)
        return bad_part(cli, number, verb->id ? "needs an \"id\"" : "takes its _id from \"with\"");
    if (verb->with != part->has_with)
        return bad_part(cli, number, verb->with ? "needs \"with\"" : "takes no \"with\"");
    if (part->has_guard && !verb->guard)
        return bad_part(cli, number, "takes no \"if\"");
    return CLI_DONE;
}

static truce_status add_part(truce_commit *commit, const struct part *part, bson_error_t *error)
{
    const bson_t *guard = part->has_guard ? &part->guard : NULL;

    if (!strcmp(part->verb, "insert"))
        return truce_commit_insert(commit, part->collection, &part->with, error);
    if (!strcmp(part->verb, "update"))
        return truce_commit_update(commit, part->collection, &part->id, guard, &part->with, error);
    if (!strcmp(part->verb, "replace"))
        return truce_commit_replace(commit, part->collection, &part->id, guard, &part->with, error);
    if (!strcmp(part->verb, "remove"))
        return truce_commit_remove(commit, part->collection, &part->id, guard, error);
    if (!strcmp(part->verb, "require"))
        return truce_commit_require(commit, part->collection, &part->id, guard, error);
    if (!strcmp(part->verb, "change"))
        return truce_commit_change(commit, part->collection, &part->id, &part->with, error);
    if (!strcmp(part->verb, "hold"))
        return truce_commit_hold(commit, part->collection, &part->id, guard, error);
    return truce_commit_require_missing(commit, part->collection, &part->id, error);
}

typedef int part_function(const struct cli *cli, int number, const struct part *part, void *arg);

static int each_part(const struct cli *cli, const bson_t *changes, part_function *function,
                     void *arg)
{
    bson_iter_t iter, field;
    int code = CLI_DONE, number = 0;

    if (!bson_iter_init(&iter, changes))
        return CLI_USAGE;
    while (!code && bson_iter_next(&iter)) {
        struct part part = {0};

        number++;
        if (!BSON_ITER_HOLDS_DOCUMENT(&iter) || !bson_iter_recurse(&iter, &field))
            return bad_part(cli, number, "must be a document");
        while (!code && bson_iter_next(&field))
            code = read_field(cli, number, &field, &part);
        if (!code)
            code = function(cli, number, &part, arg);
    }
    return code;
}

struct adding {
    truce_commit *commit;
    bson_error_t *error;
    truce_status status;
};

static int check_one(const struct cli *cli, int number, const struct part *part, void *arg)
{
    (void)arg;
    return check_part(cli, number, part);
}

static int add_one(const struct cli *cli, int number, const struct part *part, void *arg)
{
    struct adding *adding = arg;

    (void)cli;
    (void)number;
    adding->status = add_part(adding->commit, part, adding->error);
    return adding->status ? CLI_NO : CLI_DONE;
}

int cli_parts_check(const struct cli *cli, const bson_t *changes)
{
    return each_part(cli, changes, check_one, NULL);
}

truce_status cli_parts_add(const struct cli *cli, const bson_t *changes, truce_commit *commit,
                           bson_error_t *error)
{
    struct adding adding = {.commit = commit, .error = error};

    (void)each_part(cli, changes, add_one, &adding); /* they were checked; the status says */
    return adding.status;
}
