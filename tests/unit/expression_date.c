#include "tests/support/expression.h"
#include "tests/support/test.h"

/* Dates in expressions beyond the recorded vectors: zones of the tz database, and the operators of
 * MongoDB 5.0, with the examples of its manual. */

#define DATE(text) "{'$toDate': '" text "'}"
#define IS(text)   "{'$date': '" text "'}"

TEST(returns_the_parts_of_a_date_in_the_time_of_its_zone)
{
    EXPRESSION_GIVES("{'$hour': {'date': '$d', 'timezone': 'America/New_York'}}",
                     "{'d': {'$date': '2020-07-01T12:00:00Z'}}", "8");
    EXPRESSION_GIVES("{'$hour': {'date': '$d', 'timezone': 'America/New_York'}}",
                     "{'d': {'$date': '2020-01-01T12:00:00Z'}}", "7");
    EXPRESSION_GIVES("{'$dayOfMonth': {'date': '$d', 'timezone': 'Asia/Kolkata'}}",
                     "{'d': {'$date': '2020-01-31T20:00:00Z'}}", "1");
    /* far beyond the file's transitions: by its rule, on both halves of the earth */
    EXPRESSION_GIVES("{'$hour': {'date': '$d', 'timezone': 'Europe/Berlin'}}",
                     "{'d': {'$date': '2199-07-01T12:00:00Z'}}", "14");
    EXPRESSION_GIVES("{'$hour': {'date': '$d', 'timezone': 'Australia/Sydney'}}",
                     "{'d': {'$date': '2199-01-01T00:00:00Z'}}", "11");
    EXPRESSION_FAILS("{'$hour': {'date': '$d', 'timezone': 'Europe/Atlantis'}}",
                     "{'d': {'$date': '2199-07-01T12:00:00Z'}}", 40485);
    EXPRESSION_FAILS("{'$hour': {'date': '$d', 'timezone': '../zoneinfo/Europe/Berlin'}}",
                     "{'d': {'$date': '2199-07-01T12:00:00Z'}}", 40485);
    EXPRESSION_FAILS("{'$hour': {'date': '$d', 'timezone': 'Europe'}}",
                     "{'d': {'$date': '2199-07-01T12:00:00Z'}}", 40485);
}

TEST(builds_a_date_from_parts_in_the_time_of_its_zone)
{
    EXPRESSION_GIVES("{'$dateFromParts': {'year': 2016, 'month': 12, 'day': 31, 'hour': 23, "
                     "'minute': 46, 'second': 12, 'timezone': 'America/New_York'}}",
                     "{}", IS("2017-01-01T04:46:12Z"));
    /* a repeated hour is the first one; a skipped hour moves forward */
    EXPRESSION_GIVES("{'$dateFromParts': {'year': 2020, 'month': 10, 'day': 25, 'hour': 2, "
                     "'minute': 30, 'timezone': 'Europe/Berlin'}}",
                     "{}", IS("2020-10-25T00:30:00Z"));
    EXPRESSION_GIVES("{'$dateFromParts': {'year': 2020, 'month': 3, 'day': 29, 'hour': 2, "
                     "'minute': 30, 'timezone': 'Europe/Berlin'}}",
                     "{}", IS("2020-03-29T01:30:00Z"));
    EXPRESSION_GIVES("{'$dateFromParts': {'year': 2017, 'month': 14, 'day': 1, 'hour': 12}}", "{}",
                     IS("2018-02-01T12:00:00Z"));
    EXPRESSION_FAILS("{'$dateFromParts': {'year': 0}}", "{}", 40523);
    EXPRESSION_FAILS("{'$dateFromParts': {'year': 2020, 'day': 40000}}", "{}", 31034);
}

