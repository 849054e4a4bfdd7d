/* truce user add, list, passwd, remove, token: manages the users of truce serve --auth. */
#include <errno.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "cli/commands.h"
#include "server/auth/tokens.h"
#include "server/auth/users.h"
#include "store/reserved_names.h"

#define PASSWORD_MAX 1000

/* ---- the password --------------------------------------------------------------------------- */

/* Reads one line of standard input, without its end. Returns false at the end of the input, or if
 * the line is too long. */
static bool user_read_line(char line[PASSWORD_MAX + 2])
{
    size_t length = 0;
    char byte = 0;

    /* read() is used because the buffer of stdio would retain the password. */
    while (length <= PASSWORD_MAX && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
        line[length++] = byte;
    line[length] = '\0';
    return length > 0 && length <= PASSWORD_MAX && strlen(line) == length;
}

/* Reads a password from the terminal without an echo. Returns false if standard input is not a
 * terminal. */
static bool prompt_password(const char *question, char line[PASSWORD_MAX + 2])
{
    struct termios as_it_was, silent;
    bool got;

    if (tcgetattr(STDIN_FILENO, &as_it_was))
        return false;
    silent = as_it_was;
    silent.c_lflag &= ~(tcflag_t)ECHO;
    fprintf(stderr, "%s: ", question);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
    got = user_read_line(line);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &as_it_was);
    fputc('\n', stderr);
    return got;
}

/* Reads the password twice from the terminal, or once from standard input. */
static int read_password(const struct cli *cli, char password[PASSWORD_MAX + 2])
{
    char again[PASSWORD_MAX + 2];
    bool same;

    if (!isatty(STDIN_FILENO))
        return user_read_line(password)
                   ? CLI_DONE
                   : cli_usage(cli,
                               "standard input has no password: expected one line of 1 to %d bytes",
                               PASSWORD_MAX);
    if (!prompt_password("password", password))
        return cli_usage(cli, "the password is empty: enter at least one character");
    same = prompt_password("the same again", again) && !strcmp(password, again);
    scram_wipe(again, sizeof again);
    return same ? CLI_DONE : cli_usage(cli, "the two passwords differ");
}

/* ---- shared functions ----------------------------------------------------------------------- */

static const char *user_database_of(const struct cli *cli)
{
    return cli_text(cli, "database") ? cli_text(cli, "database") : "admin";
}

/* Refuses the store of a server. Its users are created by its own commands. */
static int user_check_store(const struct cli *cli)
{
    return cli->uri && !strncmp(cli->uri, "mongodb", 7)
               ? cli_usage(
                     cli,
                     "truce user manages the users of a file; the users of a running server are "
                     "created by createUser, with any driver")
               : CLI_DONE;
}

