#include "bson/timezone.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/forks.h"
/*
 * A zone is a list of transitions, and a rule for the time after the last one. A transition is an
 * instant and the offset from UTC that is valid from then on:
 *
 *     instants  ... | 2023-03-26 01:00 | 2023-10-29 01:00 | (rule: CET-1CEST,M3.5.0,M10.5.0/3)
 *     offsets  3600 |       7200       |       3600       |
 *
 * A compiled file has them twice, with 32-bit and with 64-bit instants. Only the second is read:
 *
 *     "TZif" version  counts   32-bit data   "TZif" version  counts   64-bit data   \n rule \n
 *
 * Each zone is read once and then kept in a list that only grows. The list has only names of
 * existing files, so it is not longer than the tz database. ZONES_MAX limits it if the directory
 * has other files, too.
 */

#define DIRECTORY       "/usr/share/zoneinfo"
#define HEADER_BYTES    44
#define FILE_BYTES_MAX  ((size_t)256 * 1024)
#define ZONES_MAX       2000
#define DAY_S           86400
#define OFFSET_S_MAX    (26 * 3600)
#define TRANSITIONS_MAX 2000

/* The date of a rule's change in each year. CHANGE_MONTH: day `day` (0: Sunday) of week `week`
 * (5: the last) of a month. CHANGE_JULIAN: the day of the year from 1 to 365, where 29 February
 * never counts. CHANGE_DAY: the day of the year from 0. */
struct change {
    enum { CHANGE_MONTH, CHANGE_JULIAN, CHANGE_DAY } kind;
    int month, week, day;
    /* The local time of day in seconds. It may be negative or exceed a day. */
    int32_t time_s;
};

struct rule {
    /* `given`: the file has a rule. `summer`: the rule has summer time. */
    bool given, summer;
    /* The offsets from UTC in seconds. */
    int32_t standard_s, summer_s;
    /* The beginning and the end of summer time. */
    struct change starts, ends;
};

struct time_zone {
    struct time_zone *next;
    char name[TIME_ZONE_NAME_MAX + 1];
    /* The transitions. From instants[i] on (in seconds since 1970), the offset is offsets[i]
     * seconds. */
    uint32_t count;
    int64_t *instants;
    int32_t *offsets;
    /* The offset before the first transition, in seconds. */
    int32_t first_offset;
    struct rule rule;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The list of all zones. The lock guards the list; a zone never changes. */
static struct time_zone *zones;
static unsigned zones_count;

/* -- the calendar ------------------------------------------------------------------------------ */

static int64_t timezone_floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Returns the days from 1970-01-01 to 1 January of the year. */
static int64_t days_before_year(int64_t year)
{
    int64_t before = year - 1;

    return 365 * (year - 1970) + (timezone_floor_divide(before, 4) - 492) -
           (timezone_floor_divide(before, 100) - 19) + (timezone_floor_divide(before, 400) - 4);
}

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int64_t year_of(int64_t utc_s)
{
    int64_t days = timezone_floor_divide(utc_s, DAY_S);
    int64_t year = 1970 + timezone_floor_divide(days * 400, 146097);

    while (days_before_year(year) > days)
        year--;
    while (days_before_year(year + 1) <= days)
        year++;
    return year;
}

static int days_before_month(int64_t year, int month)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

    return before[month - 1] + (month > 2 && is_leap(year));
}

/* Returns the local seconds since 1970 at which the change happens in that year. */
static int64_t change_in_year(const struct change *change, int64_t year)
{
    int64_t first = days_before_year(year), day;

    if (change->kind == CHANGE_JULIAN) {
        day = first + change->day - 1 + (is_leap(year) && change->day >= 60);
    } else if (change->kind == CHANGE_DAY) {
        day = first + change->day;
    } else {
        int64_t month = first + days_before_month(year, change->month);
        int64_t next = change->month == 12 ? days_before_year(year + 1)
                                           : first + days_before_month(year, change->month + 1);
        int weekday = (int)(((month + 4) % 7 + 7) % 7); /* 1970-01-01 was a Thursday. */
        day = month + (change->day - weekday + 7) % 7 + 7 * (change->week - 1);
        while (day >= next)
            day -= 7;
    }
    return day * DAY_S + change->time_s;
}

/* Returns the offset of a rule at an instant. South of the equator, summer time ends earlier in the
 * year than it starts. */
static int32_t rule_offset(const struct rule *rule, int64_t utc_s)
{
    int64_t year, starts, ends;
    bool summer;

    if (!rule->summer)
        return rule->standard_s;
    year = year_of(utc_s + rule->standard_s);
    starts = change_in_year(&rule->starts, year) - rule->standard_s;
    ends = change_in_year(&rule->ends, year) - rule->summer_s;
    if (starts < ends)
        summer = utc_s >= starts && utc_s < ends;
    else
        summer = utc_s >= starts || utc_s < ends;
    return summer ? rule->summer_s : rule->standard_s;
}

