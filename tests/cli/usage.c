/* The command line without a store: help, wrong calls and their errors, the manual. */
#include <ctype.h>

#include "cli/commands.h"
#include "cli/core/operation_row_options.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

#define RUN(...) command_run(TRUCE_CLI, NULL, NULL, __VA_ARGS__, NULL)

static void refused(int line, const struct command *c, const char *sentence)
{
    char *expected = bson_strdup_printf("truce: %s\n", sentence);

    test_check_int(2, c->code, c->code == 2, "exit code 2", __FILE__, line);
    test_check_text(expected, c->err, __FILE__, line);
    test_check_text("", c->out, __FILE__, line);
    bson_free(expected);
}
#define REFUSED(sentence, ...) refused(__LINE__, RUN(__VA_ARGS__), sentence)

/* Returns whether the text has the words, which may be broken into lines. */
static bool has_words(const char *text, const char *words)
{
    bson_string_t *plain = bson_string_new(NULL);
    bool space = false, found;

    for (; *text; text++) {
        if (!isspace((unsigned char)*text))
            bson_string_append_c(plain, *text);
        else if (!space)
            bson_string_append_c(plain, ' ');
        space = isspace((unsigned char)*text);
    }
    found = strstr(plain->str, words) != NULL;
    bson_string_free(plain, true);
    return found;
}

TEST(every_command_has_a_summary_an_example_and_help_that_shows_them)
{
    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *c = cli_command_table()[i];
        const struct command *run =
            command_run(TRUCE_CLI, NULL, NULL, "help", c->noun, c->verb, NULL);

        CHECK_INT(run->code, ==, 0);
        CHECK(strstr(run->out, c->summary));
        if (c->hidden)
            continue;
        CHECK(!isupper((unsigned char)c->summary[0]) || isupper((unsigned char)c->summary[1]));
        CHECK(c->summary[strlen(c->summary) - 1] != '.');
        CHECK(c->example && strstr(c->example, "truce "));
        for (const char *line = c->help; line && *line;) {
            size_t length = strcspn(line, "\n");
            CHECK_INT(length, <=, 90);
            line += length + (line[length] == '\n');
        }
        for (const struct cli_option *o = cli_command_options(c); o && o->name; o++)
            CHECK(strstr(run->out, o->name) && has_words(run->out, o->help));
    }
}

static bool is_field(const struct cli_row *row, const char *word, size_t size)
{
    const struct operation_row *operation = cli_row_find(row);
    bool found = operation->target && cli_row_is_argument(row, word, size, operation->target);

    for (const struct operation_field *at = operation->fields; at->field.name; at++)
        found |= cli_row_is_argument(row, word, size, at->field.name);
    return found;
}

TEST(every_argument_of_an_operation_is_its_field)
{
    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *c = cli_command_table()[i];

        for (const char *at = c->row && c->arguments ? c->arguments : ""; *at;) {
            const char *word = at + strspn(at, "[");
            size_t size = strcspn(word, "]. ");

            /* A file has the value of a field, and the operation runs on a store. */
            if (strncmp(word, "FILE", size) != 0 && strncmp(word, "STORE", size) != 0 &&
                !is_field(c->row, word, size))
                test_fail(__FILE__, __LINE__, "truce %s %s: %s has no field %.*s", c->noun, c->verb,
                          c->row->name, (int)size, word);
            at += strcspn(at, " ");
            at += strspn(at, " ");
        }
    }
}

/* Except "database": the commands of servers and users have their own option of this name, which
 * replaces the common one. */
TEST(option_letters_mean_one_thing_in_a_command)
{
    for (int i = 0; cli_command_table()[i]; i++) {
        for (const struct cli_option *o = cli_command_options(cli_command_table()[i]); o && o->name;
             o++) {
            for (const struct cli_option *p = o + 1; p->name; p++)
                CHECK((!o->letter || o->letter != p->letter) && strcmp(o->name, p->name) != 0);
            for (const struct cli_option *p = cli_common_options; p->name; p++)
                CHECK((!o->letter || o->letter != p->letter) &&
                      (strcmp(o->name, p->name) != 0 || !strcmp(o->name, "database")));
        }
    }
}

