/* truce set add, remove, show, watermark, collect, void, idle, start, quarantine, define, protect,
 * forget, convert. */
#include "cli/set/set.h"

#include <inttypes.h>
#include <string.h>

#include "bson/value.h"
#include "cli/commands.h"
#include "store/reserved.h"

/* ---- define, protect, forget ----------------------------------------------------------------- */

/* truce set define, protect, forget. */

static int define_answer(const struct cli *cli, const char *what, const char *collection,
                         const struct cli_set *set)
{
    bson_t document = BSON_INITIALIZER;
    char *id = bson_strdup_printf("%s.%s", collection, set->list);

    bson_append_utf8(&document, what, -1, id, -1);
    cli_answer(cli, &document, "%s %s", what, id);
    bson_destroy(&document);
    bson_free(id);
    return CLI_DONE;
}

static int run_define(struct cli *cli)
{
    struct cli_set set;
    bson_error_t error;
    int code = cli_set_find(cli, cli->store, cli->arguments[0], &set);

    if (!code) {
        truce_status status = truce_set_record(set.set, "define", NULL, 0, &error);

        code = status ? cli_error(cli, NULL, status, &error)
                      : define_answer(cli, "defined", cli->arguments[0], &set);
    }
    cli_set_release(&set);
    return code;
}