static int user_check(const struct cli *cli)
{
    bson_error_t error;
    truce_status status = truce__database_name_check(user_database_of(cli), &error);

    if (user_check_store(cli))
        return CLI_USAGE;
    if (!status)
        status = users_check_name(cli->arguments[0], &error);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int user_answer(const struct cli *cli, const char *what)
{
    const char *name = cli->arguments[0], *database = user_database_of(cli);
    bson_t document = BSON_INITIALIZER;

    BSON_APPEND_BOOL(&document, what, true);
    BCON_APPEND(&document, "user", BCON_UTF8(name), "db", BCON_UTF8(database));
    cli_answer(cli, &document, "%s %s@%s", what, name, database);
    bson_destroy(&document);
    return CLI_DONE;
}

#define DATABASE_OPTION                                                                            \
    {                                                                                              \
        "database", 0, "NAME", "the user's database, authSource of drivers (default: admin)",      \
            false                                                                                  \
    }

/* ---- add ------------------------------------------------------------------------------------ */

/* Appends roles: "readWrite@school", or "root", which applies to the user's database. */
static void append_roles(const struct cli *cli, bson_t *array)
{
    const char *text, *key;
    char buffer[16];

    for (int i = 0; (text = cli_texts(cli, "role", i)) != NULL; i++) {
        size_t length = strcspn(text, "@");
        char *role = bson_strndup(text, length);
        bson_t one;

        bson_uint32_to_string((uint32_t)i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(array, key, &one);
        BCON_APPEND(&one, "role", BCON_UTF8(role), "db",
                    BCON_UTF8(text[length] ? text + length + 1 : user_database_of(cli)));
        bson_append_document_end(array, &one);
        bson_free(role);
    }
}

/* Reports roles that cannot be granted. */
static int user_roles_error(const struct cli *cli, truce_status status, bson_error_t *error)
{
    size_t at = strlen(error->message);

    if (error->code == CODE_ROLE_NOT_FOUND)
        snprintf(error->message + at, sizeof error->message - at,
                 ": truce help user add lists the roles");
    return cli_error(cli, NULL, status, error);
}

/* Reads the password before it opens the store, and overwrites it in memory at the end. */
static int user_add(struct cli *cli, const struct grants *grants)
{
    char password[PASSWORD_MAX + 2];
    struct user_facts facts = {.name = cli->arguments[0],
                               .database = user_database_of(cli),
                               .password = password,
                               .mechanisms = USER_MECHANISMS,
                               .grants = grants};
    bson_error_t error;
    truce_status status = TRUCE_OK;
    int code = read_password(cli, password);

    if (!code)
        code = cli_store_open(cli, CLI_STORE_INPUT, &cli->store);
    if (!code) {
        status = users_add(cli->store, &facts, &error);
        code = status ? cli_error(cli, NULL, status, &error) : user_answer(cli, "added");
    }
    scram_wipe(password, sizeof password);
    return code;
}

static int user_run_add(struct cli *cli)
{
    struct grants *grants = bson_malloc0(sizeof *grants);
    bson_t roles = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    int code = user_check(cli);

    append_roles(cli, &roles);
    if (!code && !cli_texts(cli, "role", 0))
        code = cli_usage(
            cli, "--role ROLE is missing, for example --role root or --role readWrite@school");
    if (!code) {
        status = grants_read(&roles, user_database_of(cli), false, grants, &error);
        code = status ? user_roles_error(cli, status, &error) : user_add(cli, grants);
    }
    bson_destroy(&roles);
    bson_free(grants);
    return code;
}

static const struct cli_command cli_user_add = {
    .noun = "user",
    .verb = "add",
    .arguments = "NAME",
    .summary = "create a user for truce serve --auth",
    .help =
        "The password is read from the terminal, or from one line of standard input. Only\n"
        "the data for SCRAM is stored, which is not enough to log in.\n"
        "\n"
        "Roles are MongoDB's: read, readWrite, dbAdmin, userAdmin, and dbOwner of a database\n"
        "(--role readWrite@school); readAnyDatabase, readWriteAnyDatabase, dbAdminAnyDatabase,\n"
        "userAdminAnyDatabase, clusterMonitor, and root of all (--role root). The server's\n"
        "commands can also create users (createUser).",
    .example = "echo 'correct horse battery' | truce user add ada --role root\n"
               "echo 'another long password' | truce user add bob --role readWrite@test",
    .options = (const struct cli_option[]){{"role", 0, "ROLE[@DATABASE]",
                                            "a role of the user (may be repeated)", true},
                                           DATABASE_OPTION,
                                           {0}},
    .store = CLI_STORE_NONE,
    .run = user_run_add,
};

/* ---- passwd --------------------------------------------------------------------------------- */

static int run_passwd(struct cli *cli)
{
    char password[PASSWORD_MAX + 2];
    struct user_facts facts = {.name = cli->arguments[0],
                               .database = user_database_of(cli),
                               .password = password,
                               .mechanisms = USER_MECHANISMS};
    bson_error_t error;
    truce_status status;
    int code = user_check(cli);

    if (!code)
        code = read_password(cli, password);
    if (!code)
        code = cli_store_open(cli, CLI_STORE_CHANGE, &cli->store);
    if (!code) {
        status = users_change(cli->store, &facts, &error);
        code = status ? cli_error(cli, NULL, status, &error) : user_answer(cli, "changed");
    }
    scram_wipe(password, sizeof password);
    return code;
}

static const struct cli_command cli_user_passwd = {
    .noun = "user",
    .verb = "passwd",
    .arguments = "NAME",
    .summary = "change a user's password",
    .help = "The password is read as by truce user add. Existing connections stay logged in, but\n"
            "HTTP clients need the new password, and the user's tokens are revoked.",
    .example = "echo 'correct horse battery' | truce user add ada --role root\n"
               "echo 'one that is not here' | truce user passwd ada",
    .options = (const struct cli_option[]){DATABASE_OPTION, {0}},
    .store = CLI_STORE_NONE,
    .run = run_passwd,
};

/* ---- remove --------------------------------------------------------------------------------- */

static int user_run_remove(struct cli *cli)
{
    bson_error_t error;
    truce_status status;
    int code = user_check(cli);

    if (code)
        return code;
    status = users_remove(cli->store, user_database_of(cli), cli->arguments[0], &error);
    return status ? cli_error(cli, NULL, status, &error) : user_answer(cli, "removed");
}

static const struct cli_command cli_user_remove = {
    .noun = "user",
    .verb = "remove",
    .arguments = "NAME",
    .summary = "remove a user",
    .help = "A running server closes the user's connections within a second.",
    .example = "echo 'correct horse battery' | truce user add ada --role root\n"
               "truce user remove ada",
    .options = (const struct cli_option[]){DATABASE_OPTION, {0}},
    .store = CLI_STORE_CHANGE,
    .run = user_run_remove,
};

/* ---- list ----------------------------------------------------------------------------------- */

static int user_run_list(struct cli *cli)
{
    bson_t *projection = BCON_NEW("_id", BCON_INT32(0), "user", BCON_INT32(1), "db", BCON_INT32(1),
                                  "roles", BCON_INT32(1));
    bson_t *sort = BCON_NEW("db", BCON_INT32(1), "user", BCON_INT32(1));
    const truce_find_options options = {.projection = projection, .sort = sort};
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status;
    int code = user_check_store(cli);

    if (!code) {
        status = truce_find(cli->store, USER_RECORDS, NULL, &options, &cursor, &error);
        code = cli_print_documents(cli, status, cursor, &error);
    }
    bson_destroy(projection);
    bson_destroy(sort);
    return code;
}

static const struct cli_command cli_user_list = {
    .noun = "user",
    .verb = "list",
    .summary = "list the users and their roles",
    .example = "echo 'correct horse battery' | truce user add ada --role root\n"
               "truce user list",
    .store = CLI_STORE_READ,
    .run = user_run_list,
};

/* ---- token ---------------------------------------------------------------------------------- */

/* Reads the duration of --expires, "90s", "15m", "24h", or "30d", as a time from now, or 0 if it is
 * not given. */
static bool user_read_expires(const struct cli *cli, int64_t *expires_ms)
{
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}};
    const char *text = cli_text(cli, "expires");
    int64_t number = 0, ms = 0;
    char label[CLI_LABEL_MAX];
    size_t digits;

    *expires_ms = 0;
    if (!text)
        return true;
    digits = strspn(text, "0123456789");
    for (size_t i = 0; i < digits && digits < 10; i++)
        number = number * 10 + (text[i] - '0');
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (text[digits] == units[i].unit && !text[digits + 1])
            ms = number * units[i].ms;
    cli_option_label(cli, "expires", label, sizeof label);
    if (ms <= 0 || ms > 3660 * INT64_C(86400000)) {
        cli_usage(cli,
                  "invalid %s \"%.40s\": expected a duration up to 3660d, for example 30d or 12h",
                  label, text);
        return false;
    }
    *expires_ms = truce__clock_wall_ms() + ms;
    return true;
}