TEST(groups_commands_by_noun)
{
    for (int i = 0; cli_command_table()[i]; i++) {
        for (int k = i + 1; cli_command_table()[k]; k++) {
            if (!strcmp(cli_command_table()[i]->noun, cli_command_table()[k]->noun))
                CHECK_TEXT(cli_command_table()[i]->noun, cli_command_table()[k - 1]->noun);
        }
    }
}

TEST(prints_help_and_version_with_exit_code_0)
{
    const struct command *c = RUN("help");

    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "find") && strstr(c->out, "collections list"));
    c = RUN("--help");
    CHECK_INT(c->code, ==, 0);
    c = RUN("--version");
    CHECK_INT(c->code, ==, 0);
    CHECK_TEXT("truce " TRUCE_VERSION "\n", c->out);
    c = RUN("find", "--help");
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "usage: truce find COLLECTION [FILTER] [options]\n") == c->out);
    c = RUN("index", "create", "-h");
    CHECK_INT(c->code, ==, 0);
    c = RUN("help", "index");
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "index drop"));
}

TEST(shows_the_help_and_exits_with_2_without_a_command)
{
    const struct command *c = command_run(TRUCE_CLI, NULL, NULL, NULL);

    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->out, "usage: truce COMMAND"));
    c = RUN("index");
    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->out, "usage: truce index VERB"));
}

TEST(mistyped_words_are_guessed)
{
    REFUSED("unknown command \"fnid\": did you mean \"find\"?", "fnid");
    REFUSED("unknown command \"index crate\": did you mean \"index create\"?", "index", "crate");
    REFUSED("unknown option --stoer: did you mean \"--store\"?", "--stoer", "a.truce", "find", "c");
    REFUSED("unknown command \"remove\": did you mean \"delete\"?", "remove");
    REFUSED("unknown command \"get\": did you mean \"find\"?", "get");
    REFUSED("unknown command \"item delete\": did you mean \"item remove\"?", "item", "delete");
    REFUSED("unknown option -c: put -- before the options of sh", "work", "--queue", "q", "--exec",
            "sh", "-c", "cat");
    REFUSED("unknown command \"xyzzy\"; truce help lists the commands", "xyzzy");
    REFUSED("unknown option --sotr: did you mean \"--sort\"?", "find", "c", "--sotr", "{}");
    REFUSED("unknown option --sotr: did you mean \"--sort\"?", "find", "c", "--sotr={}");
    REFUSED("unknown option --que: did you mean \"--queue\"?", "work", "--que", "people");
    REFUSED("unknown option --xyzzy", "find", "c", "--xyzzy");
    REFUSED("unknown option -z", "find", "c", "-z");
}

TEST(missing_and_spare_words_are_named)
{
    REFUSED("COLLECTION is missing; usage: truce find COLLECTION [FILTER]", "find");
    REFUSED("UPDATE is missing; usage: truce update COLLECTION FILTER UPDATE", "update", "c", "{}");
    REFUSED("\"extra\" is one argument too many; usage: truce find COLLECTION [FILTER]", "find",
            "c", "{}", "extra");
    REFUSED("--sort needs a value: DOCUMENT", "find", "c", "--sort");
    REFUSED("--json is a flag and takes no value", "find", "c", "--json=yes");
    REFUSED("no store is given: use --store FILE, or set TRUCE_STORE", "find", "c");
}