TEST(dates_are_written_with_the_offset_of_the_zone)
{
    EXPRESSION_GIVES("{'$dateToString': {'date': '$d', 'format': '%H:%M:%S:%L%z', "
                     "'timezone': 'America/New_York'}}",
                     "{'d': {'$date': '2014-01-01T08:15:39.736Z'}}", "'03:15:39:736-0500'");
    EXPRESSION_GIVES("{'$dateToString': {'date': '$d', 'format': '%H:%M:%S:%L%z', "
                     "'timezone': '+04:30'}}",
                     "{'d': {'$date': '2014-01-01T08:15:39.736Z'}}", "'12:45:39:736+0430'");
    EXPRESSION_GIVES("{'$dateToString': {'date': '$d', 'format': '%Z', 'timezone': "
                     "'America/New_York'}}",
                     "{'d': {'$date': '2014-01-01T08:15:39.736Z'}}", "'-300'");
    EXPRESSION_GIVES("{'$dateToString': {'date': '$d', 'timezone': 'America/New_York'}}",
                     "{'d': {'$date': '2014-01-01T08:15:39.736Z'}}", "'2014-01-01T03:15:39.736'");
    EXPRESSION_GIVES("{'$dateToString': {'date': '$d', 'format': '%b %B'}}",
                     "{'d': {'$date': '2014-05-01T08:15:39.736Z'}}", "'May May'");
}

TEST(text_of_many_forms_is_read_as_a_date)
{
    static const char *const noon[] = {
        "2020-02-29T12:00:00Z",
        "2020-02-29 12:00",
        "20200229T120000Z",
        "2020-060T12:00",
        "2020-W09-6T12:00:00.000",
        "2020W096T12:00",
        "February 29 2020 12:00",
        "29 Feb 2020 12:00 PM",
        "Sat, 29 Feb 2020 13:00:00 +0100",
        "Feb 29th, 2020 12 pm",
        "2/29/2020 12:00",
        "29-Feb-2020 07:00 EST",
        "29.02.2020 12:00",
        "2020-02-29T13:00 Europe/Berlin",
    };

    for (size_t i = 0; i < sizeof noon / sizeof *noon; i++) {
        char *expression = bson_strdup_printf("{'$dateFromString': {'dateString': '%s'}}", noon[i]);
        EXPRESSION_GIVES(expression, "{}", IS("2020-02-29T12:00:00Z"));
        bson_free(expression);
    }
}

TEST(refuses_a_string_that_is_not_a_complete_date)
{
    static const char *const wrong[] = {
        "",
        "2020",
        "12:00",
        "2020-02-30",
        "2020-02-29T25:00",
        "2020-02-29T12:61",
        "2019-366",
        "2020-W54-1",
        "2020-02-29 2020-02-29",
        "29 Febber 2020",
        "2020-02-29T12:00Q",
        "2020-02-29T12:00+1",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *expression =
            bson_strdup_printf("{'$dateFromString': {'dateString': '%s'}}", wrong[i]);
        EXPRESSION_FAILS(expression, "{}", 241);
        bson_free(expression);
    }
    EXPRESSION_GIVES("{'$dateFromString': {'dateString': '$a', 'onError': 'bad'}}", "{'a': 'x'}",
                     "'bad'");
}

TEST(a_zone_is_applied_to_text_without_one)
{
    EXPRESSION_GIVES("{'$dateFromString': {'dateString': '2017-02-08T12:10:40.787', "
                     "'timezone': 'America/New_York'}}",
                     "{}", IS("2017-02-08T17:10:40.787Z"));
    EXPRESSION_GIVES("{'$dateFromString': {'dateString': '08 Feb 2017', 'format': '%d %b %Y'}}",
                     "{}", IS("2017-02-08T00:00:00Z"));
    EXPRESSION_GIVES("{'$dateFromString': {'dateString': '2017-02-08 +60', 'format': "
                     "'%Y-%m-%d %Z'}}",
                     "{}", IS("2017-02-07T23:00:00Z"));
    EXPRESSION_GIVES("{'$dateFromString': {'dateString': '2020 060', 'format': '%Y %j'}}", "{}",
                     IS("2020-02-29T00:00:00Z"));
}

