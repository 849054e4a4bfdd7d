#include "bson/timezone.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/test.h"

/* Time zones, from files made here byte for byte, and from the system's. */

#define DAY_S INT64_C(86400)

struct image {
    uint8_t bytes[2000];
    size_t size;
};

static void put(struct image *image, int64_t number, int count)
{
    for (int i = count - 1; i >= 0; i--)
        image->bytes[image->size++] = (uint8_t)((uint64_t)number >> (8 * i));
}

static void put_text(struct image *image, const char *text, size_t size)
{
    memcpy(image->bytes + image->size, text, size);
    image->size += size;
}

static void put_header(struct image *image, int64_t times, int64_t types)
{
    put_text(image, "TZif2", 5);
    for (int i = 0; i < 15; i++)
        put(image, 0, 1);
    put(image, 0, 4);
    put(image, 0, 4);
    put(image, 0, 4);
    put(image, times, 4);
    put(image, types, 4);
    put(image, 4, 4);
}

/* one hour east, two from 1000 on, one again from 2000 on, then by the rule */
static struct image make(const char *rule)
{
    struct image image = {.size = 0};

    put_header(&image, 0, 0);
    put_text(&image, "ABC", 4);
    put_header(&image, 2, 2);
    put(&image, 1000, 8);
    put(&image, 2000, 8);
    put(&image, 1, 1);
    put(&image, 0, 1);
    put(&image, 3600, 4);
    put(&image, 0, 2);
    put(&image, 7200, 4);
    put(&image, 256, 2);
    put_text(&image, "ABC", 4);
    put_text(&image, "\n", 1);
    put_text(&image, rule, strlen(rule));
    put_text(&image, "\n", 1);
    return image;
}

static struct time_zone *parse(const char *rule)
{
    struct image image = make(rule);
    struct time_zone *zone;
    bson_error_t error;

    CHECK_OK(truce__time_zone_parse(image.bytes, image.size, &zone, &error), error);
    return zone;
}

/* the time of a date, for readable tests */
static int64_t at(const char *date)
{
    char *text = bson_strdup_printf("{'d': {'$date': '%s'}}", date);
    bson_t *document = test_bson(text);
    bson_iter_t iter;
    int64_t moment;

    bson_iter_init_find(&iter, document, "d");
    moment = bson_iter_date_time(&iter) / 1000;
    bson_destroy(document);
    bson_free(text);
    return moment;
}

TEST(an_offset_holds_from_its_transition_on)
{
    struct time_zone *zone = parse("");

    REQUIRE(zone);
    CHECK_INT(truce__time_zone_offset(zone, INT64_MIN / 2), ==, 3600);
    CHECK_INT(truce__time_zone_offset(zone, 999), ==, 3600);
    CHECK_INT(truce__time_zone_offset(zone, 1000), ==, 7200);
    CHECK_INT(truce__time_zone_offset(zone, 1999), ==, 7200);
    CHECK_INT(truce__time_zone_offset(zone, 2000), ==, 3600);
    CHECK_INT(truce__time_zone_offset(zone, INT64_MAX / 2), ==, 3600);
    truce__time_zone_free(zone);
}

TEST(the_rule_holds_after_the_last_transition)
{
    struct time_zone *north = parse("CET-1CEST,M3.5.0,M10.5.0/3");
    struct time_zone *south = parse("<+10>-10<+11>,M10.1.0,M4.1.0/3");
    struct time_zone *plain = parse("EST5");
    struct time_zone *days = parse("A0B,J60/0,299/-1:30");

    REQUIRE(north && south && plain && days);
    CHECK_INT(truce__time_zone_offset(north, at("2020-03-29T00:59:59Z")), ==, 3600);
    CHECK_INT(truce__time_zone_offset(north, at("2020-03-29T01:00:00Z")), ==, 7200);
    CHECK_INT(truce__time_zone_offset(north, at("2020-10-25T00:59:59Z")), ==, 7200);
    CHECK_INT(truce__time_zone_offset(north, at("2020-10-25T01:00:00Z")), ==, 3600);
    CHECK_INT(truce__time_zone_offset(south, at("2021-04-03T15:59:59Z")), ==, 39600);
    CHECK_INT(truce__time_zone_offset(south, at("2021-04-03T16:00:00Z")), ==, 36000);
    CHECK_INT(truce__time_zone_offset(south, at("2021-10-02T16:00:00Z")), ==, 39600);
    CHECK_INT(truce__time_zone_offset(south, at("2021-12-31T23:00:00Z")), ==, 39600);
    CHECK_INT(truce__time_zone_offset(plain, at("2021-07-01T00:00:00Z")), ==, -5 * 3600);
    /* day 60 without 29 February is the first of March; 299 from 0 is 27 October, or 26 */
    CHECK_INT(truce__time_zone_offset(days, at("2021-02-28T23:59:59Z")), ==, 0);
    CHECK_INT(truce__time_zone_offset(days, at("2021-03-01T00:00:00Z")), ==, 3600);
    CHECK_INT(truce__time_zone_offset(days, at("2020-02-29T23:59:59Z")), ==, 0);
    CHECK_INT(truce__time_zone_offset(days, at("2020-03-01T00:00:00Z")), ==, 3600);
    CHECK_INT(truce__time_zone_offset(days, at("2021-10-26T21:29:59Z")), ==, 3600);
    CHECK_INT(truce__time_zone_offset(days, at("2021-10-26T21:30:00Z")), ==, 0);
    truce__time_zone_free(north);
    truce__time_zone_free(south);
    truce__time_zone_free(plain);
    truce__time_zone_free(days);
}

