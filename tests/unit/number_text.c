#include "bson/number.h"

#include <locale.h>
#include <math.h>

#include "tests/support/test.h"

/* Numbers as text and back. */

#define SHOWS(expected, number)                                                                    \
    do {                                                                                           \
        char shown[NUMBER_TEXT_MAX];                                                               \
        CHECK_TEXT(expected, truce__double_show(number, shown));                                   \
    } while (0)

TEST(doubles_are_shown_as_short_as_they_read_back)
{
    SHOWS("1.5", 1.5);
    SHOWS("0.1", 0.1);
    SHOWS("0.30000000000000004", 0.1 + 0.2);
    SHOWS("1e+21", 1e21);
    SHOWS("1e-07", 1e-7);
    SHOWS("-0", -0.0);
    SHOWS("NaN", NAN);
    SHOWS("-Infinity", -INFINITY);
    SHOWS("123456789.125", 123456789.125);
    SHOWS("5e-324", 5e-324);
}

TEST(integers_are_read_whole_or_not_at_all)
{
    static const char *const wrong[] = {"",
                                        "-",
                                        "+",
                                        " 5",
                                        "5 ",
                                        "0x10",
                                        "1.0",
                                        "1e3",
                                        "--1",
                                        "9223372036854775808",
                                        "-9223372036854775809"};
    int64_t number;

    CHECK(truce__int64_read("+5", 2, &number) && number == 5);
    CHECK(truce__int64_read("-007", 4, &number) && number == -7);
    CHECK(truce__int64_read("9223372036854775807", 19, &number) && number == INT64_MAX);
    CHECK(truce__int64_read("-9223372036854775808", 20, &number) && number == INT64_MIN);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (truce__int64_read(wrong[i], strlen(wrong[i]), &number))
            test_fail(__FILE__, __LINE__, "\"%s\" was read", wrong[i]);
    }
}

TEST(doubles_and_decimals_are_read_whole_or_not_at_all)
{
    static const char *const wrong[] = {"",   "-",     ".",    "1e",      "1e+", "0x10", " 1",
                                        "1 ", "1.2.3", "nanx", "infinit", "e5",  "1,5"};
    bson_decimal128_t decimal;
    double number;

    CHECK(truce__double_read("1.", 2, &number) && number == 1);
    CHECK(truce__double_read(".5", 2, &number) && number == 0.5);
    CHECK(truce__double_read("-1.5E+3", 7, &number) && number == -1500);
    CHECK(truce__double_read("nan", 3, &number) && isnan(number));
    CHECK(truce__double_read("-INF", 4, &number) && number == -INFINITY);
    CHECK(!truce__double_read("1e999", 5, &number));
    CHECK(!truce__double_read("1\0", 2, &number));
    CHECK(truce__decimal_read("1E+6000", 7, &decimal));
    CHECK(!truce__decimal_read("1E+7000", 7, &decimal));
    /* too close to 0: digits would be lost */
    CHECK(!truce__double_read("1e-400", 6, &number));
    CHECK(truce__double_read("0e-400", 6, &number) && number == 0);
    CHECK(!truce__decimal_read("1E-7000", 7, &decimal));
    CHECK(!truce__decimal_read("1.5E-6176", 9, &decimal));
    CHECK(truce__decimal_read("1E-6176", 7, &decimal));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (truce__double_read(wrong[i], strlen(wrong[i]), &number) ||
            truce__decimal_read(wrong[i], strlen(wrong[i]), &decimal))
            test_fail(__FILE__, __LINE__, "\"%s\" was read", wrong[i]);
    }
}

TEST(ignores_the_locale_of_the_process)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    double number;

    for (size_t i = 0; i < 3; i++)
        if (setlocale(LC_ALL, locales[i]))
            break;
    SHOWS("1.5", 1.5);
    CHECK(truce__double_read("1.5", 3, &number) && number == 1.5);
    setlocale(LC_ALL, "C");
}