TEST(adding_months_stays_in_the_month_and_days_keep_the_clock)
{
    EXPRESSION_GIVES("{'$dateAdd': {'startDate': " DATE(
                         "2020-12-31T12:10:05Z") ", 'unit': 'month', 'amount': 2}}",
                     "{}", IS("2021-02-28T12:10:05Z"));
    EXPRESSION_GIVES("{'$dateAdd': {'startDate': " DATE(
                         "2020-02-29") ", 'unit': 'year', 'amount': {'$numberLong': '-1'}}}",
                     "{}", IS("2019-02-28T00:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateSubtract': {'startDate': " DATE("2021-01-31") ", 'unit': 'quarter', 'amount': 1}}",
        "{}", IS("2020-10-31T00:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateAdd': {'startDate': " DATE(
            "2021-03-13T15:00:00Z") ", 'unit': 'day', 'amount': 1, 'timezone': 'America/New_York'}}",
        "{}", IS("2021-03-14T14:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateAdd': {'startDate': " DATE(
            "2021-03-13T15:00:00Z") ", 'unit': 'hour', 'amount': 24, 'timezone': 'America/New_York'}}",
        "{}", IS("2021-03-14T15:00:00Z"));
    EXPRESSION_GIVES("{'$dateAdd': {'startDate': '$no', 'unit': 'hour', 'amount': 1}}", "{}",
                     "null");
    EXPRESSION_FAILS("{'$dateAdd': {'startDate': '$$NOW', 'unit': 'fortnight', 'amount': 1}}", "{}",
                     9);
    EXPRESSION_FAILS("{'$dateAdd': {'startDate': '$$NOW', 'unit': 'day', 'amount': 1.5}}", "{}",
                     5166405);
    EXPRESSION_FAILS("{'$dateAdd': {'startDate': '$$NOW', 'unit': 'day'}}", "{}", 5166402);
    EXPRESSION_FAILS("{'$dateAdd': {'startDate': '$$NOW', 'unit': 'year', 'amount': "
                     "{'$numberLong': '9223372036854775807'}}}",
                     "{}", 5166406);
    EXPRESSION_FAILS("{'$dateAdd': {'startDate': '$$NOW', 'unit': 'millisecond', 'amount': "
                     "{'$numberLong': '9223372036854775807'}}}",
                     "{}", 5166406);
}

TEST(a_difference_counts_the_boundaries_between_two_dates)
{
    EXPRESSION_GIVES(
        "{'$dateDiff': {'startDate': " DATE("2020-12-31T23:59:59Z") ", 'endDate': " DATE(
            "2021-01-01") ", 'unit': 'year'}}",
        "{}", "{'$numberLong': '1'}");
    EXPRESSION_GIVES(
        "{'$dateDiff': {'startDate': " DATE("2021-02-01T01:30:00Z") ", 'endDate': " DATE(
            "2021-02-01T00:59:00Z") ", 'unit': 'hour'}}",
        "{}", "{'$numberLong': '-1'}");
    /* with half an hour's offset the boundary lies elsewhere */
    EXPRESSION_GIVES(
        "{'$dateDiff': {'startDate': " DATE("2021-02-01T00:59:00Z") ", 'endDate': " DATE(
            "2021-02-01T01:10:00Z") ", 'unit': 'hour', 'timezone': '+05:30'}}",
        "{}", "{'$numberLong': '0'}");
    EXPRESSION_GIVES("{'$dateDiff': {'startDate': " DATE("2021-01-24") ", 'endDate': " DATE(
                         "2021-01-25") ", 'unit': 'week'}}",
                     "{}", "{'$numberLong': '0'}");
    EXPRESSION_GIVES("{'$dateDiff': {'startDate': " DATE("2021-01-24") ", 'endDate': " DATE(
                         "2021-01-25") ", 'unit': 'week', 'startOfWeek': 'Mon'}}",
                     "{}", "{'$numberLong': '1'}");
    EXPRESSION_GIVES(
        "{'$dateDiff': {'startDate': " DATE("2021-01-31T22:00:00Z") ", 'endDate': " DATE(
            "2021-01-31T23:30:00Z") ", 'unit': 'month', 'timezone': 'Europe/Berlin'}}",
        "{}", "{'$numberLong': '1'}");
    EXPRESSION_GIVES(
        "{'$dateDiff': {'startDate': " DATE("2021-01-31T22:00:00.010Z") ", 'endDate': " DATE(
            "2021-01-31T22:00:00.001Z") ", 'unit': 'millisecond'}}",
        "{}", "{'$numberLong': '-9'}");
    EXPRESSION_FAILS("{'$dateDiff': {'startDate': '$$NOW', 'endDate': 1, 'unit': 'day'}}", "{}",
                     5166307);
    EXPRESSION_FAILS("{'$dateDiff': {'startDate': '$$NOW', 'endDate': '$$NOW', 'unit': 'week', "
                     "'startOfWeek': 'Someday'}}",
                     "{}", 5439016);
}

TEST(a_date_is_cut_to_the_start_of_its_bin)
{
    EXPRESSION_GIVES("{'$dateTrunc': {'date': " DATE("2020-05-18T14:10:30Z") ", 'unit': 'hour'}}",
                     "{}", IS("2020-05-18T14:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateTrunc': {'date': " DATE(
            "2021-03-20T11:30:05Z") ", 'unit': 'week', 'binSize': 2, 'timezone': 'America/Los_Angeles', "
                                    "'startOfWeek': 'Monday'}}",
        "{}", IS("2021-03-15T07:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateTrunc': {'date': " DATE("2021-03-20T11:30:05Z") ", 'unit': 'month', 'binSize': 6}}",
        "{}", IS("2021-01-01T00:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateTrunc': {'date': " DATE("1999-12-31T11:30:05Z") ", 'unit': 'year', 'binSize': 4}}",
        "{}", IS("1996-01-01T00:00:00Z"));
    EXPRESSION_GIVES("{'$dateTrunc': {'date': " DATE("2021-03-20T11:30:05Z") ", 'unit': 'week'}}",
                     "{}", IS("2021-03-14T00:00:00Z"));
    EXPRESSION_GIVES("{'$dateTrunc': {'date': " DATE(
                         "2021-03-28T12:00:00Z") ", 'unit': 'day', 'timezone': 'Europe/Berlin'}}",
                     "{}", IS("2021-03-27T23:00:00Z"));
    EXPRESSION_GIVES(
        "{'$dateTrunc': {'date': " DATE(
            "2021-03-20T11:30:05Z") ", 'unit': 'minute', 'binSize': 20, 'timezone': '+00:30'}}",
        "{}", IS("2021-03-20T11:30:00Z"));
    EXPRESSION_FAILS("{'$dateTrunc': {'date': '$$NOW', 'unit': 'day', 'binSize': 0}}", "{}",
                     5439018);
    EXPRESSION_FAILS("{'$dateTrunc': {'date': '$$NOW', 'unit': 'week', 'binSize': "
                     "{'$numberLong': '9223372036854775807'}}}",
                     "{}", 5439006);
}

TEST(survives_the_limits_of_the_range_of_dates)
{
    static const char *const operators[] = {"$year", "$isoWeekYear", "$dayOfYear", "$hour"};
    static const char *const ends[] = {"9223372036854775807", "-9223372036854775808"};

    for (size_t i = 0; i < 2; i++) {
        char *document = bson_strdup_printf("{'d': {'$date': {'$numberLong': '%s'}}}", ends[i]);
        for (size_t j = 0; j < 4; j++) {
            char *expression = bson_strdup_printf(
                "{'$type': {'%s': {'date': '$d', 'timezone': 'Asia/Tokyo'}}}", operators[j]);
            EXPRESSION_GIVES(expression, document, j == 1 ? "'long'" : "'int'");
            bson_free(expression);
        }
        EXPRESSION_FAILS("{'$dateToString': {'date': '$d', 'format': '%Y'}}", document, 18537);
        EXPRESSION_GIVES("{'$type': {'$toString': '$d'}}", document, "'string'");
        bson_free(document);
    }
}