TEST(a_second_value_of_an_option_is_refused)
{
    REFUSED("--limit is given twice, as \"1\" and as \"2\": give it once", "find", "students",
            "--limit", "1", "--limit=2");
    REFUSED("--limit is given twice, as \"1\" and as \"2\": give it once", "find", "students",
            "-n1", "--limit", "2");
    REFUSED("--store is given twice, as \"a.truce\" and as \"b.truce\": give it once", "--store",
            "a.truce", "find", "students", "-s", "b.truce");
    REFUSED("--key is given twice, as \"a\" and as \"b\": give it once", "set", "define",
            "students", "--list", "classes", "--key", "a", "--key", "b", "--name", "name");
    /* the same value, a flag, and an option for several values */
    REFUSED("no store is given: use --store FILE, or set TRUCE_STORE", "find", "students", "-n1",
            "-n1", "--plain", "--plain");
    REFUSED("no store is given: use --store FILE, or set TRUCE_STORE", "queue", "add", "mail", "{}",
            "--tag", "a", "--tag", "b");
}

TEST(bad_documents_are_named_with_column_and_field)
{
    const char *store = test_directory();
    const struct command *c =
        command_run(TRUCE_CLI, NULL, NULL, "aggregate", "c", "{}", "--store", store, NULL);

    CHECK_INT(c->code, ==, 2);
    CHECK_TEXT("truce: PIPELINE must be an array of stages: [{\"$match\": {...}}, ...]\n", c->err);
    REFUSED("PIPELINE is not Extended JSON: column 13, field 0.$match: a value is expected: "
            "\"text\", a number, {, [, true, false or null",
            "aggregate", "c", "[{\"$match\": }]");
}

TEST(errors_are_documents_with_json)
{
    const struct command *c = RUN("find", "c", "--json");

    CHECK_INT(c->code, ==, 2);
    CHECK_TEXT(
        "{\"error\": \"no store is given: use --store FILE, or set TRUCE_STORE\", \"status\": "
        "\"invalid\"}\n",
        c->err);
}

TEST(the_manual_names_every_command_and_has_every_section)
{
    static const char *const sections[] = {"NAME",        "SYNOPSIS",    "OPTIONS",
                                           "COMMANDS",    "ENVIRONMENT", "FILES",
                                           "EXIT STATUS", "EXAMPLES",    "SEE ALSO"};
    const struct command *c = RUN("manual", "man");

    CHECK_INT(c->code, ==, 0);
    for (int i = 0; cli_command_table()[i]; i++) {
        const struct cli_command *k = cli_command_table()[i];
        char *name = bson_strdup_printf(".SS truce %s%s%s\n", k->noun, k->verb ? " " : "",
                                        k->verb ? k->verb : "");
        CHECK((strstr(c->out, name) != NULL) == !k->hidden);
        bson_free(name);
    }
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        char *name = bson_strdup_printf(".SH %s\n", sections[i]);

        CHECK(strstr(c->out, name));
        bson_free(name);
    }
}

#define SHELL(script) command_run("/bin/bash", NULL, NULL, "-c", script, "bash", TRUCE_CLI, NULL)

TEST(the_manual_passes_mandoc_where_that_is_installed)
{
    const struct command *c =
        SHELL("type mandoc >/dev/null 2>&1 || exit 0; \"$1\" manual man | mandoc -T lint");

    CHECK_TEXT("", c->out);
    CHECK_INT(c->code, ==, 0);
}

TEST(every_call_of_the_library_has_a_man_page)
{
    char *script = bson_strdup_printf(
        "set -e; tools=" TRUCE_TEST_DATA "/../../tools; cd '%s'; \"$tools/man3\" man3 1.2\n"
        "for call in $(grep -ohE '\\btruce_[a-z0-9_]+\\(' \"$tools\"/../include/truce/{store,set,item}.h"
        " | grep -v _function | tr -d '('); do [ -s man3/$call.3 ] || echo \"no page: $call\"; done\n"
        "type mandoc >/dev/null 2>&1 || exit 0\n"
        "for page in man3/*.3; do head -1 $page | grep -q '^.so' || mandoc -T lint $page; done\n",
        test_directory());
    const struct command *c = SHELL(script);

    CHECK_TEXT("", c->out);
    CHECK_TEXT("", c->err);
    CHECK_INT(c->code, ==, 0);
    bson_free(script);
}

