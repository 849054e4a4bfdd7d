/*
 * docs/commands.md is made of the table of the patterns' commands. With TRUCE_TEST_WRITE_PAGE=1 it
 * is written, else compared.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "operations/operation.h"
#include "tests/support/test.h"

#define PAGE TRUCE_TEST_DATA "/../../docs/commands.md"

static struct buffer page;

static void put(const char *text)
{
    truce__buffer_append(&page, text, strlen(text));
}

#define PUT(...)                                                                                   \
    do {                                                                                           \
        char *put_text = bson_strdup_printf(__VA_ARGS__);                                          \
        put(put_text);                                                                             \
        bson_free(put_text);                                                                       \
    } while (0)

/* ---- a value in a language ------------------------------------------------------------------- */

enum language { PYTHON, NODE, GO };

static void put_fields(const bson_iter_t *at, enum language language, bool is_array);

static void put_value(const bson_iter_t *at, enum language language)
{
    static const char *const truths[][2] = {
        {"False", "True"}, {"false", "true"}, {"false", "true"}};
    char text[25];

    switch (bson_iter_type(at)) {
    case BSON_TYPE_UTF8:
        PUT("\"%s\"", bson_iter_utf8(at, NULL));
        break;
    case BSON_TYPE_BOOL:
        put(truths[language][bson_iter_bool(at)]);
        break;
    case BSON_TYPE_OID:
        bson_oid_to_string(bson_iter_oid(at), text);
        if (language == GO) /* a variable: a literal would be the list of its bytes */
            put(strncmp(bson_iter_key(at), "truce", 5) ? bson_iter_key(at) : "id");
        else
            PUT(language == PYTHON ? "ObjectId(\"%s\")" : "new ObjectId(\"%s\")", text);
        break;
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        put_fields(at, language, BSON_ITER_HOLDS_ARRAY(at));
        break;
    default:
        PUT("%" PRId64, bson_iter_as_int64(at));
    }
}

static void put_fields(const bson_iter_t *at, enum language language, bool is_array)
{
    static const char *const begins[][2] = {{"{", "["}, {"{", "["}, {"bson.D{", "bson.A{"}};
    bool plain, more = false;
    bson_iter_t field;

    put(begins[language][is_array]);
    REQUIRE(bson_iter_recurse(at, &field));
    while (bson_iter_next(&field)) {
        const char *key = bson_iter_key(&field);

        plain = language == NODE && !strpbrk(key, ".- ");
        put(more ? ", " : "");
        if (!is_array)
            PUT(language == GO ? "{\"%s\", " : plain ? "%s: " : "\"%s\": ", key);
        put_value(&field, language);
        put(language == GO && !is_array ? "}" : "");
        more = true;
    }
    put(is_array && language != GO ? "]" : "}");
}

static void put_example(const char *example, enum language language)
{
    static const char *const calls[] = {"db.command(", "await db.command(", "db.RunCommand(ctx, "};
    bson_t whole = BSON_INITIALIZER, command;
    bson_error_t error;
    bson_iter_t at;

    REQUIRE(!truce_json_read(example, strlen(example), TRUCE_JSON_TYPED, &command, NULL, &error));
    BSON_APPEND_DOCUMENT(&whole, "c", &command);
    PUT("    %s", calls[language]);
    REQUIRE(bson_iter_init_find(&at, &whole, "c"));
    put_fields(&at, language, false);
    put(")\n");
    bson_destroy(&command);
    bson_destroy(&whole);
}

/* ---- the page -------------------------------------------------------------------------------- */

/* Puts a help with each {...} in backticks. Without them, the site takes it for attributes of
 * HTML. */
static void put_help(const char *help)
{
    int depth = 0;

    for (bool code = false; *help; help++) {
        code ^= *help == '`';
        if (*help == '{' && !code && !depth++)
            put("`");
        PUT("%c", *help);
        if (*help == '}' && !code && depth && !--depth)
            put("`");
    }
}

static void put_field(const struct operation_field *field)
{
    PUT("| `%s` | %s | ", field->field.name, truce__operation_type(field));
    put_help(field->help);
    if (field->field.type != FIELD_TIME && (field->least || field->most)) {
        put(" (");
        if (field->most == INT64_MAX)
            PUT("from %" PRId64, field->least);
        else
            PUT("%" PRId64 " to %" PRId64, field->least, field->most);
        put(")");
    }
    for (const char *const *at = field->words; at && *at; at++)
        PUT("%s`\"%s\"`", at == field->words ? ": " : ", ", *at);
    put(field->needed ? "; **needed** |\n" : " |\n");
}

static void put_operation(const struct operation_row *row)
{
    static const char *const roles[] = {
        [ROLE_NONE] = "no role",      [ROLE_READ] = "`read`; `readWrite` if it writes",
        [ROLE_WRITE] = "`readWrite`", [ROLE_MONITOR] = "`clusterMonitor` or `root`",
        [ROLE_MAINTAIN] = "`root`",
    };
    const char *help = row->help;

    PUT("\n### %s\n\n%c%s.\n\n", row->name, toupper(help[0]), help + 1);
    PUT("`{%s: ...}`: %s.\n\n", row->name, row->value);
    if (row->fields->field.name)
        put("| field | type | |\n| --- | --- | --- |\n");
    for (const struct operation_field *at = row->fields; at->field.name; at++)
        put_field(at);
    PUT("%sReply: %s.\n\nNeeds %s. %s in a transaction.%s%s\n\n",
        row->fields->field.name ? "\n" : "", row->answer, roles[row->role],
        row->ways & OPERATION_TRANSACTS ? "Runs" : "Does not run",
        row->ways & OPERATION_COMMITS ? " May be part of `truceCommit`." : "",
        row->ways & OPERATION_REPEATABLE ? " Repeating it is harmless." : "");
    put("In Python:\n\n");
    put_example(row->example, PYTHON);
    put("\nIn Node:\n\n");
    put_example(row->example, NODE);
    put("\nIn Go:\n\n");
    put_example(row->example, GO);
}