const struct cli_command cli_set_define = {
    .noun = "set",
    .verb = "define",
    .arguments = "COLLECTION",
    .summary = "define which list of a collection is a set",
    .help =
        "The store keeps the definition, so later calls need not repeat it. If a collection has\n"
        "several sets, they need --list. Creates a unique index on the key. The first write to a\n"
        "set also defines it.",
    .example = "truce set define students --list classes --key student_id --name name",
    .options = (const struct cli_option[]){CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_WRITE,
    .run = run_define,
};

static int run_protect(struct cli *cli)
{
    struct cli_set set;
    bson_error_t error;
    int code = cli_set_find(cli, cli->store, cli->arguments[0], &set);

    if (!code) {
        bool off = cli_flag(cli, "off");
        truce_status status = truce_set_protect(set.set, !off, &error);

        code = status ? cli_error(cli, NULL, status, &error)
                      : define_answer(cli, off ? "no longer protected" : "protected",
                                      cli->arguments[0], &set);
    }
    cli_set_release(&set);
    return code;
}

const struct cli_command cli_set_protect = {
    .noun = "set",
    .verb = "protect",
    .arguments = "COLLECTION",
    .summary = "refuse writes of old programs that restore elements",
    .help =
        "A program that writes the updates of a set itself does not compare the watermark, and\n"
        "could restore removed elements. After this, `truce set collect` marks the elements that\n"
        "it passes (_proved), and a validator of the collection refuses elements without a mark\n"
        "with error 121. You may repeat the call, and call it while the set is in use.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set protect students",
    .options =
        (const struct cli_option[]){
            {"off", 0, NULL, "remove the rule from the validator", false}, CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_WRITE,
    .run = run_protect,
};

static int run_forget(struct cli *cli)
{
    struct cli_set set;
    bson_error_t error;
    int code = cli_set_find(cli, cli->store, cli->arguments[0], &set);

    if (!code) {
        truce_status status = truce_set_forget(set.set, cli_flag(cli, "anyway"), &error);

        if (status == TRUCE_CONFLICT)
            code =
                cli_say(cli, CLI_NO, "%s (--anyway removes the definition and keeps the documents)",
                        error.message);
        else
            code = status ? cli_error(cli, NULL, status, &error)
                          : define_answer(cli, "forgotten", cli->arguments[0], &set);
    }
    cli_set_release(&set);
    return code;
}

const struct cli_command cli_set_forget = {
    .noun = "set",
    .verb = "forget",
    .arguments = "COLLECTION",
    .summary = "remove the definition of a set from the store",
    .help =
        "Also removes its sources and the consumers' records. The lists in the documents stay,\n"
        "and so does the index on the key (truce index drop). No process may use the set. Exit\n"
        "code 1: documents contain the list, or there is no such set.",
    .example = "truce set define carts --list items --key cart --name sku\n"
               "truce set forget carts",
    .options =
        (const struct cli_option[]){
            {"anyway", 0, NULL, "even if documents contain the list", false}, CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_forget,
};

/* ---- the set of a call ----------------------------------------------------------------------- */

/*
 * Finds the set that a call means, by its options and by the definition in the store.
 *
 * The only set of a collection needs no option once it is defined. A new one needs --list, --key,
 * and --name; the error names the missing ones. Nothing is guessed, because a set that is defined
 * by mistake changes documents.
 */

/* Returns the fields of the key as the options write them, separated by commas, or NULL. */
static char *set_open_keys_of(const bson_t *definition)
{
    struct value keys = truce__value_field(truce__value_document(definition), "key", 3);
    bson_string_t *text;
    struct fields fields;

    if (keys.type != BSON_TYPE_ARRAY)
        return NULL;
    text = bson_string_new(NULL);
    fields = truce__fields(keys);
    while (truce__fields_next(&fields)) {
        uint32_t length;

        if (fields.value.type == BSON_TYPE_UTF8)
            bson_string_append_printf(text, "%s%s", text->len ? "," : "",
                                      truce__value_text(fields.value, &length));
    }
    return bson_string_free(text, false);
}

/* Returns the value of the option, else of the definition, else NULL. The caller frees it. */
static char *either(const struct cli *cli, const char *option, const bson_t *definition,
                    const char *field)
{
    bson_iter_t iter;

    if (cli_text(cli, option))
        return bson_strdup(cli_text(cli, option));
    if (bson_iter_init_find(&iter, definition, field) && BSON_ITER_HOLDS_UTF8(&iter))
        return bson_strdup(bson_iter_utf8(&iter, NULL));
    return NULL;
}

/* Returns "classes" for {_id: "students.classes"}, or NULL for a set of another collection. */
static const char *set_open_list_of(const bson_t *definition, const char *collection)
{
    size_t length = strlen(collection);
    bson_iter_t iter;
    const char *id;

    if (!bson_iter_init_find(&iter, definition, "_id") || !BSON_ITER_HOLDS_UTF8(&iter))
        return NULL;
    id = bson_iter_utf8(&iter, NULL);
    if (strncmp(id, collection, length) || id[length] != '.' || strchr(id + length + 1, '.'))
        return NULL;
    return id + length + 1;
}

static int several(const struct cli *cli, const char *collection, const char *names)
{
    return cli_usage(cli, "%s has several sets; choose one with --list FIELD: %s", collection,
                     names);
}

/* Finds the definition of the set that --list names, or of the only one of the collection. An empty
 * document means none. */
static int find_definition(const struct cli *cli, truce_store *store, const char *collection,
                           bson_t *definition)
{
    const char *list = cli_text(cli, "list");
    bson_string_t *names = bson_string_new(NULL);
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;
    truce_status status = truce_find(store, SET_DEFINITIONS, NULL, NULL, &cursor, &error);
    int count = 0, code;

    bson_init(definition);
    while (!status) {
        const char *name;

        status = truce_cursor_next(cursor, &document, &error);
        if (status || !document)
            break;
        name = set_open_list_of(document, collection);
        if (!name || (list && strcmp(name, list) != 0))
            continue;
        count++;
        bson_string_append_printf(names, "%s%s", names->len ? ", " : "", name);
        bson_destroy(definition);
        bson_copy_to(document, definition);
    }
    truce_cursor_close(cursor);
    code = status      ? cli_error(cli, NULL, status, &error)
           : count > 1 ? several(cli, collection, names->str)
                       : CLI_DONE;
    bson_string_free(names, true);
    return code;
}

/* Prints which options are missing. */
static int set_open_ask(const struct cli *cli, const char *collection, const struct cli_set *set)
{
    if (!set->list)
        return cli_usage(cli,
                         "%s has no set yet: give --list FIELD, the list in its "
                         "documents, --key FIELDS, which identify a document, and --name FIELD, "
                         "which identifies an element",
                         collection);
    if (!set->keys)
        return cli_usage(
            cli,
            "--key FIELDS is missing: the fields that identify a document of %s (there is "
            "no set %s.%s yet)",
            collection, collection, set->list);
    return cli_usage(
        cli,
        "--name FIELD is missing: the field that identifies an element of %s.%s (there is no "
        "such set yet)",
        collection, set->list);
}

static truce_set *set_open_make(const struct cli *cli, truce_store *store, const char *collection,
                                const struct cli_set *of, const bson_t *definition)
{
    char *deleted = either(cli, "deleted", definition, "deleted");
    char *seq = either(cli, "seq-field", definition, "seq");
    char *source = either(cli, "source-field", definition, "source");
    char *watermark = either(cli, "watermark-field", definition, "watermark");
    bson_iter_t layout;
    bool by_element =
        cli_flag(cli, "by-element") ||
        (bson_iter_init_find(&layout, definition, "layout") && BSON_ITER_HOLDS_UTF8(&layout) &&
         !strcmp(bson_iter_utf8(&layout, NULL), "element"));
    truce_set *set = truce_set_new(
        store, &(truce_set_options){
                   .collection = collection,
                   .field = of->list,
                   .key = of->keys,
                   .name = of->name,
                   .deleted = deleted,
                   .seq = seq,
                   .source = source,
                   .watermark = watermark,
                   .layout = by_element ? TRUCE_SET_BY_ELEMENT : TRUCE_SET_IN_DOCUMENT,
                   .deadline_ms = cli->deadline_ms,
               });

    bson_free(deleted);
    bson_free(seq);
    bson_free(source);
    bson_free(watermark);
    return set;
}

int cli_set_find(const struct cli *cli, truce_store *store, const char *collection,
                 struct cli_set *set)
{
    bson_t definition;
    int code;

    *set = (struct cli_set){0};
    code = find_definition(cli, store, collection, &definition);
    if (!code) {
        const char *list = set_open_list_of(&definition, collection);

        set->list = bson_strdup(cli_text(cli, "list") ? cli_text(cli, "list") : list);
        set->keys = cli_text(cli, "key") ? bson_strdup(cli_text(cli, "key"))
                                         : set_open_keys_of(&definition);
        set->name = either(cli, "name", &definition, "name");
        if (set->list && set->keys && set->name)
            set->set = set_open_make(cli, store, collection, set, &definition);
        else
            code = set_open_ask(cli, collection, set);
    }
    bson_destroy(&definition);
    return code;
}

void cli_set_release(struct cli_set *set)
{
    truce_set_free(set->set);
    bson_free(set->list);
    bson_free(set->keys);
    bson_free(set->name);
    *set = (struct cli_set){0};
}

int cli_set_open(const struct cli *cli, truce_store *store, const char *collection, truce_set **set)
{
    struct cli_set found;
    int code = cli_set_find(cli, store, collection, &found);

    *set = found.set;
    found.set = NULL;
    cli_set_release(&found);
    return code;
}

/* ---- set --------------------------------------------------------------------------------- */

static const char *set_text_of(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, field) || !BSON_ITER_HOLDS_UTF8(&iter))
        return NULL;
    return bson_iter_utf8(&iter, NULL);
}

/* Reads a number that must be given. */
static bool required_number(const struct cli *cli, const char *name, int64_t *number)
{
    if (!cli_text(cli, name)) {
        cli_usage(cli, "--%s NUMBER is missing", name);
        return false;
    }
    return cli_number(cli, name, 1, INT64_MAX, 0, number);
}

/* ---- add, remove ---- */

static int run_set_apply(struct cli *cli, truce_set_verb verb)
{
    truce_set_operation operation = {.verb = verb, .source = cli_text(cli, "source")};
    bson_t key, element, answer = BSON_INITIALIZER;
    truce_set_result result = {0};
    truce_set *set = NULL;
    bson_error_t error;
    bool good = cli_document(cli, cli->arguments[1], "KEY", &key);
    int code = CLI_USAGE;

    good &= cli_document(cli, cli->arguments[2], "ELEMENT", &element);
    if (!good || !required_number(cli, "seq", &operation.seq))
        goto out;
    code = cli_set_open(cli, cli->store, cli->arguments[0], &set);
    if (code)
        goto out;
    operation.key = &key;
    operation.element = &element;
    if (cli_text(cli, "consumer"))
        result.status =
            truce_set_consume(set, cli_text(cli, "consumer"), &operation, 1, &result, &error);
    else
        result.status = truce_set_apply(set, NULL, &operation, 1, &result, &error);
    if (result.status) {
        code = cli_error(cli, NULL, result.status, &error);
        goto out;
    }
    bson_append_utf8(&answer, "outcome", -1, truce_set_outcome_name(result.outcome), -1);
    cli_answer(cli, &answer, "%s", truce_set_outcome_name(result.outcome));
    code = result.outcome == TRUCE_SET_QUARANTINED ? CLI_NO : CLI_DONE;
out:
    truce_set_free(set);
    bson_destroy(&key);
    bson_destroy(&element);
    bson_destroy(&answer);
    return code;
}

static int set_run_add(struct cli *cli)
{
    return run_set_apply(cli, TRUCE_SET_ADD);
}

static int set_run_remove(struct cli *cli)
{
    return run_set_apply(cli, TRUCE_SET_REMOVE);
}

static const struct cli_option apply_options[] = {
    {"seq", 0, "NUMBER", "the operation's sequence number", false},
    CLI_SET_SOURCE_OPTION,
    {"consumer", 0, "NAME", "record the number as applied by this consumer", false},
    CLI_SET_OPTIONS,
    {0}};

const struct cli_command cli_set_add = {
    .noun = "set",
    .verb = "add",
    .arguments = "COLLECTION KEY ELEMENT",
    .summary = "add an element to a set, in any order of arrival",
    .help =
        "Prints applied, stale (a newer operation on that name was applied), duplicate (this one\n"
        "was applied before), or quarantined (its number was declared void). An element may have\n"
        "other fields than its name; a newer add replaces them.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1001",
    .options = apply_options,
    .store = CLI_STORE_WRITE,
    .run = set_run_add,
};

const struct cli_command cli_set_remove = {
    .noun = "set",
    .verb = "remove",
    .arguments = "COLLECTION KEY ELEMENT",
    .summary = "remove an element from a set, in any order of arrival",
    .help = "Prints the same as truce set add. A remove that arrives before its add leaves a\n"
            "tombstone, which makes the add stale.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set remove students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1002",
    .options = apply_options,
    .store = CLI_STORE_WRITE,
    .run = set_run_remove,
};

/* ---- show ---- */

static int set_run_show(struct cli *cli)
{
    bson_t key, document = BSON_INITIALIZER;
    truce_set *set = NULL;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;

    if (!cli_document(cli, cli->arguments[1], "KEY", &key))
        goto out;
    code = cli_set_open(cli, cli->store, cli->arguments[0], &set);
    if (code)
        goto out;
    bson_destroy(&document);
    status = truce_set_show(set, &key, &document, &error);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    else
        cli_print(&document, JSON_RELAXED);
out:
    truce_set_free(set);
    bson_destroy(&key);
    bson_destroy(&document);
    return code;
}

const struct cli_command cli_set_show = {
    .noun = "set",
    .verb = "show",
    .arguments = "COLLECTION KEY",
    .summary = "show a set: elements, removed elements, watermark",
    .example =
        "truce set define students --list classes --key student_id --name name\n"
        "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1 --consumer web\n"
        "truce set show students '{student_id: 1}'",
    .options = (const struct cli_option[]){CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = set_run_show,
};

/* The action of a command on the open set. Fills the empty document `*answer` and returns the exit
 * code. */
typedef int act_function(struct cli *cli, truce_set *set, bson_t *answer);

static int with_set(struct cli *cli, act_function *act)
{
    bson_t answer = BSON_INITIALIZER;
    truce_set *set = NULL;
    int code = cli_set_open(cli, cli->store, cli->arguments[0], &set);

    if (!code)
        code = act(cli, set, &answer);
    truce_set_free(set);
    bson_destroy(&answer);
    return code;
}

/* ---- watermark ---- */

static void print_sources(const bson_t *report)
{
    struct value sources = truce__value_field(truce__value_document(report), "sources", 7);
    struct fields fields = truce__fields(sources);

    while (truce__fields_next(&fields)) {
        bson_t source;
        bson_iter_t watermark, floor;

        truce__value_bson(fields.value, &source);
        if (bson_iter_init_find(&watermark, &source, "watermark") &&
            bson_iter_init_find(&floor, &source, "floor"))
            cli_put("  source %-20s watermark %" PRId64 ", waits for %" PRId64 "\n",
                    *set_text_of(&source, "source") ? set_text_of(&source, "source") : "(none)",
                    bson_iter_as_int64(&watermark), bson_iter_as_int64(&watermark) + 1);
    }
}

static int tell_watermark(struct cli *cli, truce_set *set, bson_t *answer)
{
    bson_error_t error;
    int64_t watermark;
    truce_status status;

    bson_destroy(answer);
    status = truce_set_watermark(set, &watermark, answer, &error);
    if (status)
        return cli_error(cli, NULL, status, &error);
    cli_answer(cli, answer, "watermark %" PRId64, watermark);
    if (!cli->json)
        print_sources(answer);
    return CLI_DONE;
}

static int run_watermark(struct cli *cli)
{
    return with_set(cli, tell_watermark);
}

const struct cli_command cli_set_watermark = {
    .noun = "set",
    .verb = "watermark",
    .arguments = "COLLECTION",
    .summary = "show up to which number each source was applied",
    .help =
        "The watermark of a source is the end of the numbers without a gap that consumers\n"
        "recorded. That of the set is the lowest of its sources. Tombstones at or below it can\n"
        "be collected.",
    .example =
        "truce set define students --list classes --key student_id --name name\n"
        "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1 --consumer web\n"
        "truce set watermark students",
    .options = (const struct cli_option[]){CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_READ,
    .run = run_watermark,
};

/* ---- collect ---- */

static int run_set_collect(struct cli *cli, truce_set *set, bson_t *answer)
{
    truce_set_collected collected;
    bson_error_t error;
    truce_status status = truce_set_collect(set, &collected, &error);

    if (status)
        return cli_error(cli, NULL, status, &error);
    bson_append_int64(answer, "watermark", -1, collected.watermark);
    bson_append_int64(answer, "documents", -1, collected.documents);
    bson_append_int64(answer, "tombstones", -1, collected.tombstones);
    cli_answer(cli, answer,
               "collected %" PRId64 " tombstones of %" PRId64
               " documents, up to watermark %" PRId64,
               collected.tombstones, collected.documents, collected.watermark);
    return CLI_DONE;
}

static int set_run_collect(struct cli *cli)
{
    return with_set(cli, run_set_collect);
}

const struct cli_command cli_set_collect = {
    .noun = "set",
    .verb = "collect",
    .arguments = "COLLECTION",
    .summary = "remove tombstones that are no longer needed",
    .help =
        "A tombstone is removed when every number up to its own was applied. The command may run\n"
        "at any time, concurrently with consumers and other collectors.",
    .example =
        "truce set define students --list classes --key student_id --name name\n"
        "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1 --consumer web\n"
        "truce set collect students",
    .options = (const struct cli_option[]){CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = set_run_collect,
};

/* ---- convert ---- */

static int run_set_convert(struct cli *cli, truce_set *set, bson_t *answer)
{
    truce_set_converted converted;
    bson_error_t error;
    truce_status status = truce_set_convert(set, &converted, &error);

    if (status && !converted.left)
        return cli_error(cli, NULL, status, &error);
    bson_append_int64(answer, "documents", -1, converted.documents);
    bson_append_int64(answer, "elements", -1, converted.elements);
    bson_append_int64(answer, "left", -1, converted.left);
    cli_answer(cli, answer, "converted %" PRId64 " elements of %" PRId64 " documents",
               converted.elements, converted.documents);
    return !status ? CLI_DONE
                   : cli_say(cli, CLI_NO, "%" PRId64 " documents are unchanged: %s", converted.left,
                             error.message);
}

static int run_convert(struct cli *cli)
{
    return with_set(cli, run_set_convert);
}

const struct cli_command cli_set_convert = {
    .noun = "set",
    .verb = "convert",
    .arguments = "COLLECTION",
    .summary = "give a number to elements without one",
    .help =
        "Lists such as classes: [\"CS 101\"] become [{name: \"CS 101\", seq: 0}], which is older\n"
        "than every operation. An operation converts its own document; this command converts all.\n"
        "It may run while the set is in use. If it is stopped, start it again, and it resumes.",
    .example = "truce insert students '{student_id: 1, classes: [\"CS 101\"]}'\n"
               "truce set define students --list classes --key student_id --name name\n"
               "truce set convert students",
    .options = (const struct cli_option[]){CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_convert,
};

/* ---- void, idle, start ---- */

static int set_finish(struct cli *cli, truce_set *set, truce_status status,
                      const bson_error_t *error, const char *done, int64_t number)
{
    bson_t answer = BSON_INITIALIZER;
    int code = CLI_DONE;

    if (status) {
        code = cli_error(cli, NULL, status, error);
    } else {
        bson_append_int64(&answer, done, -1, number);
        cli_answer(cli, &answer, "%s %" PRId64, done, number);
    }
    bson_destroy(&answer);
    truce_set_free(set);
    return code;
}

static int set_run_void(struct cli *cli)
{
    truce_set *set;
    bson_error_t error;
    int64_t from, to, below;
    truce_status status;
    int code;

    if (cli_text(cli, "below") && (cli_text(cli, "from") || cli_text(cli, "to")))
        return cli_usage(
            cli, "--below and --from exclude each other: --below covers all numbers below it");
    if (cli_text(cli, "below")) {
        if (!required_number(cli, "below", &below))
            return CLI_USAGE;
        code = cli_set_open(cli, cli->store, cli->arguments[0], &set);
        if (code)
            return code;
        status = truce_set_source_idle(set, cli_text(cli, "source"), below, &error);
        return set_finish(cli, set, status, &error, "below", below);
    }
    if (!required_number(cli, "from", &from) || !cli_number(cli, "to", from, INT64_MAX, from, &to))
        return CLI_USAGE;
    code = cli_set_open(cli, cli->store, cli->arguments[0], &set);
    if (code)
        return code;
    status = truce_set_void(set, cli_text(cli, "source"), from, to, &error);
    return set_finish(cli, set, status, &error, "void", to - from + 1);
}

const struct cli_command cli_set_void = {
    .noun = "set",
    .verb = "void",
    .arguments = "COLLECTION",
    .summary = "declare numbers void that were never published",
    .help =
        "A void number no longer stops the watermark. An operation that arrives with such a\n"
        "number after the watermark has passed it is quarantined.\n"
        "If numbers have gaps (timestamps, ids of a database), use --below N. It declares void\n"
        "every number below N that no consumer recorded.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set void students --from 17 --to 19",
    .options =
        (const struct cli_option[]){{"from", 0, "NUMBER", "the first number", false},
                                    {"to", 0, "NUMBER", "the last number (default: --from)", false},
                                    {"below", 0, "NUMBER", "all gaps below this number", false},
                                    CLI_SET_SOURCE_OPTION,
                                    CLI_SET_OPTIONS,
                                    {0}},
    .store = CLI_STORE_CHANGE,
    .run = set_run_void,
};

static int run_idle(struct cli *cli)
{
    truce_set *set;
    bson_error_t error;
    int64_t below;
    truce_status status;
    int code;

    if (!required_number(cli, "below", &below))
        return CLI_USAGE;
    code = cli_set_open(cli, cli->store, cli->arguments[0], &set);
    if (code)
        return code;
    status = truce_set_source_idle(set, cli_text(cli, "source"), below, &error);
    return set_finish(cli, set, status, &error, "below", below);
}

const struct cli_command cli_set_idle = {
    .noun = "set",
    .verb = "idle",
    .arguments = "COLLECTION",
    .summary = "declare that a source is complete below a number",
    .help = "Every number of the source below --below was recorded or will never be published.\n"
            "A source that publishes rarely stops collecting until this is declared.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set start students --source web\n"
               "truce set idle students --source web --below 5000",
    .options = (const struct cli_option[]){{"below", 0, "NUMBER",
                                            "the source is complete below this number", false},
                                           CLI_SET_SOURCE_OPTION,
                                           CLI_SET_OPTIONS,
                                           {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_idle,
};

static int set_run_start(struct cli *cli)
{
    truce_set *set;
    bson_error_t error;
    int64_t first;
    truce_status status;
    int code = cli_set_open(cli, cli->store, cli->arguments[0], &set);

    if (code)
        return code;
    status = truce_set_source_start(set, cli_text(cli, "source"), &first, &error);
    return set_finish(cli, set, status, &error, "first", first);
}

const struct cli_command cli_set_start = {
    .noun = "set",
    .verb = "start",
    .arguments = "COLLECTION",
    .summary = "announce a new source and print its first number",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set start students --source mobile",
    .options = (const struct cli_option[]){CLI_SET_SOURCE_OPTION, CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_WRITE,
    .run = set_run_start,
};

/* ---- quarantine ---- */

/* Replays every operation that is in quarantine now, under new numbers from `seq` on. */
static truce_status replay_all(struct cli *cli, truce_set *set, int64_t seq, int64_t *counts,
                               bson_error_t *error)
{
    const char *consumer = cli_text(cli, "consumer");
    truce_cursor *cursor = NULL;
    truce_status status = truce_set_quarantine(set, &cursor, error);

    while (!status) {
        truce_set_outcome outcome;
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status =
            truce_set_replay(set, document, seq, consumer ? consumer : "replay", &outcome, error);
        if (status == TRUCE_NOT_FOUND) { /* another process replayed it */
            status = TRUCE_OK;
        } else if (!status) {
            counts[outcome]++;
            seq++;
        }
    }
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

static int run_replay(struct cli *cli)
{
    int64_t counts[TRUCE_SET_QUARANTINED + 1] = {0}, seq, next;
    bson_t answer = BSON_INITIALIZER;
    truce_set *set = NULL;
    bson_error_t error;
    int code = CLI_DONE;
    truce_status status;

    if (!required_number(cli, "seq", &seq))
        code = CLI_USAGE;
    if (code == CLI_DONE)
        code = cli_set_open(cli, cli->store, cli->arguments[0], &set);
    if (code != CLI_DONE)
        goto out;
    status = replay_all(cli, set, seq, counts, &error);
    if (status) {
        code = cli_error(cli, NULL, status, &error);
        goto out;
    }
    next = seq + counts[TRUCE_SET_APPLIED] + counts[TRUCE_SET_STALE] + counts[TRUCE_SET_DUPLICATE];
    bson_append_int64(&answer, "applied", -1, counts[TRUCE_SET_APPLIED]);
    bson_append_int64(&answer, "stale", -1, counts[TRUCE_SET_STALE]);
    bson_append_int64(&answer, "duplicate", -1, counts[TRUCE_SET_DUPLICATE]);
    bson_append_int64(&answer, "next", -1, next);
    cli_answer(cli, &answer,
               "applied %" PRId64 ", stale %" PRId64 ", duplicate %" PRId64
               "; the next number is %" PRId64,
               counts[TRUCE_SET_APPLIED], counts[TRUCE_SET_STALE], counts[TRUCE_SET_DUPLICATE],
               next);
out:
    truce_set_free(set);
    bson_destroy(&answer);
    return code;
}

static int list_quarantine(struct cli *cli)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_set *set = NULL;
    bson_error_t error;
    int64_t count = 0;
    truce_status status;
    int code = cli_set_open(cli, cli->store, cli->arguments[0], &set);

    if (code)
        return code;
    status = truce_set_quarantine(set, &cursor, &error);
    while (!status) {
        status = truce_cursor_next(cursor, &document, &error);
        if (status || !document || !cli_print(document, JSON_RELAXED))
            break;
        count++;
    }
    if (cursor)
        truce_cursor_close(cursor);
    truce_set_free(set);
    if (status)
        return cli_error(cli, NULL, status, &error);
    if (!count)
        cli_remark(cli, "nothing is quarantined");
    return count ? CLI_NO : CLI_DONE;
}

static int run_quarantine(struct cli *cli)
{
    bool replay = cli_flag(cli, "replay");
    int code;

    if (!replay && (cli_text(cli, "seq") || cli_text(cli, "consumer")))
        return cli_usage(cli, "--seq and --consumer need --replay");
    code = cli_store_open(cli, replay ? CLI_STORE_CHANGE : CLI_STORE_READ, &cli->store);
    if (code != CLI_DONE)
        return code;
    return replay ? run_replay(cli) : list_quarantine(cli);
}

const struct cli_command cli_set_quarantine = {
    .noun = "set",
    .verb = "quarantine",
    .arguments = "COLLECTION",
    .summary = "list or replay operations that arrived too late",
    .help =
        "Prints one document a line: the operation and the reason. The exit code is 1 if there\n"
        "are any.\n"
        "\n"
        "With --replay, each operation is applied and removed from the quarantine. A name with a\n"
        "newer operation stays unchanged (stale). Others are applied under new numbers from --seq\n"
        "on, as if they were published now. --consumer records the numbers.\n"
        "Use numbers that the source assigned for this purpose only.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set quarantine students\n"
               "truce set quarantine students --replay --seq 2000",
    .options =
        (const struct cli_option[]){
            {"replay", 0, NULL, "apply the quarantined operations", false},
            {"seq", 0, "NUMBER", "the first of the new numbers", false},
            {"consumer", 0, "NAME", "the consumer that records them (default: replay)", false},
            CLI_SET_OPTIONS,
            {0}},
    .store = CLI_STORE_NONE, /* replaying changes the store */
    .run = run_quarantine,
};
