#include "bson/dotted_path.h"

#include "tests/support/test.h"

static struct path parse(const char *text)
{
    struct path path;
    bson_error_t error;

    CHECK_OK(truce__path_parse(text, strlen(text), &path, &error), error);
    return path;
}

static void check_part(const struct path *path, uint32_t number, const char *name, int64_t index)
{
    char copy[64];

    if (!CHECK_INT(number, <, path->count))
        return;
    snprintf(copy, sizeof copy, "%.*s", (int)path->parts[number].length, path->parts[number].name);
    CHECK_TEXT(name, copy);
    CHECK_INT(path->parts[number].index, ==, index);
}

TEST(a_path_splits_at_its_dots)
{
    struct path path = parse("a.0.bc");

    CHECK_INT(path.count, ==, 3);
    check_part(&path, 0, "a", -1);
    check_part(&path, 1, "0", 0);
    check_part(&path, 2, "bc", -1);
    CHECK_TEXT("a.0.bc", path.text);
    truce__path_release(&path);
}

TEST(empty_names_are_parts_too)
{
    struct path path = parse("a..b.");

    CHECK_INT(path.count, ==, 4);
    check_part(&path, 1, "", -1);
    check_part(&path, 3, "", -1);
    truce__path_release(&path);
    path = parse("");
    CHECK_INT(path.count, ==, 1);
    truce__path_release(&path);
}

TEST(only_plain_digits_are_an_index)
{
    struct path path = parse("17.007.1a.-1.+1.999999999999999999.1000000000000000000");

    check_part(&path, 0, "17", 17);
    check_part(&path, 1, "007", -1);
    check_part(&path, 2, "1a", -1);
    check_part(&path, 3, "-1", -1);
    check_part(&path, 4, "+1", -1);
    check_part(&path, 5, "999999999999999999", INT64_C(999999999999999999));
    check_part(&path, 6, "1000000000000000000", -1);
    truce__path_release(&path);
}

TEST(more_parts_than_the_maximum_are_refused)
{
    char text[2 * PATH_PARTS_MAX + 2];
    struct path path;
    bson_error_t error;

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? '.' : 'a';
    CHECK_OK(truce__path_parse(text, 2 * PATH_PARTS_MAX - 1, &path, &error), error);
    CHECK_INT(path.count, ==, PATH_PARTS_MAX);
    truce__path_release(&path);
    CHECK_STATUS(TRUCE_INVALID, truce__path_parse(text, 2 * PATH_PARTS_MAX + 1, &path, &error),
                 error);
    CHECK_INT(error.code, ==, CODE_OVERFLOW);
}

TEST(a_prefix_ends_at_a_dot)
{
    struct path a = parse("a.b"), b = parse("a.b.c"), c = parse("a.bc");

    CHECK(truce__path_is_prefix(&a, &b));
    CHECK(truce__path_is_prefix(&a, &a));
    CHECK(!truce__path_is_prefix(&a, &c));
    CHECK(!truce__path_is_prefix(&b, &a));
    truce__path_release(&a);
    truce__path_release(&b);
    truce__path_release(&c);
}
