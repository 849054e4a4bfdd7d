/* SCRAM by the examples of its RFCs, and invalid messages; SASLprep. */
#include <string.h>

#include "base/limits.h"
#include "server/auth/saslprep.h"
#include "server/auth/scram.h"
#include "tests/support/test.h"

struct example {
    enum scram_mechanism mechanism;
    const char *salt;
    const char *first, *half, *challenge, *final, *signature;
};

/* RFC 7677, section 3; RFC 5802, section 5. The password is "pencil". */
static const struct example examples[] = {
    {SCRAM_SHA_256, "W22ZaJ0SNY7soEsUEjb6gQ==", "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
     "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
     "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
     "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
     "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
     "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="},
    {SCRAM_SHA_1, "QSXCR+Q6sek8bf92", "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j",
     "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
     "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
     "v=rmF9pqV8S7suAoZWja4dJRkFsKQ="}};

static const char *first(struct scram *scram, const char *message)
{
    return scram_first(scram, (const uint8_t *)message, strlen(message));
}

static const char * final(const struct scram *scram, const char *message)
{
    char signature[64];

    return scram_final(scram, (const uint8_t *)message, strlen(message), signature);
}

static void begin(const struct example *example, struct scram *scram)
{
    memset(scram, 0, sizeof *scram);
    scram->credential =
        (struct scram_credential){.mechanism = example->mechanism, .iterations = 4096};
    REQUIRE(scram_unbase64_salt(example->salt, &scram->credential));
    scram_derive_prepared("pencil", &scram->credential);
    REQUIRE(!first(scram, example->first));
    scram_challenge(scram, example->half);
}

TEST(the_examples_of_the_rfcs_are_conversations)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *example = &examples[i];
        char signature[64];
        struct scram scram;

        begin(example, &scram);
        CHECK_TEXT("user", scram.name);
        CHECK_TEXT(example->challenge, scram.challenge);
        CHECK(!scram_final(&scram, (const uint8_t *)example->final, strlen(example->final),
                           signature));
        CHECK_TEXT(example->signature, signature);
    }
}

/* Each byte of the final message counts, except padding bits of Base64, which OpenSSL ignores. */
TEST(a_final_message_that_differs_in_a_byte_is_refused)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        size_t length = strlen(examples[i].final);
        struct scram scram;

        begin(&examples[i], &scram);
        for (size_t at = 0; at < length; at++) {
            char *changed = bson_strdup(examples[i].final);

            changed[at] = changed[at] == 'A' ? 'B' : 'A';
            if (!final(&scram, changed))
                test_fail(__FILE__, __LINE__, "taken: %s", changed);
            changed[at] = '\0';
            if (!final(&scram, changed))
                test_fail(__FILE__, __LINE__, "taken: %s", changed);
            bson_free(changed);
        }
    }
}

TEST(a_final_message_of_another_form_is_refused)
{
    static const char *const wrong[] = {
        "",
        "c=biws",
        "c=biws,r=NONCE",
        "c=biws,r=NONCE,p=",
        "c=biws,r=NONCE,p=====",
        "c=biws,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "c=eSws,r=NONCE,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "c=biws,r=NONCE,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=,m=x",
        "c=biws,r=NONCE,m=x,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "c=biws,r=NONCE,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    };
    struct scram scram;

    begin(&examples[1], &scram);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(wrong[i], "NONCE");
        char *message =
            at ? bson_strdup_printf("%.*s%s%s", (int)(at - wrong[i]), wrong[i], scram.nonce, at + 5)
               : bson_strdup(wrong[i]);

        if (!final(&scram, message))
            test_fail(__FILE__, __LINE__, "taken: %s", message);
        bson_free(message);
    }
}

