#include "patterns/queue/cron_schedule.h"

#include <string.h>

#include "tests/support/test.h"

/* When cron lines fire. */

static int64_t ms_of(const char *text)
{
    bson_error_t error = {0};
    int64_t ms = 0;

    CHECK_OK(truce__date_parse(text, strlen(text), NULL, &ms, &error), error);
    return ms;
}

static void fires(const char *line, const char *zone, const char *after, const char *expected,
                  const char *file, int number)
{
    bson_error_t error = {0};
    struct schedule schedule;
    char text[DATE_TEXT_MAX];

    if (!test_check_status(0, truce__schedule_parse(line, zone, &schedule, &error), &error, line,
                           file, number))
        return;
    truce__date_show(truce__schedule_next(&schedule, ms_of(after)), text);
    test_check_text(expected, text, file, number);
}

#define FIRES(line, zone, after, expected)                                                         \
    fires(line, zone, after "Z", expected ".000Z", __FILE__, __LINE__)

TEST(a_line_fires_at_its_times)
{
    FIRES("0 3 * * *", NULL, "2026-01-01T02:59:59.999", "2026-01-01T03:00:00");
    FIRES("0 3 * * *", NULL, "2026-01-01T03:00:00", "2026-01-02T03:00:00");
    FIRES("*/15 * * * *", NULL, "2026-01-01T00:15:00", "2026-01-01T00:30:00");
    FIRES("*/15 * * * *", NULL, "2026-01-01T00:50:01", "2026-01-01T01:00:00");
    FIRES("10/20 * * * *", NULL, "2026-01-01T00:31:00", "2026-01-01T00:50:00");
    FIRES("5,7-9 1 * * *", NULL, "2026-01-01T01:05:00", "2026-01-01T01:07:00");
    FIRES("5,7-9 1 * * *", NULL, "2026-01-01T01:09:00", "2026-01-02T01:05:00");
    FIRES("*/7 * * * * *", NULL, "2026-01-01T00:00:56", "2026-01-01T00:01:00");
    FIRES("30 59 23 31 12 *", NULL, "2026-01-01T00:00:00", "2026-12-31T23:59:30");
    FIRES("0 9 * * MON-FRI", NULL, "2026-11-20T09:00:00", "2026-11-23T09:00:00");
    FIRES("0 0 1 jan,JUL *", NULL, "2026-01-01T00:00:00", "2026-07-01T00:00:00");
    FIRES("0 0 * * 7", NULL, "2026-11-22T00:00:00", "2026-11-29T00:00:00");
    FIRES("0 0 * * 0", NULL, "2026-11-22T00:00:00", "2026-11-29T00:00:00");
    FIRES("  0\t0 ? * sun ", NULL, "2026-11-22T00:00:00", "2026-11-29T00:00:00");
    FIRES("0 0 29 2 *", NULL, "2024-02-29T00:00:00", "2028-02-29T00:00:00");
    FIRES("0 0 31 * *", NULL, "2026-03-31T00:00:00", "2026-05-31T00:00:00");
    FIRES("0 0 1 1 *", NULL, "1969-06-01T00:00:00", "1970-01-01T00:00:00");
}

TEST(fires_if_either_restricted_day_field_matches)
{
    FIRES("0 0 13 * 5", NULL, "2026-11-22T00:00:00", "2026-11-27T00:00:00");
    FIRES("0 0 13 * 5", NULL, "2026-12-11T00:00:00", "2026-12-13T00:00:00");
    /* a step of "*" does not restrict the day, so both fields must match */
    FIRES("0 0 */2 * 5", NULL, "2026-11-27T00:00:00", "2026-12-11T00:00:00");
}

TEST(accepts_words_as_lines)
{
    FIRES("@hourly", NULL, "2026-01-01T00:00:00", "2026-01-01T01:00:00");
    FIRES("@daily", NULL, "2026-01-01T00:00:00", "2026-01-02T00:00:00");
    FIRES("@midnight", NULL, "2026-01-01T00:00:00", "2026-01-02T00:00:00");
    FIRES("@weekly", NULL, "2026-11-22T00:00:00", "2026-11-29T00:00:00");
    FIRES("@monthly", NULL, "2026-01-01T00:00:00", "2026-02-01T00:00:00");
    FIRES("@Yearly", NULL, "2026-01-01T00:00:00", "2027-01-01T00:00:00");
    FIRES("@every 90s", NULL, "2026-01-01T00:00:07", "2026-01-01T00:01:37");
    FIRES("@every 2h", NULL, "2026-01-01T23:00:00", "2026-01-02T01:00:00");
}

