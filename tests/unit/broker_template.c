/* URLs of brokers, and the templates that map messages. */
#include "broker/broker.h"
#include "broker/message_template.h"
#include "tests/support/test.h"

static truce_status read_url(const char *text, struct broker_address *address, char **copy,
                             bson_t *query, bson_error_t *error)
{
    *copy = bson_strdup(text);
    return truce__broker_address_read(*copy, query, address, error);
}

TEST(reads_the_parts_of_a_url)
{
    struct broker_address address;
    bson_error_t error = {0};
    bson_t query;
    char *copy;

    CHECK_OK(read_url("amqps://u%40x:p%3Aq@host:5671/v%2Fh/mail?cacert=/a%20b&key=k", &address,
                      &copy, &query, &error),
             error);
    CHECK_TEXT("amqps", address.scheme);
    CHECK_TEXT("u@x", address.user);
    CHECK_TEXT("p:q", address.password);
    CHECK_TEXT("host", address.host);
    CHECK_INT(address.port, ==, 5671);
    CHECK_INT(address.path_count, ==, 2);
    CHECK_TEXT("v/h", address.path[0]);
    CHECK_TEXT("mail", address.path[1]);
    bson_t *expected = test_bson("{'cacert': '/a b', 'key': 'k'}");
    CHECK_BSON(expected, &query);
    bson_destroy(expected);
    bson_destroy(&query);
    bson_free(copy);

    CHECK_OK(read_url("kafka://a:9092,b:9093/t", &address, &copy, &query, &error), error);
    CHECK_TEXT("a:9092,b:9093", address.host);
    CHECK_INT(address.port, ==, 0);
    bson_destroy(&query);
    bson_free(copy);

    CHECK_OK(read_url("amqp://[::1]:7/q", &address, &copy, &query, &error), error);
    CHECK_TEXT("::1", address.host);
    CHECK_INT(address.port, ==, 7);
    CHECK(!address.user);
    bson_destroy(&query);
    bson_free(copy);
}

TEST(refuses_a_wrong_url)
{
    static const char *const wrong[] = {"",
                                        "mail",
                                        "://h/q",
                                        "amqp:///q",
                                        "amqp://h:0/q",
                                        "amqp://h:99999/q",
                                        "amqp://h:5x/q",
                                        "amqp://h/q?a",
                                        "amqp://h/q?=b",
                                        "amqp://h/%zz",
                                        "amqp://h/%00",
                                        "amqp://h/%ff",
                                        "amqp://:5672/q",
                                        "amqp://u:p@/q",
                                        "amqp://[]/q",
                                        "amqp://u%@h/q",
                                        "amqp://[::1/q",
                                        "amqp://h/a/b/c/d/e",
                                        "amqp://h/\xff"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct broker_address address;
        bson_error_t error = {0};
        bson_t query;
        char *copy;

        if (!CHECK_STATUS(TRUCE_INVALID, read_url(wrong[i], &address, &copy, &query, &error),
                          error))
            fprintf(stderr, "%s\n", wrong[i]);
        bson_destroy(&query);
        bson_free(copy);
    }
}

TEST(an_unknown_broker_is_refused_by_name)
{
    const struct broker_ops *ops;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID, truce__broker_find("nats", &ops, &error), error);
    CHECK_TEXT("unknown broker \"nats\": expected amqp, amqps, or kafka", error.message);
}

/* ---- templates ------------------------------------------------------------------------------- */

#define MESSAGE                                                                                    \
    "{'body': {'a': 1, 'b': {'c': 'x'}, 'list': [1, 2]}, 'headers': {'x-seq': 7}, 'id': 'm1'}"

static const char *const names[] = {"body", "headers", "id", "key", NULL};

static void maps(const char *template, const char *expected_json)
{
    bson_t *source = test_bson(template), *message = test_bson(MESSAGE);
    bson_t *expected = test_bson(expected_json), result;
    struct template *compiled = NULL;
    struct arena arena = {0};
    bson_error_t error = {0};

    if (CHECK_OK(truce__template_new(source, false, names, &compiled, &error), error)) {
        CHECK_OK(truce__template_apply(compiled, message, &arena, &result, &error), error);
        CHECK_BSON(expected, &result);
        bson_destroy(&result);
    }
    truce__template_free(compiled);
    truce__arena_release(&arena);
    bson_destroy(source);
    bson_destroy(message);
    bson_destroy(expected);
}

TEST(a_template_takes_values_of_the_message)
{
    maps("{'k': '$body.a', 's': {'n': '$headers.x-seq'}, 'l': ['$id', 2]}",
         "{'k': 1, 's': {'n': 7}, 'l': ['m1', 2]}");
    maps("{'all': '$body.b'}", "{'all': {'c': 'x'}}");
    maps("{'e': {'$expr': {'$add': ['$body.a', 1]}}}", "{'e': 2}");
}