TEST(takes_the_first_of_two_local_times_and_moves_skipped_ones)
{
    struct time_zone *zone = parse("CET-1CEST,M3.5.0,M10.5.0/3");

    REQUIRE(zone);
    CHECK_INT(truce__time_zone_to_utc(zone, at("2020-07-01T12:00:00Z")), ==,
              at("2020-07-01T10:00:00Z"));
    CHECK_INT(truce__time_zone_to_utc(zone, at("2020-10-25T02:30:00Z")), ==,
              at("2020-10-25T00:30:00Z"));
    CHECK_INT(truce__time_zone_to_utc(zone, at("2020-10-25T03:00:00Z")), ==,
              at("2020-10-25T02:00:00Z"));
    CHECK_INT(truce__time_zone_to_utc(zone, at("2020-03-29T02:30:00Z")), ==,
              at("2020-03-29T01:30:00Z"));
    for (int64_t utc = at("2020-01-01T00:00:00Z"); utc < at("2020-10-01T00:00:00Z"); utc += 3599)
        CHECK_INT(truce__time_zone_to_utc(zone, utc + truce__time_zone_offset(zone, utc)), ==, utc);
    truce__time_zone_free(zone);
}

TEST(a_file_that_is_cut_off_or_wrong_is_refused)
{
    static const char *const rules[] = {"CET",
                                        "CET-1CEST",
                                        "CET-1CEST,M13.5.0,M10.5.0",
                                        "CET-1CEST,M3.5.0,M10.5.0x",
                                        "CET-1CEST,M3.0.0,M10.5.0",
                                        "-1",
                                        "CET-200",
                                        "A0B,J0,J1",
                                        "A0B,366,1"};
    struct image image = make("CET-1CEST,M3.5.0,M10.5.0/3");
    struct time_zone *zone;
    bson_error_t error;

    for (size_t size = 0; size < image.size; size++) {
        uint8_t *copy = malloc(size + 1); /* so that a sanitizer sees the end */
        memcpy(copy, image.bytes, size);
        CHECK_STATUS(TRUCE_CORRUPT, truce__time_zone_parse(copy, size, &zone, &error), error);
        CHECK(zone == NULL);
        free(copy);
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        image = make(rules[i]);
        if (!CHECK_STATUS(TRUCE_CORRUPT,
                          truce__time_zone_parse(image.bytes, image.size, &zone, &error), error))
            test_fail(__FILE__, __LINE__, "the rule was \"%s\"", rules[i]);
    }
    image = make("EST5");
    image.bytes[4] = '1'; /* no 64-bit part */
    CHECK_STATUS(TRUCE_CORRUPT, truce__time_zone_parse(image.bytes, image.size, &zone, &error),
                 error);
}

TEST(names_lead_nowhere_but_into_the_directory)
{
    static const char *const names[] = {"",       "/etc/passwd",  "../zoneinfo/UTC", "Europe/",
                                        "Europe", "Nowhere/City", "Europe/Berlin\n", "."};
    const struct time_zone *zone;
    bson_error_t error;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!CHECK_STATUS(TRUCE_NOT_FOUND,
                          truce__time_zone_find(names[i], strlen(names[i]), &zone, &error), error))
            test_fail(__FILE__, __LINE__, "the name was \"%s\"", names[i]);
        CHECK(zone == NULL);
    }
}

static void *find_many(void *arg)
{
    static const char *const names[] = {"Europe/Berlin", "America/New_York", "Asia/Kolkata",
                                        "Australia/Sydney"};
    const struct time_zone **zones = arg;

    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < 4; i++) {
            const struct time_zone *zone;
            if (truce__time_zone_find(names[i], strlen(names[i]), &zone, NULL) ||
                (round > 0 && zone != zones[i]))
                zone = NULL;
            zones[i] = zone;
        }
    }
    return NULL;
}

TEST(threads_share_one_copy_of_each_zone)
{
    const struct time_zone *zones[4][4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, find_many, zones[i]));
    for (int i = 0; i < 4; i++)
        REQUIRE(!pthread_join(threads[i], NULL));
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++)
            CHECK(zones[i][j] && zones[i][j] == zones[0][j]);
    }
}

TEST(the_systems_zones_agree_with_the_c_library)
{
    static const char *const names[] = {
        "Europe/Berlin",    "America/New_York", "Asia/Kolkata",
        "Australia/Sydney", "America/St_Johns", "Africa/Casablanca",
        "Europe/Dublin",    "Pacific/Apia",     "America/Sao_Paulo"};
    bson_error_t error;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct time_zone *zone;
        CHECK_OK(truce__time_zone_find(names[i], strlen(names[i]), &zone, &error), error);
        setenv("TZ", names[i], 1);
        tzset();
        for (int64_t moment = at("1900-01-01T00:00:00Z");
             zone && moment < at("2150-01-01T00:00:00Z"); moment += 11 * DAY_S + 3607) {
            time_t seconds = (time_t)moment;
            struct tm local;
            localtime_r(&seconds, &local);
            if (!CHECK_INT(truce__time_zone_offset(zone, moment), ==, local.tm_gmtoff)) {
                test_fail(__FILE__, __LINE__, "%s at %" PRId64, names[i], moment);
                break;
            }
        }
    }
    unsetenv("TZ");
}