/* -- offsets ---------------------------------------------------------------------------------- */

int32_t truce__time_zone_offset(const struct time_zone *zone, int64_t utc_s)
{
    uint32_t low = 0, high = zone->count;

    if (zone->count == 0 || utc_s >= zone->instants[zone->count - 1]) {
        if (zone->rule.given)
            return rule_offset(&zone->rule, utc_s);
        return zone->count ? zone->offsets[zone->count - 1] : zone->first_offset;
    }
    /* A binary search for the first transition after utc_s. */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (zone->instants[middle] <= utc_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? zone->first_offset : zone->offsets[low - 1];
}

int64_t truce__time_zone_to_utc(const struct time_zone *zone, int64_t local_s)
{
    int32_t before = truce__time_zone_offset(zone, local_s - DAY_S);
    int32_t after = truce__time_zone_offset(zone, local_s + DAY_S);

    if (truce__time_zone_offset(zone, local_s - before) == before)
        return local_s - before;
    if (truce__time_zone_offset(zone, local_s - after) == after)
        return local_s - after;
    return local_s - before;
}

/* -- rules in text: "CET-1CEST,M3.5.0,M10.5.0/3" (POSIX, and RFC 8536 3.3.1) ------------------- */

struct text {
    const char *at, *end;
};

static bool timezone_skip_char(struct text *text, char c)
{
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

static bool timezone_read_number(struct text *text, int max, int *number)
{
    const char *first = text->at;

    for (*number = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        *number = *number * 10 + (*text->at - '0');
        if (*number > max)
            return false;
    }
    return text->at > first;
}

/* Skips a name: letters, or <+03> in angle brackets. */
static bool skip_name(struct text *text)
{
    const char *first = text->at;

    if (timezone_skip_char(text, '<')) {
        while (text->at < text->end && *text->at != '>')
            text->at++;
        return timezone_skip_char(text, '>');
    }
    while (text->at < text->end &&
           ((*text->at >= 'A' && *text->at <= 'Z') || (*text->at >= 'a' && *text->at <= 'z')))
        text->at++;
    return text->at > first;
}

/* Reads [+-]hh[:mm[:ss]]. */
static bool timezone_read_time(struct text *text, int32_t *seconds)
{
    bool negative = timezone_skip_char(text, '-');
    int hours, minutes = 0, rest = 0;

    if (!negative)
        (void)timezone_skip_char(text, '+'); /* The sign "+" is optional. */
    if (!timezone_read_number(text, 167, &hours))
        return false;
    if (timezone_skip_char(text, ':') && !timezone_read_number(text, 59, &minutes))
        return false;
    if (timezone_skip_char(text, ':') && !timezone_read_number(text, 59, &rest))
        return false;
    *seconds = hours * 3600 + minutes * 60 + rest;
    if (negative)
        *seconds = -*seconds;
    return true;
}

/* Reads a change such as M3.5.0/3, J60, or 59. Without a time, it happens at 2:00. */
static bool read_change(struct text *text, struct change *change)
{
    *change = (struct change){.kind = CHANGE_DAY, .time_s = 2 * 3600};
    if (timezone_skip_char(text, 'M')) {
        change->kind = CHANGE_MONTH;
        if (!timezone_read_number(text, 12, &change->month) || change->month == 0 ||
            !timezone_skip_char(text, '.') || !timezone_read_number(text, 5, &change->week) ||
            change->week == 0 || !timezone_skip_char(text, '.') ||
            !timezone_read_number(text, 6, &change->day))
            return false;
    } else if (timezone_skip_char(text, 'J')) {
        change->kind = CHANGE_JULIAN;
        if (!timezone_read_number(text, 365, &change->day) || change->day == 0)
            return false;
    } else if (!timezone_read_number(text, 365, &change->day)) {
        return false;
    }
    return !timezone_skip_char(text, '/') || timezone_read_time(text, &change->time_s);
}

/* Reads the rule for times after the last listed change. A rule counts offsets to the west. */
static bool timezone_read_rule(struct text text, struct rule *rule)
{
    *rule = (struct rule){.given = text.at < text.end};
    if (!rule->given)
        return true;
    if (!skip_name(&text) || !timezone_read_time(&text, &rule->standard_s))
        return false;
    rule->standard_s = -rule->standard_s;
    if (text.at == text.end)
        return true;
    rule->summer = true;
    rule->summer_s = -rule->standard_s - 3600;
    if (!skip_name(&text))
        return false;
    if (text.at < text.end && *text.at != ',' && !timezone_read_time(&text, &rule->summer_s))
        return false;
    rule->summer_s = -rule->summer_s;
    return timezone_skip_char(&text, ',') && read_change(&text, &rule->starts) &&
           timezone_skip_char(&text, ',') && read_change(&text, &rule->ends) && text.at == text.end;
}

/* -- compiled files --------------------------------------------------------------------------- */

static int64_t big_endian(const uint8_t *bytes, int count)
{
    uint64_t number = bytes[0] & 0x80 ? UINT64_MAX : 0;

    for (int i = 0; i < count; i++)
        number = number << 8 | bytes[i];
    return (int64_t)number;
}

/* The counts in a header, in their order. */
enum { COUNT_UTC, COUNT_STANDARD, COUNT_LEAP, COUNT_TIME, COUNT_TYPE, COUNT_TEXT, COUNTS };

/* Returns false if the header or its data is incomplete. */
static bool timezone_read_header(const uint8_t *bytes, size_t size, int snapshot_bytes,
                                 int64_t counts[COUNTS], size_t *data_bytes)
{
    if (size < HEADER_BYTES || memcmp(bytes, "TZif", 4) != 0)
        return false;
    for (int i = 0; i < COUNTS; i++) {
        counts[i] = big_endian(bytes + 20 + 4 * i, 4);
        if (counts[i] < 0 || counts[i] > (int64_t)FILE_BYTES_MAX)
            return false;
    }
    *data_bytes = (size_t)(counts[COUNT_TIME] * (snapshot_bytes + 1) + counts[COUNT_TYPE] * 6 +
                           counts[COUNT_TEXT] + counts[COUNT_LEAP] * (snapshot_bytes + 4) +
                           counts[COUNT_STANDARD] + counts[COUNT_UTC]);
    return size - HEADER_BYTES >= *data_bytes;
}

static bool read_offset(const uint8_t *types, int64_t count, unsigned type, int32_t *offset)
{
    if (type >= count)
        return false;
    *offset = (int32_t)big_endian(types + (size_t)6 * type, 4);
    return *offset > -OFFSET_S_MAX && *offset < OFFSET_S_MAX;
}

/* Reads the transitions from the 64-bit data. Returns false if they do not ascend or an offset is
 * invalid. */
static bool read_transitions(const uint8_t *data, const int64_t counts[COUNTS],
                             struct time_zone *zone)
{
    const uint8_t *types_used = data + counts[COUNT_TIME] * 8;
    const uint8_t *types = types_used + counts[COUNT_TIME];

    if (counts[COUNT_TYPE] == 0 || counts[COUNT_TIME] > TRANSITIONS_MAX)
        return false;
    if (!read_offset(types, counts[COUNT_TYPE], 0, &zone->first_offset))
        return false;
    zone->count = (uint32_t)counts[COUNT_TIME];
    zone->instants = bson_malloc0((zone->count + 1) * sizeof *zone->instants);
    zone->offsets = bson_malloc0((zone->count + 1) * sizeof *zone->offsets);
    for (uint32_t i = 0; i < zone->count; i++) {
        zone->instants[i] = big_endian(data + (size_t)8 * i, 8);
        if (i > 0 && zone->instants[i] <= zone->instants[i - 1])
            return false;
        if (!read_offset(types, counts[COUNT_TYPE], types_used[i], &zone->offsets[i]))
            return false;
    }
    return true;
}

/* Parses a compiled file: skips the 32-bit data, and reads the 64-bit data and the rule. */
static bool timezone_parse(const uint8_t *bytes, size_t size, struct time_zone *zone)
{
    int64_t counts[COUNTS];
    size_t data;
    struct text rule;

    if (!timezone_read_header(bytes, size, 4, counts, &data) || bytes[4] < '2')
        return false;
    bytes += HEADER_BYTES + data;
    size -= HEADER_BYTES + data;
    if (!timezone_read_header(bytes, size, 8, counts, &data))
        return false;
    if (!read_transitions(bytes + HEADER_BYTES, counts, zone))
        return false;
    rule.at = (const char *)bytes + HEADER_BYTES + data;
    rule.end = (const char *)bytes + size;
    if (!timezone_skip_char(&rule, '\n'))
        return false;
    rule.end = memchr(rule.at, '\n', (size_t)(rule.end - rule.at));
    return rule.end && timezone_read_rule(rule, &zone->rule);
}

truce_status truce__time_zone_parse(const uint8_t *bytes, size_t size, struct time_zone **zone,
                                    bson_error_t *error)
{
    *zone = bson_malloc0(sizeof **zone);
    if (timezone_parse(bytes, size, *zone))
        return TRUCE_OK;
    truce__time_zone_free(*zone);
    *zone = NULL;
    return truce__fail(TRUCE_CORRUPT, error, "not a compiled time zone of version 2 or later");
}

void truce__time_zone_free(struct time_zone *zone)
{
    if (!zone)
        return;
    bson_free(zone->instants);
    bson_free(zone->offsets);
    bson_free(zone);
}

/* -- finding ---------------------------------------------------------------------------------- */

/* Returns whether the name is one such as "Area/City", which cannot lead out of the directory. */
static bool is_name(const char *name, size_t length)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789_+-/";

    if (length == 0 || length > TIME_ZONE_NAME_MAX || name[0] == '/' || name[length - 1] == '/')
        return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '\0' || !strchr(allowed, name[i]))
            return false;
    }
    return true;
}