TEST(parses_first_messages_and_refuses_invalid_ones)
{
    static const struct {
        const char *message, *name; /* NULL: refused */
    } cases[] = {
        {"n,,n=ada,r=x", "ada"},
        {"y,,n=ada,r=x", "ada"},
        {"n,,n=a=2Cb=3Dc,r=x", "a,b=c"},
        {"n,,n=ada,r=x,ext=1", "ada"},
        {"n,,n=a=b,r=x", NULL},
        {"n,,n=a=2,r=x", NULL},
        {"n,,n=a=,r=x", NULL},
        {"p=tls-unique,,n=ada,r=x", NULL},
        {"n,a=root,n=ada,r=x", NULL},
        {"n,,m=x,n=ada,r=x", NULL},
        {"n,,n=,r=x", NULL},
        {"n,,n=ada", NULL},
        {"n,,n=ada,r=", NULL},
        {"n,,n=ada,r=a b", NULL},
        {"n,,n=ada,r=\xc3\xa4", NULL},
        {"n,,n=\xff,r=x", NULL},
        {"n,,r=x,n=ada", NULL},
        {"n", NULL},
        {"", NULL},
    };
    char *long_name = bson_malloc0(1000);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scram scram = {0};
        const char *wrong = first(&scram, cases[i].message);

        if (!wrong != !!cases[i].name)
            test_fail(__FILE__, __LINE__, "\"%s\": %s", cases[i].message, wrong ? wrong : "taken");
        if (!wrong)
            CHECK_TEXT(cases[i].name, scram.name);
    }
    for (int length = 120; length < 600; length += 4) {
        struct scram scram = {0};

        memcpy(long_name, "n,,n=", 5);
        memset(long_name + 5, 'a', (size_t)length);
        strcpy(long_name + 5 + length, ",r=x");
        CHECK((first(&scram, long_name) == NULL) == (length <= SCRAM_NAME_MAX));
        memcpy(long_name, "n,,n=a,r=", 9);
        CHECK((first(&scram, long_name) == NULL) == (strlen(long_name) <= SCRAM_TEXT_MAX));
    }
    bson_free(long_name);
}

/* A first message with a zero in it is no text. */
TEST(a_zero_within_a_message_is_refused)
{
    struct scram scram = {0};

    CHECK(scram_first(&scram, (const uint8_t *)"n,,n=ada,r=x\0y", 14) != NULL);
}

TEST(a_nonce_is_new_each_time_and_a_salt_too)
{
    struct scram_credential one, other;
    bson_error_t error;
    struct scram scram;
    char nonce[600];

    begin(&examples[0], &scram);
    REQUIRE(!first(&scram, examples[0].first));
    scram_challenge(&scram, NULL);
    strcpy(nonce, scram.nonce);
    REQUIRE(!first(&scram, examples[0].first));
    scram_challenge(&scram, NULL);
    CHECK(strcmp(nonce, scram.nonce) != 0);
    CHECK_INT(strlen(nonce), ==, strlen("rOprNGfwEbeRWgbNEkqO") + 32);
    REQUIRE(!scram_make(SCRAM_SHA_256, "ada", "x", &one, &error));
    REQUIRE(!scram_make(SCRAM_SHA_256, "ada", "x", &other, &error));
    CHECK(memcmp(one.salt, other.salt, SCRAM_SALT_MAX) != 0);
    CHECK_INT(one.iterations, ==, 15000);
    REQUIRE(!scram_make(SCRAM_SHA_1, "ada", "x", &one, &error));
    CHECK_INT(one.iterations, ==, 10000);
    CHECK_INT(one.salt_size, ==, 16);
}

TEST(gives_an_unknown_user_a_constant_salt_and_no_password)
{
    const uint8_t secret[SCRAM_KEY_MAX] = {1, 2, 3};
    struct scram_credential one, again, other;

    scram_unknown_user(SCRAM_SHA_256, secret, "admin", "eve", &one);
    scram_unknown_user(SCRAM_SHA_256, secret, "admin", "eve", &again);
    scram_unknown_user(SCRAM_SHA_256, secret, "admin", "eva", &other);
    CHECK(!memcmp(one.salt, again.salt, one.salt_size));
    CHECK(memcmp(one.salt, other.salt, one.salt_size) != 0);
    CHECK(memcmp(one.stored_key, again.stored_key, SCRAM_KEY_MAX) != 0);
    CHECK_INT(one.iterations, ==, 15000);
}