TEST(a_template_keeps_operators_and_literals)
{
    maps("{'with': {'$inc': {'n': '$body.a'}}}", "{'with': {'$inc': {'n': 1}}}");
    maps("{'a': {'$literal': '$body.a'}, 'b': {'$literal': {'c': '$x'}}}",
         "{'a': '$body.a', 'b': {'c': '$x'}}");
    maps("{'$set': {'$literal': 1, 'more': 2}}", "{'$set': {'$literal': 1, 'more': 2}}");
}

TEST(an_expression_without_a_value_leaves_its_field_out)
{
    maps("{'a': {'$expr': '$body.none'}, 'l': [1, {'$expr': '$body.none'}, 2]}", "{'l': [1, 2]}");
}

static void refuses(const char *template, const char *reason)
{
    bson_t *source = test_bson(template), *message = test_bson(MESSAGE), result;
    struct template *compiled = NULL;
    struct arena arena = {0};
    bson_error_t error = {0};
    truce_status status = truce__template_new(source, false, names, &compiled, &error);

    if (!status) {
        status = truce__template_apply(compiled, message, &arena, &result, &error);
        bson_destroy(&result);
    }
    CHECK_STATUS(TRUCE_INVALID, status, error);
    if (!strstr(error.message, reason))
        test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, reason);
    truce__template_free(compiled);
    truce__arena_release(&arena);
    bson_destroy(source);
    bson_destroy(message);
}

TEST(a_message_without_a_field_does_not_fit)
{
    refuses("{'a': '$body.none'}", "the message has no \"body.none\"");
    refuses("{'a': {'b': ['$headers.id']}}", "the message has no \"headers.id\"");
}

TEST(a_wrong_expression_is_refused)
{
    refuses("{'a': {'$expr': {'$nope': 1}}}", "'a'");
    refuses("{'a': '$'}", "'a'");
    refuses("{'a': {'$expr': {'$divide': ['$body.a', 0]}}}", "'a'");
}

TEST(a_path_that_fits_no_message_is_refused)
{
    bson_t *source = test_bson("{'a': {'b': ['$bdoy.a']}}");
    struct template *compiled = NULL;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID, truce__template_new(source, false, names, &compiled, &error),
                 error);
    CHECK_TEXT("field '0' of the mapping: the path \"$bdoy.a\" fits no message: a message has no "
               "field \"bdoy\", only body, headers, id, key: did you mean \"body\"?",
               error.message);
    CHECK(!compiled);
    CHECK_OK(truce__template_new(source, false, NULL, &compiled, &error), error);
    truce__template_free(compiled);
    bson_destroy(source);
    refuses("{'a': '$nope'}", "a message has no field \"nope\", only body, headers, id, key");
    refuses("{'a': {'$expr': '$Body.a'}}", "did you mean \"body\"?");
    refuses("{'a': '$5'}", "key; {\"$literal\": ...} is a string that begins with $");
    maps("{'a': {'$literal': '$nope'}, 'b': '$$ROOT.id'}", "{'a': '$nope', 'b': 'm1'}");
}

TEST(a_path_of_an_expression_that_fits_no_message_is_refused)
{
    refuses("{'a': {'$expr': {'$concat': ['$bdoy.x', 'a']}}}",
            "field 'a' of the mapping: the path \"$bdoy\" fits no message: a message has no field "
            "\"bdoy\", only body, headers, id, key: did you mean \"body\"?");
    refuses("{'a': {'$expr': {'$add': [1, '$$ROOT.nope.x']}}}", "no field \"nope\"");
    refuses("{'a': {'$expr': '$$CURRENT.nope'}}", "no field \"nope\"");
    refuses("{'a': {'$expr': {'$let': {'vars': {'v': '$nope'}, 'in': '$$v'}}}}",
            "no field \"nope\"");
    refuses(
        "{'a': {'$expr': {'$switch': {'branches': [{'case': {'$eq': ['$bdoy', 1]}, 'then': 2}], "
        "'default': 3}}}}",
        "no field \"bdoy\"");
    maps("{'a': {'$expr': {'$let': {'vars': {'CURRENT': '$body'}, 'in': {'$add': ['$a', 1]}}}},"
         " 'b': {'$expr': {'$map': {'input': ['$body'], 'as': 'one', 'in': '$$one.a'}}},"
         " 'c': {'$expr': {'$concat': [{'$literal': '$nope'}, '$id']}}}",
         "{'a': 2, 'b': [1], 'c': '$nopem1'}");
}

TEST(an_expression_next_to_other_fields_is_refused)
{
    refuses(
        "{'a': {'$expr': 1, 'b': 2}}",
        "field 'a' of the mapping has \"$expr\" next to other fields: it must be the only field "
        "of its document; {\"$literal\": {...}} is a document that has the field");
    refuses("{'l': [{'b': 2, '$expr': '$body.a'}]}", "\"$expr\" next to other fields");
    maps("{'a': {'$literal': {'$expr': 1, 'b': 2}}}", "{'a': {'$expr': 1, 'b': 2}}");
    maps("{'if': {'b': '$body.a', '$expr': {'$literal': {'$gt': ['$stock', 1]}}}}",
         "{'if': {'b': 1, '$expr': {'$gt': ['$stock', 1]}}}");
}