static struct time_zone *timezone_find_known(const char *name, size_t length)
{
    struct time_zone *zone = zones;

    while (zone && (strncmp(zone->name, name, length) || zone->name[length]))
        zone = zone->next;
    return zone;
}

/* Reads the file of a zone. Fails with NOT_FOUND if there is no such file, or if it cannot be a
 * zone. */
static truce_status timezone_read_file(const char *path, uint8_t **bytes, size_t *size,
                                       bson_error_t *error)
{
    struct stat about;
    truce_status status = TRUCE_OK;
    ssize_t got;
    int file = open(path, O_RDONLY | O_CLOEXEC);

    *bytes = NULL;
    if (file < 0 && (errno == ENOENT || errno == ENOTDIR))
        return truce__fail(TRUCE_NOT_FOUND, error, "unknown time zone \"%s\"", path);
    if (file < 0)
        return truce__fail(TRUCE_IO, error, "cannot open %s: %s", path, strerror(errno));
    if (fstat(file, &about) || !S_ISREG(about.st_mode) ||
        (uint64_t)about.st_size > FILE_BYTES_MAX) {
        status = truce__fail(TRUCE_NOT_FOUND, error, "%s is not a time zone file", path);
        goto out;
    }
    *bytes = bson_malloc((size_t)about.st_size + 1);
    got = read(file, *bytes, (size_t)about.st_size);
    if (got < 0)
        status = truce__fail(TRUCE_IO, error, "cannot read %s: %s", path, strerror(errno));
    *size = got < 0 ? 0 : (size_t)got;
out:
    close(file);
    return status;
}