TEST(completion_for_each_shell_is_valid_where_that_is_installed)
{
    CHECK_INT(SHELL("\"$1\" manual bash | bash -n")->code, ==, 0);
    CHECK_INT(SHELL("type zsh >/dev/null 2>&1 || exit 0; \"$1\" manual zsh | zsh -n")->code, ==, 0);
    CHECK_INT(SHELL("type fish >/dev/null 2>&1 || exit 0; \"$1\" manual fish | fish -n")->code, ==,
              0);
    CHECK_TEXT(
        "find\n",
        SHELL("PATH=$(dirname \"$1\"):$PATH; source <(truce manual bash)\n"
              "COMP_WORDS=(truce fi); COMP_CWORD=1; _truce; printf '%s\\n' \"${COMPREPLY[@]}\"")
            ->out);
    CHECK_TEXT(
        "--plain\n",
        SHELL("type fish >/dev/null 2>&1 || { echo --plain; exit; }; PATH=$(dirname "
              "\"$1\"):$PATH\n"
              "fish -c 'truce manual fish | source; complete -C \"truce find x --pla\"' | cut -f1")
            ->out);
}

static void completes(int line, const char *store, const char *expected, const char *a,
                      const char *b, const char *c, const char *d)
{
    const struct command *run =
        command_run(TRUCE_CLI, store, NULL, "complete", "--", a, b, c, d, NULL);
    char *found = bson_strdup_printf("\n%s", run->out),
         *word = bson_strdup_printf("\n%s", expected);

    if (!strstr(found, word))
        test_fail(__FILE__, line, "\"%s\" is not among: %s", expected, run->out);
    bson_free(found);
    bson_free(word);
}
#define COMPLETES(expected, a, b, c, d) completes(__LINE__, store, expected, a, b, c, d)

TEST(completes_commands_options_and_names_in_the_store)
{
    char store[400];

    snprintf(store, sizeof store, "%s/c.truce", test_directory());
    command_run(TRUCE_CLI, store, NULL, "insert", "students", "{_id: 1, year: 2}", NULL);
    command_run(TRUCE_CLI, store, NULL, "index", "create", "students", "{year: 1}", NULL);
    command_run(TRUCE_CLI, store, NULL, "sequence", "next", "enrolments", NULL);
    command_run(TRUCE_CLI, store, NULL, "request", "add", "order-17", "ship", NULL);
    COMPLETES("collections\n", "co", NULL, NULL, NULL);
    COMPLETES("create\tcreate an index", "index", "c", NULL, NULL);
    COMPLETES("--sort\tthe order", "find", "students", "--so", NULL);
    COMPLETES("--store\t", "--st", NULL, NULL, NULL);
    COMPLETES("students\n", "find", "", NULL, NULL);
    COMPLETES("students\n", "-q", "find", "stu", NULL);
    COMPLETES("year_1\n", "index", "drop", "students", "");
    COMPLETES("year_1\n", "find", "students", "--hint", "");
    COMPLETES("year\n", "distinct", "students", "", NULL);
    COMPLETES("enrolments\n", "sequence", "next", "", NULL);
    COMPLETES("order-17\n", "request", "show", "o", NULL);
    COMPLETES(":files\n", "import", "students", "", NULL);
    COMPLETES(":files\n", "find", "students", "--store", "");
    COMPLETES("post\n", "demo", "p", NULL, NULL);
    COMPLETES("set\n", "help", "s", NULL, NULL);
    COMPLETES("define\t", "help", "set", "d", NULL);
    COMPLETES("year\n", "export", "students", "--fields", "");
    command_run(TRUCE_CLI, store, NULL, "request", "add", "or\x1b[2Jder", "ship", NULL);
    command_run(TRUCE_CLI, store, NULL, "insert", "students", "{_id: 2, 'y\\u202e\\u009bear': 2}",
                NULL);
    CHECK_TEXT(
        "order-17\n",
        command_run(TRUCE_CLI, store, NULL, "complete", "--", "request", "show", "o", NULL)->out);
    CHECK_TEXT("year\n", command_run(TRUCE_CLI, store, NULL, "complete", "--", "distinct",
                                     "students", "y", NULL)
                             ->out);
}
