/*
 * Calls every function of the public headers with NULL for each argument but handles: names,
 * documents, callbacks, options, and out-pointers. The function may refuse the call, or do without
 * the argument, but a mistake in a call never ends the program.
 *
 * The functions and their arguments are read from the headers, so a new function is tried without a
 * change here. All of them take integers and pointers only, which one function type can pass.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/support/test.h"
#include "truce/queue.h"
#include "truce/store.h"

#define PARAMETERS_MAX  12
#define SECONDS         20
#define UNSUITED_MAX    4
#define MUST(condition) truce_assert(condition)

typedef intptr_t word;
typedef word any_function(word, word, word, word, word, word, word, word, word, word, word, word);

struct parameter {
    char type[100];
    bool pointer;
};

struct function {
    char name[100];
    struct parameter parameters[PARAMETERS_MAX];
    int count;
};

/* ---- the headers ----------------------------------------------------------------------------- */

static char *read_header(const char *name)
{
    char path[600], *text = bson_malloc0(200000);
    FILE *file;

    snprintf(path, sizeof path, TRUCE_SOURCE "/include/truce/%s.h", name);
    file = fopen(path, "re");
    MUST(file != NULL);
    MUST(fread(text, 1, 199999, file) > 0);
    fclose(file);
    for (char *at = strstr(text, "/*"); at; at = strstr(at, "/*")) { /* comments */
        char *end = strstr(at, "*/");

        MUST(end != NULL);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
    return text;
}

/* "const bson_t *filter" -> its type without the name */
static void read_parameter(const char *from, const char *to, struct parameter *parameter)
{
    size_t size = 0;

    while (from < to && isspace((unsigned char)*from))
        from++;
    parameter->pointer =
        memchr(from, '*', (size_t)(to - from)) || memchr(from, '[', (size_t)(to - from));
    while (to > from && (isalnum((unsigned char)to[-1]) || strchr("_[] ", to[-1])))
        to--; /* the name */
    if (!parameter->pointer)
        to = from;
    for (; from < to && size + 1 < sizeof parameter->type; from++)
        if (!isspace((unsigned char)*from) || (size && parameter->type[size - 1] != ' '))
            parameter->type[size++] = isspace((unsigned char)*from) ? ' ' : *from;
    parameter->type[size] = 0;
}

/* Reads the declaration that begins there; returns its end. False: there is no function. */
static const char *read_function(const char *at, struct function *function)
{
    const char *end = strchr(at, ';'), *open = strchr(at, '('), *name = open;
    int depth = 0;

    *function = (struct function){.name = ""};
    if (!end || !open || open > end)
        return end ? end : at + strlen(at);
    while (name > at && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
        name--;
    snprintf(function->name, sizeof function->name, "%.*s", (int)(open - name), name);
    for (const char *from = open + 1, *c = from; c < end; c++) {
        depth += *c == '(' ? 1 : *c == ')' ? -1 : 0;
        if ((*c == ',' && !depth) || depth < 0) {
            if (c > from && strncmp(from, "void)", 5) != 0) {
                MUST(function->count < PARAMETERS_MAX);
                read_parameter(from, c, &function->parameters[function->count++]);
            }
            from = c + 1;
        }
        if (depth < 0)
            break;
    }
    return end;
}

/* ---- the arguments --------------------------------------------------------------------------- */

static word nothing(void)
{
    return 0;
}

/* As a program finds it in the installed library. */
static any_function *find(const char *name)
{
    static void *library;
    any_function *function;

    if (!library)
        library = dlopen(TRUCE_SHARED, RTLD_NOW | RTLD_LOCAL);
    MUST(library != NULL);
    *(void **)&function = dlsym(library, name); /* as POSIX has it */
    return function;
}

static word call(const char *name, word a, word b, word c, word d, word e, word f)
{
    return find(name)(a, b, c, d, e, f, 0, 0, 0, 0, 0, 0);
}

static void *room_for_answers(void)
{
    static char room[PARAMETERS_MAX][8192];
    static int rooms;

    rooms = (rooms + 1) % PARAMETERS_MAX;
    memset(room[rooms], 0, sizeof room[rooms]);
    return room[rooms];
}

/* Returns an argument of the type. */
static word made_for(const char *type)
{
    /* handles, and how many names their options begin with */
    static const struct {
        const char *type;
        size_t names;
    } handles[] = {{"truce_queue", 1},    {"truce_set", 4},      {"truce_ledger", 1},
                   {"truce_tree", 1},     {"truce_item", 3},     {"truce_sync", 0},
                   {"truce_revision", 1}, {"truce_transfers", 1}};
    static truce_store *store;
    bson_error_t error;

    if (!store)
        MUST(!call("truce_store_open", (word) "memory:", 0, (word)&store, (word)&error, 0, 0));
    if (strstr(type, "_function *") || strchr(type, '('))
        return (word)nothing;
    if (!strcmp(type, "const char *"))
        return (word) "c";
    if (!strcmp(type, "const bson_t *"))
        return (word)test_bson("{'_id': 1}");
    if (!strcmp(type, "const bson_value_t *")) {
        static const bson_value_t one = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};

        return (word)&one;
    }
    if (!strcmp(type, "truce_store *"))
        return (word)store;
    if (!strcmp(type, "void *"))
        return 0;
    if (!strcmp(type,
                "truce_commit *")) { /* of a commit that was begun; other functions have NULL */
        truce_commit *commit = NULL;

        MUST(!call("truce_commit_begin", (word)store, 0, (word)&commit, (word)&error, 0, 0));
        return (word)commit;
    }
    if (!strcmp(type, "truce_cursor *")) {
        truce_cursor *cursor = NULL;

        MUST(!call("truce_find", (word)store, (word) "c", 0, 0, (word)&cursor, (word)&error));
        return (word)cursor;
    }
    if (strstr(type, "truce_tree_edit *") || strstr(type, "truce_tree_snapshot *")) {
        word tree = made_for("truce_tree *");
        void *made = NULL;

        if (strchr(strchr(type, '*') + 1, '*'))
            return (word)room_for_answers();
        if (strstr(type, "edit"))
            MUST(!call("truce_tree_begin", tree, 0, (word)&made, (word)&error, 0, 0));
        else {
            word edit = made_for("truce_tree_edit *"), item = (word)test_bson("{'itemId': 1}");

            MUST(!call("truce_tree_put", edit, item, (word)&error, 0, 0, 0));
            MUST(
                !call("truce_tree_publish", edit, 0, (word)room_for_answers(), (word)&error, 0, 0));
            MUST(!call("truce_tree_open", tree, 0, (word)&made, (word)&error, 0, 0));
        }
        return (word)made;
    }
    if (!strcmp(type, "truce_tree_import *"))
        return call("truce_tree_import_new", made_for("truce_tree *"), 0, 0, 0, 0, 0);
    if (strstr(type, "truce_job *") && !strstr(type, "**") && !strstr(type, "const")) {
        word queue = made_for("truce_queue *"), payload = made_for("const bson_t *");
        truce_job *job = NULL;

        MUST(!call("truce_queue_add", queue, 0, payload, 0, 0, (word)&error));
        MUST(!call("truce_queue_claim", queue, (word)&job, (word)&error, 0, 0, 0));
        return (word)job;
    }
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        char name[60];
        size_t length = strlen(handles[i].type);
        const char *names[1000] = {NULL};

        if (strncmp(type, handles[i].type, length) != 0 || strcmp(type + length, " *") != 0)
            continue;
        for (size_t j = 0; j < handles[i].names; j++)
            names[j] = "c";
        snprintf(name, sizeof name, "%s_new", handles[i].type);
        return call(name, (word)store, (word)names, 0, 0, 0, 0);
    }
    return (word)room_for_answers();
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Runs in a child process. `without`: the parameter that is NULL; -1: none. */
static void call_without(const struct function *function, int without)
{
    static bson_error_t error;
    word w[PARAMETERS_MAX] = {0};

    alarm(SECONDS);
    for (int i = 0; i < function->count; i++) {
        const struct parameter *parameter = &function->parameters[i];

        if (!parameter->pointer)
            w[i] = 1;
        else if (i && !strcmp(parameter->type, "truce_commit *"))
            continue; /* a call of its own */
        else if (i != without)
            w[i] = strcmp(parameter->type, "bson_error_t *") ? made_for(parameter->type)
                                                             : (word)&error;
    }
    (void)find(function->name)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10],
                               w[11]);
    _exit(0);
}