TEST(a_password_has_a_maximum)
{
    char *password = bson_malloc0(TRUCE_PASSWORD_MAX + 2), *prepared;
    bson_error_t error = {0};

    memset(password, 'x', TRUCE_PASSWORD_MAX);
    CHECK_STATUS(TRUCE_OK, saslprep(password, &prepared, &error), error);
    CHECK_TEXT(password, prepared);
    bson_free(prepared);
    password[TRUCE_PASSWORD_MAX] = 'x';
    CHECK_INT(saslprep(password, &prepared, &error), ==, TRUCE_INVALID);
    CHECK_INT(error.code, ==, CODE_BAD_VALUE);
    CHECK(!prepared);
    bson_free(password);
}

TEST(passwords_are_prepared)
{
    static const struct {
        const char *password, *prepared; /* NULL: refused */
    } cases[] = {
        {"pencil", "pencil"},
        {" !\"~", " !\"~"},
        {"I\xc2\xadX", "IX"}, /* RFC 4013: a soft hyphen is nothing */
        {"a\xc2\xa0"
         "b",
         "a b"}, /* a space that does not break */
        {"a\xe3\x80\x80"
         "b",
         "a b"}, /* an ideographic one */
        {"gr\xc3\xbc\xc3\x9f"
         "e",
         "gr\xc3\xbc\xc3\x9f"
         "e"},
        {"\xd0\xbf\xd0\xb0\xd1\x80", "\xd0\xbf\xd0\xb0\xd1\x80"}, /* Cyrillic */
        {"\xe5\xaf\x86\xe7\xa0\x81", "\xe5\xaf\x86\xe7\xa0\x81"}, /* Han */
        {"user", "user"},
        {"USER", "USER"},          /* RFC 4013: case is kept */
        {"\xc2\xaa", "a"},         /* RFC 4013 */
        {"\xe2\x85\xa8", "IX"},    /* RFC 4013 */
        {"\xe2\x85\xa3", "IV"},    /* as the drivers' specification has it */
        {"I\xc2\xadV", "IV"},      /* the same */
        {"u\xcc\x88", "\xc3\xbc"}, /* a combining mark */
        {"\xef\xac\x81", "fi"},    /* a ligature */
        {"\xd8\xa7", "\xd8\xa7"},  /* from right to left */
        {"\xd8\xa7"
         "1\xd8\xa7",
         "\xd8\xa7"
         "1\xd8\xa7"},
        {"\xd8\xa7"
         "1",
         NULL}, /* RFC 4013: the end is not from right to left */
        {"\xd8\xa7"
         "a\xd8\xa7",
         NULL},                      /* in both directions */
        {"a\x07", NULL},             /* RFC 4013: a control character */
        {"a\xee\x80\x80", NULL},     /* private */
        {"a\xe2\x80\xae", NULL},     /* turns the direction */
        {"a\xf0\x9f\x98\x80", NULL}, /* not in Unicode 3.2 */
        {"\xf0\x9d\x90\x80", "A"},   /* beyond the first plane */
        {"\xf0\xa0\x80\x80", "\xf0\xa0\x80\x80"},
        {"\xff", NULL},
        {"", NULL},
        {"\xc2\xad", NULL}, /* nothing is left */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *prepared = NULL;
        bson_error_t error = {0};
        truce_status status = saslprep(cases[i].password, &prepared, &error);

        CHECK_INT(status, ==, cases[i].prepared ? TRUCE_OK : TRUCE_INVALID);
        if (cases[i].prepared)
            CHECK_TEXT(cases[i].prepared, prepared);
        else
            CHECK_INT(error.code, ==, CODE_BAD_VALUE);
        bson_free(prepared);
    }
}