static const char introduction[] =
    "# The patterns as commands\n\n"
    "`truce serve` has one command for each operation of a pattern, in addition to MongoDB's commands. A driver of any language\n"
    "sends them with its `command` function; you need not install anything. `{truceHelp: 1}` lists the operations, and\n"
    "`{truceHelp: \"truceSet\"}` describes one. This page is generated from the same table. The examples are for\n"
    "MongoDB's drivers. In Go, `id`, `token`, and `conflict` are variables of the type `bson.ObjectID`. The packages of truce for\n"
    "Python, Node, and Go have a method for each operation, for example `db.sequence` and `db.Sequence`.\n\n"
    "**Replies.** Each reply has `status`, the name of the library's status: \"ok\", or \"not found\" if that is a result.\n"
    "Every other status is an error, and has `code` and `codeName`, too.\n\n"
    "| status | code | |\n| --- | --- | --- |\n"
    "| conflict | 112 WriteConflict | another write changed a document that the command depends on. |\n"
    "| locked | 24 LockTimeout | another process or commit holds the document, and did not release it in time. |\n"
    "| outcome unknown, input or output failed | 8 UnknownError | the command may have taken effect; or the disk or the network failed. |\n"
    "| duplicate | 11000 DuplicateKey | a unique key exists, or a key was used for something else. |\n"
    "| expired, not found | 125 CommandFailed | the key is too old, or another worker has the job; or a document does not exist. |\n"
    "| refused | 20 IllegalOperation | a document does not match its `if`; or a transfer is canceled or decided, permanently. |\n"
    "| invalid | 2 BadValue and others | the command is wrong; sending it again fails again. |\n"
    "| limit reached | 146 ExceededMemoryLimit and others | a maximum was reached. |\n"
    "| timed out | 50 MaxTimeMSExpired | `maxTimeMS` has passed. |\n"
    "| not authorized | 13 Unauthorized | the user does not have the role, or is not logged in. |\n\n"
    "If an error has the label `RetryableWriteError`, you can send the command again. Drivers do not do this for commands, so\n"
    "check the label.\n\n"
    "**Lists.** A reply with a list (jobs, items of trees, transfers, lines of ledgers) has a maximum size, some MiB, and a `limit`.\n"
    "If `more` is true, continue with the field named below. All pages of a\n"
    "version of a tree are of that version.\n\n"
    "**Fields.** A field that is unknown (40415) or occurs twice (40413) is refused. A string with a zero byte fails with error 2,\n"
    "and a name with error 73. A field that is `null` counts as absent, except `id`, `with`, and `if` of a change in a commit.\n"
    "`maxTimeMS` ends a command at any point. With `writeConcern: {w: 0}` or `{j: false}`, a command does not wait for the disk if the pattern supports it. Times and durations\n"
    "are in milliseconds, and a point in time is counted from 1970.\n\n"
    "**Databases.** A command works in the database that it is sent to. Its collections, queues, keys, sequences, ledgers, rules,\n"
    "and trees belong to that database. So do truce's own documents about them (`truce_queue`, `truce_commits`, and others,\n"
    "[listed here](limits.md)), and `dropDatabase` removes them. `truce --database school`, and a program that opens the store\n"
    "with `database = \"school\"`, work with the same state. Without a database, they work with the server's own (`test`, or\n"
    "`--database` of `truce serve`).\n\n"
    "**Roles.** Reading needs `read` on the database, and writing needs `readWrite`.\n\n"
    "**Transactions.** A command that runs in a driver's transaction takes effect with its commit, or never. All other commands are\n"
    "refused there (263). A command is also refused if it would create an index of an existing collection: send it once outside\n"
    "of the transaction. Claim a job before the transaction begins, because the transaction reads the snapshot of its beginning.\n";

static void make_page(void)
{
    put(introduction);
    for (const struct operation_group *group = truce__operation_groups; group->title; group++) {
        PUT("\n## %s\n", group->title);
        for (const struct operation_row *const *at = group->rows; *at; at++)
            put_operation(*at);
    }
}

static void write_page(void)
{
    FILE *file = fopen(PAGE, "w");

    REQUIRE(file);
    CHECK_INT(fwrite(page.bytes, 1, page.size, file), ==, page.size);
    CHECK_INT(fclose(file), ==, 0);
}

static bool page_is_there(void)
{
    char *there = bson_malloc(page.size + 2);
    FILE *file = fopen(PAGE, "r");
    size_t size = file ? fread(there, 1, page.size + 2, file) : 0;
    bool same = size == page.size && !memcmp(there, page.bytes, size);

    if (file)
        fclose(file);
    bson_free(there);
    return same;
}

TEST(the_page_of_the_commands_equals_the_table_of_operations)
{
    make_page();
    if (getenv("TRUCE_TEST_WRITE_PAGE"))
        write_page();
    if (!page_is_there())
        test_fail(__FILE__, __LINE__,
                  "docs/commands.md is not what the table says: write it with "
                  "TRUCE_TEST_WRITE_PAGE=1 build/dev/tests/test_live_serve_page");
    truce__buffer_release(&page);
}