/* Creates a token, prints it, and overwrites it in memory. */
static int user_add_token(const struct cli *cli, int64_t expires_ms)
{
    char token[TOKEN_MAX], id[TOKEN_ID_MAX];
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status = tokens_add(cli->store, user_database_of(cli), cli->arguments[0],
                                     expires_ms, token, id, &error);

    if (!status) {
        BCON_APPEND(&document, "token", BCON_UTF8(token), "id", BCON_UTF8(id), "user",
                    BCON_UTF8(cli->arguments[0]), "db", BCON_UTF8(user_database_of(cli)));
        if (expires_ms)
            BSON_APPEND_DATE_TIME(&document, "expires", expires_ms);
        cli_answer(cli, &document, "%s", token);
    }
    bson_destroy(&document);
    scram_wipe(token, sizeof token);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int user_run_token(struct cli *cli)
{
    const char *revoked = cli_text(cli, "revoke"), *database = user_database_of(cli);
    bool lists = cli_flag(cli, "list");
    int64_t expires_ms;
    bson_error_t error;
    truce_status status;
    bson_t tokens;
    int code = user_check(cli);

    if (code)
        return code;
    if ((revoked != NULL) + lists + (cli_text(cli, "expires") != NULL) > 1)
        return cli_usage(cli, "--expires, --list, and --revoke exclude each other");
    if (!user_read_expires(cli, &expires_ms))
        return CLI_USAGE;
    if (lists) {
        status = tokens_list(cli->store, database, cli->arguments[0], &tokens, &error);
        return cli_print_array(cli, status, &tokens, NULL, &error);
    }
    if (!revoked)
        return user_add_token(cli, expires_ms);
    status = tokens_revoke(cli->store, database, cli->arguments[0], revoked, &error);
    return status ? cli_error(cli, NULL, status, &error) : user_answer(cli, "revoked");
}

static const struct cli_command cli_user_token = {
    .noun = "user",
    .verb = "token",
    .arguments = "NAME",
    .summary = "create, list, or revoke a user's tokens for HTTP",
    .help = "Prints a new token. It is shown only now, because the store keeps a hash of it.\n"
            "HTTP clients send it as Authorization: Bearer TOKEN, and act as the user. A new\n"
            "password and the removal of the user revoke all of the user's tokens. A running\n"
            "server notices a revoked token within a second.",
    .example = "echo 'correct horse battery' | truce user add ada --role root\n"
               "truce user token ada --expires 30d\n"
               "truce user token ada --list",
    .options =
        (const struct cli_option[]){
            DATABASE_OPTION,
            {"expires", 0, "DURATION", "end of the token: 90s, 15m, 12h, 30d (default: never)",
             false},
            {"list", 0, NULL, "list the tokens: id, creation, and expiry", false},
            {"revoke", 0, "ID", "revoke the token with this id", false},
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = user_run_token,
};

cli_command_list cli_user_commands = {&cli_user_add,    &cli_user_list,  &cli_user_passwd,
                                      &cli_user_remove, &cli_user_token, NULL};