/* A handle is one that a function of truce made. The caller of every function has one, and NULL is
 * a bug. */
static bool is_handle(const struct parameter *parameter)
{
    static const char *const kinds[] = {
        "truce_store *",  "truce_commit *",        "truce_cursor *",    "truce_queue *",
        "truce_job *",    "truce_set *",           "truce_ledger *",    "truce_tree *",
        "truce_item *",   "truce_sync *",          "truce_revision *",  "truce_transfers *",
        "truce_pool *",   "truce_tree_snapshot *", "truce_tree_edit *", "truce_tree_import *",
        "truce_request *"};
    const char *type = parameter->type;

    type += strncmp(type, "const ", 6) ? 0 : 6;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i]))
            return true;
    return false;
}

/* Returns whether the call ended the program. */
static bool try_without(const struct function *function, int without)
{
    pid_t child;
    int status = 0;

    fflush(NULL);
    child = fork();
    if (!child) {
        (void)!freopen("/dev/null", "w", stderr);
        call_without(function, without);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child);
    if (without >= 0 && (WIFSIGNALED(status) || WEXITSTATUS(status)))
        test_fail(__FILE__, __LINE__, "%s: NULL for argument %d, %s, ends the program (%s %d)",
                  function->name, without + 1, function->parameters[without].type,
                  WIFSIGNALED(status) ? "signal" : "exit code",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return WIFSIGNALED(status) || WEXITSTATUS(status);
}

TEST(survives_null_for_every_argument_but_handles)
{
    static const char *const headers[] = {
        "changes",  "commit",  "compact",  "copy",   "cron",     "doctor", "hooks",
        "id",       "item",    "json",     "ledger", "pool",     "queue",  "request",
        "revision", "salvage", "sequence", "set",    "snapshot", "status", "store",
        "sweep",    "sync",    "transfer", "tree",   "version"};
    int functions = 0, unsuited = 0;

    MUST(!chdir(test_directory())); /* where calls make their files */

    for (size_t h = 0; h < sizeof headers / sizeof *headers; h++) {
        char *text = read_header(headers[h]);

        for (const char *at = strstr(text, "TRUCE_EXPORT"); at; at = strstr(at, "TRUCE_EXPORT")) {
            struct function function;

            at = read_function(at, &function);
            if (!function.name[0])
                continue;
            functions++;
            if (!find(function.name)) {
                test_fail(__FILE__, __LINE__, "%s is not there", function.name);
                continue;
            }
            if (try_without(&function, -1)) { /* these arguments do not suit it */
                unsuited++;
                printf("%s is not tried\n", function.name);
                continue;
            }
            for (int i = 0; i < function.count; i++)
                if (function.parameters[i].pointer && !is_handle(&function.parameters[i]))
                    try_without(&function, i);
        }
        bson_free(text);
    }
    CHECK_INT(functions, >, 200);
    CHECK_INT(unsuited, <=, UNSUITED_MAX);
}
