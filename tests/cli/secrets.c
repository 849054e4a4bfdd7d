/* The program never prints the password of a store's URI, whatever the error is. */
#include <string.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

#define SECRET "S3cretXYZ"

/* wrong in many ways; no server listens at port 1 */
static const char *const uris[] = {
    "mongodb://u:" SECRET "@127.0.0.1:1/db",
    "mongodb://u:" SECRET "@127.0.0.1:1/db?authMechanism=PLAIN",
    "mongodb://u:" SECRET "@127.0.0.1:1/db?authMechanismProperties=AWS_SESSION_TOKEN:" SECRET
    "&authMechanism=MONGODB-AWS",
    "mongodb://u:x@127.0.0.1:1/db?tlsCertificateKeyFilePassword=" SECRET
    "&tlsCertificateKeyFile=/nowhere",
    "mongodb://u:x@127.0.0.1:1/db?tls=" SECRET,
    "mongodb://u:x@127.0.0.1:1/db?authMechanismProperties=" SECRET,
    "mongodb://u:" SECRET "@/db",
    "mongodb://u:" SECRET "@@127.0.0.1:1/db",
    "mongodb://u:x@" SECRET "@127.0.0.1:1/db",
    "mongodb://u:x@" SECRET "/y@127.0.0.1:1/db",
    "mongodb://u:x/" SECRET "@127.0.0.1:1/db",
    "mongodb://u:1/" SECRET ".x@127.0.0.1:1/db",
    "mongodb://u:" SECRET "%zz@127.0.0.1:1/db",
    "mongodb://u:" SECRET "?x@127.0.0.1:1/db",
    "mongodb://u:1/db?" SECRET "@127.0.0.1:1/db",
    "mongodb://u:1/db?" SECRET "=1@127.0.0.1:1/db",
    "mongodb://u:" SECRET "#x@127.0.0.1:1/db",
    "mongodb://u:" SECRET "[x@127.0.0.1:1/db",
    "mongodb://u:" SECRET "@127.0.0.1:99999/db",
    "mongodb://u:" SECRET "@127.0.0.1:1",
    "mongodb://u:" SECRET "@127.0.0.1:1/a b",
    "mongodb://u:" SECRET "@127.0.0.1:1/db?w=0",
    "mongodb://u:" SECRET "@127.0.0.1:1/db?replicaSet=",
    "mongodb://u:" SECRET ":127.0.0.1:1/db",
    "mongodb+srv://u:" SECRET "@127.0.0.1/db",
    "mongodb:/u:" SECRET "@127.0.0.1:1/db",
    "mongodb:u:" SECRET "@127.0.0.1:1/db",
    "mongo://u:" SECRET "@127.0.0.1:1/db",
    "MONGODB://u:" SECRET "@127.0.0.1:1/db",
    "http://u:" SECRET "@127.0.0.1:1/db",
    "u:" SECRET "@127.0.0.1:1/db",
    "some.name:" SECRET "@127.0.0.1:1/db",
    "user:" SECRET "@127.0.0.1:1/db",
    "://u:" SECRET "@127.0.0.1:1/db",
};

static void is_quiet(const char *uri, const char *what, const struct command *command)
{
    if (!command->code)
        test_fail(__FILE__, __LINE__, "%s %s is done", what, uri);
    if (strstr(command->out, SECRET) || strstr(command->err, SECRET))
        test_fail(__FILE__, __LINE__, "%s %s: %s%s", what, uri, command->out, command->err);
}

TEST(a_password_is_never_echoed)
{
    char store[400];

    snprintf(store, sizeof store, "%s/secrets.truce", test_directory());
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "c", "{_id: 1}", NULL)->code, ==, 0);
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        is_quiet(uris[i], "count",
                 command_run(TRUCE_CLI, uris[i], NULL, "count", "c", "--deadline", "50ms", NULL));
        if (i % 4)
            continue;
        is_quiet(uris[i], "insert",
                 command_run(TRUCE_CLI, NULL, NULL, "insert", "c", "{_id: 1}", "--json",
                             "--deadline", "50ms", "--store", uris[i], NULL));
        is_quiet(uris[i], "doctor",
                 command_run(TRUCE_CLI, uris[i], NULL, "doctor", "--slow", "1ms", "--deadline",
                             "50ms", NULL));
    }
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        is_quiet(
            uris[i], "copy to",
            command_run(TRUCE_CLI, NULL, NULL, "copy", store, uris[i], "--deadline", "50ms", NULL));
        is_quiet(uris[i], "copy from and to",
                 command_run(TRUCE_CLI, NULL, NULL, "copy", uris[i], uris[i], "--deadline", "50ms",
                             NULL));
    }
}