TEST(a_line_for_some_hours_follows_the_local_time_of_its_zone)
{
    FIRES("0 3 * * *", "Europe/Berlin", "2026-01-01T00:00:00", "2026-01-01T02:00:00");
    FIRES("0 3 * * *", "Europe/Berlin", "2026-07-01T00:00:00", "2026-07-01T01:00:00");
    FIRES("0 3 * * *", "+05:30", "2026-07-01T00:00:00", "2026-07-01T21:30:00");
    FIRES("0 0 1 * *", "Pacific/Auckland", "2026-07-01T00:00:00", "2026-07-31T12:00:00");
    /* 02:30 is skipped: at the change, once */
    FIRES("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00");
    FIRES("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00", "2026-03-30T00:30:00");
    FIRES("0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29T00:59:00", "2026-03-29T01:00:00");
    FIRES("0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29T01:00:00", "2026-03-29T01:20:00");
    /* 02:30 is shown twice: the first time only */
    FIRES("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00", "2026-10-25T00:30:00");
    FIRES("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00");
    FIRES("30 2,3 * * *", "Europe/Berlin", "2026-10-25T01:10:00", "2026-10-25T02:30:00");
    /* midnight is skipped */
    FIRES("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00", "2026-09-06T04:00:00");
    /* a day is skipped: the clocks of Samoa went from the 29th of December 2011 to the 31st */
    FIRES("0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00", "2011-12-30T10:00:00");
}

TEST(a_line_for_all_hours_follows_elapsed_time)
{
    FIRES("30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-25T01:30:00");
    FIRES("30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00", "2026-03-29T01:30:00");
    FIRES("*/20 * * * *", "Asia/Kathmandu", "2026-01-01T00:00:00", "2026-01-01T00:15:00");
    FIRES("0 * * * 1", "Europe/Berlin", "2026-11-23T23:00:00", "2026-11-29T23:00:00");
}

/* Compares a line with a loop that checks the clocks at every second. */
static void compare(const char *line, const char *zone, const char *from, int64_t hours)
{
    bson_error_t error = {0};
    struct schedule schedule;
    int64_t start = ms_of(from), at = start;
    int differences = 0;

    CHECK_OK(truce__schedule_parse(line, zone, &schedule, &error), error);
    for (int64_t ms = start + 1000; ms <= start + hours * 3600000; ms += 1000) {
        struct date_parts parts;
        bool fires;

        truce__date_split(ms, &schedule.zone, &parts);
        fires = parts.second == 0 && schedule.minute >> parts.minute & 1 &&
                schedule.hour >> parts.hour & 1 && schedule.weekday >> parts.day_of_week & 1;
        differences += fires != (truce__schedule_next(&schedule, at) == ms);
        if (fires)
            at = ms;
    }
    CHECK_INT(differences, ==, 0);
}