/* Reads the file of a zone from the directory of time zones, or from that in TRUCE_ZONEINFO. */
static truce_status timezone_load(const char *name, size_t length, struct time_zone **zone,
                                  bson_error_t *error)
{
    const char *directory = getenv("TRUCE_ZONEINFO");
    char *path = bson_strdup_printf("%s/%.*s", directory && *directory ? directory : DIRECTORY,
                                    (int)length, name);
    uint8_t *bytes;
    size_t size = 0;
    truce_status status = timezone_read_file(path, &bytes, &size, error);

    *zone = NULL;
    if (!status)
        status = truce__time_zone_parse(bytes, size, zone, error);
    if (!status) {
        memcpy((*zone)->name, name, length);
        (*zone)->name[length] = '\0';
    }
    bson_free(bytes);
    bson_free(path);
    return status;
}

/* Finds a time zone in the list, or loads its file. The caller holds the lock. */
static truce_status find_or_load(const char *name, size_t length, struct time_zone **zone,
                                 bson_error_t *error)
{
    truce_status status;

    *zone = timezone_find_known(name, length);
    if (*zone)
        return TRUCE_OK;
    if (zones_count == ZONES_MAX)
        return truce__fail(TRUCE_LIMIT, error, "more than %d time zones are in use", ZONES_MAX);
    status = timezone_load(name, length, zone, error);
    if (status)
        return status;
    (*zone)->next = zones;
    zones = *zone;
    zones_count++;
    return TRUCE_OK;
}

static void timezone_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void timezone_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Makes a fork wait for the lock, so that the child does not inherit a list that is half
 * changed. */
__attribute__((constructor)) static void timezone_watch_forks(void)
{
    truce__forks_watch(timezone_before_fork, timezone_after_fork, timezone_after_fork);
}

truce_status truce__time_zone_find(const char *name, size_t length, const struct time_zone **zone,
                                   bson_error_t *error)
{
    struct time_zone *found;
    truce_status status;

    *zone = NULL;
    if (!is_name(name, length))
        return truce__fail(TRUCE_NOT_FOUND, error, "unknown time zone \"%.*s\"",
                           (int)BSON_MIN(length, TIME_ZONE_NAME_MAX), name);
    pthread_mutex_lock(&lock);
    status = find_or_load(name, length, &found, error);
    pthread_mutex_unlock(&lock);
    *zone = found;
    return status;
}