TEST(agrees_with_a_check_of_every_second)
{
    compare("*/7 * * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 8);
    compare("*/7 * * * *", "Europe/Berlin", "2026-03-28T22:00:00Z", 8);
    compare("5 */3 * * 1-3", "Australia/Lord_Howe", "2026-07-04T00:00:00Z", 24 * 2);
}

TEST(counts_missed_times_from_the_end)
{
    int64_t ticks[100];
    bson_error_t error = {0};
    struct schedule schedule;
    bool left;

    CHECK_OK(truce__schedule_parse("0 3 * * *", NULL, &schedule, &error), error);
    CHECK_INT(truce__schedule_between(&schedule, ms_of("2026-01-01T03:00:00Z"),
                                      ms_of("2026-01-10T12:00:00Z"), 100, ticks, &left),
              ==, 10);
    CHECK(!left);
    CHECK_INT(ticks[0], ==, ms_of("2026-01-01T03:00:00Z"));
    CHECK_INT(ticks[9], ==, ms_of("2026-01-10T03:00:00Z"));
    CHECK_INT(truce__schedule_between(&schedule, ms_of("2026-01-01T03:00:00Z"),
                                      ms_of("2026-01-10T12:00:00Z"), 3, ticks, &left),
              ==, 3);
    CHECK(left);
    for (int i = 0; i < 3; i++)
        CHECK_INT(ticks[i], ==, ms_of("2026-01-08T03:00:00Z") + i * INT64_C(86400000));
    CHECK_OK(truce__schedule_parse("* * * * * *", NULL, &schedule, &error), error);
    CHECK_INT(truce__schedule_between(&schedule, ms_of("1990-01-01T00:00:00Z"),
                                      ms_of("2026-01-01T00:00:00Z"), 1, ticks, &left),
              ==, 1); /* a thousand million seconds, at once */
    CHECK_INT(ticks[0], ==, ms_of("2026-01-01T00:00:00Z"));
    CHECK_OK(truce__schedule_parse("@every 7s", NULL, &schedule, &error), error);
    CHECK_INT(truce__schedule_between(&schedule, 1000, 100000, 3, ticks, &left), ==, 3);
    CHECK(left);
    CHECK_INT(ticks[2], ==, 99000);
    CHECK_INT(ticks[0], ==, 85000);
    CHECK_INT(truce__schedule_between(&schedule, 1000, 999, 3, ticks, &left), ==, 0);
}

static void refused(const char *line, const char *zone, const char *part, const char *file,
                    int number)
{
    bson_error_t error = {0};
    struct schedule schedule;

    test_check_status(TRUCE_INVALID, truce__schedule_parse(line, zone, &schedule, &error), &error,
                      line, file, number);
    if (!strstr(error.message, part))
        test_check_text(part, error.message, file, number);
}

#define REFUSED(line, zone, part) refused(line, zone, part, __FILE__, __LINE__)

TEST(a_line_that_is_wrong_is_refused_by_its_field)
{
    char much[300];

    REFUSED("", NULL, "five fields");
    REFUSED("* * * *", NULL, "five fields");
    REFUSED("* * * * * * *", NULL, "five fields");
    REFUSED("60 * * * *", NULL, "invalid minute \"60\"");
    REFUSED("* 24 * * *", NULL, "invalid hour \"24\"");
    REFUSED("* * 0 * *", NULL, "invalid day \"0\"");
    REFUSED("* * * 13 *", NULL, "invalid month \"13\"");
    REFUSED("* * * * 8", NULL, "invalid weekday \"8\"");
    REFUSED("60 * * * * *", NULL, "invalid second \"60\"");
    REFUSED("5-1 * * * *", NULL, "invalid minute \"5-1\"");
    REFUSED("1,,2 * * * *", NULL, "invalid minute");
    REFUSED("1, * * * *", NULL, "invalid minute");
    REFUSED("*/0 * * * *", NULL, "invalid minute");
    REFUSED("*/ * * * *", NULL, "invalid minute");
    REFUSED("1x * * * *", NULL, "invalid minute");
    REFUSED("-1 * * * *", NULL, "invalid minute");
    REFUSED("99999999999999999999 * * * *", NULL, "invalid minute");
    REFUSED("* * * jam *", NULL, "invalid month");
    REFUSED("* * L * *", NULL, "invalid day \"L\"");
    REFUSED("0 0 30 2 *", NULL, "never fires");
    REFUSED("0 0 31 4,6,9,11 *", NULL, "never fires");
    REFUSED("@every", NULL, "@every");
    REFUSED("@every 0s", NULL, "@every");
    REFUSED("@every 5", NULL, "@every");
    REFUSED("@every 5w", NULL, "@every");
    REFUSED("@every 99999999999999999999d", NULL, "@every");
    REFUSED("@noon", NULL, "five fields");
    REFUSED("0 3 * * *", "Europe/Atlantis", "Europe/Atlantis");
    REFUSED("0 3 * * *", "../../etc/passwd", "unknown time zone");
    memset(much, '*', sizeof much - 1);
    much[sizeof much - 1] = '\0';
    REFUSED(much, NULL, "at most");
}
