/*
 * Schedules of cron lines.
 *
 *     minute hour day month weekday           * /n lists a,b ranges a-b a-b/n names JAN MON
 *     second minute hour day month weekday
 *     @hourly @daily @midnight @weekly @monthly @yearly @annually     @every 90s (s, m, h, d)
 *
 * The rules are those of Vixie's cron. If both days are restricted, a day fires when one of them
 * matches. Sunday is 0 and 7. When the clocks change, a line for all hours follows real time, as if
 * the clocks did not change. A line for some hours follows the clocks. Times that the clocks skip
 * fire once, at the change. Times that the clocks show twice fire only the first time.
 */
#include "patterns/queue/cron_schedule.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS INT64_C(60000)
#define HOUR_MS   INT64_C(3600000)
#define DAY_MS    INT64_C(86400000)
/* A search for the next time ends after this number of days. A line for the 29th of February of one
 * weekday fires at least once in 40 years, except around 2100. */
#define DAYS_MAX  (366 * 41)
#define ALL_HOURS 0xffffffu

/* ---- reading --------------------------------------------------------------------------------- */

struct field {
    const char *name;
    int low, high;
    /* The names of the values from `low`, three letters each, or NULL. */
    const char *names;
};

static const struct field fields[] = {
    {"second", 0, 59, NULL},
    {"minute", 0, 59, NULL},
    {"hour", 0, 23, NULL},
    {"day", 1, 31, NULL},
    {"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
    {"weekday", 0, 7, "sunmontuewedthufrisat"},
};

static truce_status schedule_refuse(const struct field *field, const char *text, size_t length,
                                    bson_error_t *error)
{
    return truce__fail(
        TRUCE_INVALID, error,
        "invalid %s \"%.*s\" in the cron line: expected numbers from %d to %d, \"*\", "
        "lists a,b, ranges a-b, or steps */n",
        field->name, (int)(length < 40 ? length : 40), text, field->low, field->high);
}

static bool schedule_read_number(const char **at, const char *end, int *value)
{
    const char *start = *at;

    for (*value = 0; *at < end && isdigit((unsigned char)**at) && *at - start < 4; ++*at)
        *value = *value * 10 + (**at - '0');
    return *at > start;
}

static bool schedule_read_value(const struct field *field, const char **at, const char *end,
                                int *value)
{
    if (schedule_read_number(at, end, value))
        return *value >= field->low && *value <= field->high;
    for (int i = 0; field->names && field->names[3 * i] && end - *at >= 3; i++) {
        if (!strncasecmp(*at, field->names + 3 * i, 3)) {
            *at += 3;
            *value = field->low + i;
            return true;
        }
    }
    return false;
}

/* Reads one element of a list: *, *\/n, a, a-b, a-b/n, or a/n (from a to the end). */
static bool schedule_read_part(const struct field *field, const char *at, const char *end,
                               uint64_t *bits)
{
    int low = field->low, high = field->high, step = 1;

    if (at < end && (*at == '*' || *at == '?')) {
        at++;
    } else {
        if (!schedule_read_value(field, &at, end, &low))
            return false;
        high = at < end && *at == '/' ? field->high : low;
        if (at < end && *at == '-') {
            at++;
            if (!schedule_read_value(field, &at, end, &high) || high < low)
                return false;
        }
    }
    if (at < end && *at == '/') {
        at++;
        if (!schedule_read_number(&at, end, &step) || !step)
            return false;
    }
    for (int i = low; i <= high; i += step)
        *bits |= UINT64_C(1) << i;
    return at == end;
}

/* Reads one field of a cron line, a list of parts, into a bit set. Sets *any if it is a
 * wildcard. */
static truce_status schedule_read_field(const struct field *field, const char *text, size_t length,
                                        uint64_t *bits, bool *any, bson_error_t *error)
{
    const char *end = text + length;

    *bits = 0;
    *any = *text == '*' || *text == '?';
    for (const char *part = text; part <= end;) {
        const char *comma = memchr(part, ',', (size_t)(end - part));

        if (!schedule_read_part(field, part, comma ? comma : end, bits))
            return schedule_refuse(field, text, length, error);
        part = comma ? comma + 1 : end + 1;
    }
    return TRUCE_OK;
}

/* Splits a line into words. More than six words are counted but not returned. */
static size_t schedule_split(const char *line, const char *words[6], size_t lengths[6])
{
    size_t count = 0;

    for (;;) {
        line += strspn(line, " \t");
        if (!*line)
            return count;
        if (count < 6) {
            words[count] = line;
            lengths[count] = strcspn(line, " \t");
        }
        count++;
        line += strcspn(line, " \t");
    }
}

/* Reads the five or six fields of a cron line into bit sets. */
static truce_status schedule_read_fields(const char *line, struct schedule *schedule,
                                         bson_error_t *error)
{
    const char *words[6];
    size_t lengths[6], count = schedule_split(line, words, lengths), skipped = count == 5;
    uint64_t bits[6] = {1}; /* With five fields, the second is 0. */
    bool any[6];
    truce_status status = TRUCE_OK;

    if (count < 5 || count > 6)
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid cron line \"%.*s\": expected five fields (minute hour day month weekday), "
            "six fields with the second first, or \"@every 10m\", \"@hourly\", \"@daily\", "
            "\"@weekly\", \"@monthly\", or \"@yearly\"",
            SCHEDULE_TEXT_MAX, line);
    for (size_t i = skipped; i < 6 && !status; i++)
        status = schedule_read_field(&fields[i], words[i - skipped], lengths[i - skipped], &bits[i],
                                     &any[i], error);
    if (status)
        return status;
    schedule->second = bits[0];
    schedule->minute = bits[1];
    schedule->hour = (uint32_t)bits[2];
    schedule->day = (uint32_t)bits[3];
    schedule->month = (uint32_t)bits[4];
    schedule->weekday = (uint32_t)((bits[5] | bits[5] >> 7) & 0x7f);
    schedule->any_day = any[3];
    schedule->any_weekday = any[5];
    return TRUCE_OK;
}

/* Reads the interval of @every. */
static truce_status schedule_read_every(const char *text, struct schedule *schedule,
                                        bson_error_t *error)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"s", SECOND_MS}, {"m", MINUTE_MS}, {"h", HOUR_MS}, {"d", DAY_MS}};
    const char *at = text + strspn(text, " \t");
    int64_t number = 0;

    for (; isdigit((unsigned char)*at) && number < 1000000; at++)
        number = number * 10 + (*at - '0');
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (number && number <= 1000000 && !strcmp(at, units[i].unit)) {
            schedule->every_ms = number * units[i].ms;
            return TRUCE_OK;
        }
    }
    return truce__fail(
        TRUCE_INVALID, error,
        "invalid interval \"%.40s\" after \"@every\": expected a number and s, m, h, or d, "
        "for example \"@every 90s\"",
        text);
}

/* Returns the line that a word such as @daily means, or the line itself. */
static const char *schedule_expand(const char *line)
{
    static const char *const words[][2] = {{"@hourly", "0 * * * *"},   {"@daily", "0 0 * * *"},
                                           {"@midnight", "0 0 * * *"}, {"@weekly", "0 0 * * 0"},
                                           {"@monthly", "0 0 1 * *"},  {"@yearly", "0 0 1 1 *"},
                                           {"@annually", "0 0 1 1 *"}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strcasecmp(line, words[i][0]))
            return words[i][1];
    }
    return line;
}

truce_status truce__schedule_parse(const char *line, const char *zone, struct schedule *schedule,
                                   bson_error_t *error)
{
    bson_error_t reason;
    truce_status status;

    *schedule = (struct schedule){0};
    if (strlen(line) > SCHEDULE_TEXT_MAX)
        return truce__fail(TRUCE_INVALID, error, "a cron line may have at most %d bytes",
                           SCHEDULE_TEXT_MAX);
    if (zone && truce__date_zone_parse(zone, strlen(zone), &schedule->zone, &reason))
        return truce__fail(
            TRUCE_INVALID, error,
            "unknown time zone \"%.64s\": expected a name such as \"Europe/Berlin\", "
            "\"UTC\", or \"+02:00\"",
            zone);
    if (!strncasecmp(line, "@every", 6))
        return schedule_read_every(line + 6, schedule, error);
    status = schedule_read_fields(schedule_expand(line), schedule, error);
    if (!status && truce__schedule_next(schedule, 0) == INT64_MAX)
        status = truce__fail(TRUCE_INVALID, error,
                             "the cron line \"%s\" never fires: no month has that day", line);
    return status;
}

/* ---- computing ------------------------------------------------------------------------------- */

static bool schedule_has(uint64_t bits, int value)
{
    return bits >> value & 1;
}

static bool schedule_day_fires(const struct schedule *schedule, const struct date_parts *parts)
{
    bool day = schedule_has(schedule->day, parts->day),
         weekday = schedule_has(schedule->weekday, parts->day_of_week);

    if (!schedule_has(schedule->month, parts->month))
        return false;
    return schedule->any_day || schedule->any_weekday ? day && weekday : day || weekday;
}

static int64_t schedule_floor(int64_t value, int64_t unit)
{
    return value - ((value % unit) + unit) % unit;
}

/* Returns the time at which the clocks show `local_ms`, or at which they are moved past it. */
static int64_t schedule_to_utc(const struct schedule *schedule, int64_t local_ms)
{
    const struct date_zone *zone = &schedule->zone;
    int64_t high = truce__date_from_local(local_ms, zone), low = high - 2 * DAY_MS;
    int32_t after;

    if (truce__date_to_local(high, zone) == local_ms)
        return high;
    after = truce__date_zone_offset(zone, high);
    /* The change of the clocks lies after `low` and not after `high`. */
    while (high - low > SECOND_MS) {
        int64_t middle = schedule_floor(low + (high - low) / 2, SECOND_MS);

        if (truce__date_zone_offset(zone, middle) == after)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Finds the next time in real time: all hours fire, whatever the clocks do. */
static int64_t schedule_next_by_time(const struct schedule *schedule, int64_t after_ms)
{
    int64_t at = schedule_floor(after_ms, SECOND_MS) + SECOND_MS, end = at + DAYS_MAX * DAY_MS;
    const struct date_zone *zone = &schedule->zone;

    while (at < end) {
        struct date_parts parts;

        truce__date_split(at, zone, &parts);
        if (!schedule_day_fires(schedule, &parts)) {
            int64_t next = schedule_to_utc(
                schedule, schedule_floor(truce__date_to_local(at, zone), DAY_MS) + DAY_MS);

            at = next > at ? next : at + HOUR_MS;
        } else if (!schedule_has(schedule->minute, parts.minute)) {
            at += (60 - parts.second) * SECOND_MS;
        } else if (!schedule_has(schedule->second, parts.second)) {
            at += SECOND_MS;
        } else {
            return at;
        }
    }
    return INT64_MAX;
}

/* Finds the next time within one day of the clocks that fires. */
static int64_t schedule_next_in_day(const struct schedule *schedule, int64_t day_ms,
                                    int64_t after_ms)
{
    for (int hour = 0; hour < 24; hour++) {
        int64_t hour_ms = day_ms + hour * HOUR_MS;

        if (!schedule_has(schedule->hour, hour) ||
            schedule_to_utc(schedule, hour_ms + HOUR_MS - 1) <= after_ms)
            continue;
        for (int minute = 0; minute < 60; minute++) {
            int64_t minute_ms = hour_ms + minute * MINUTE_MS;

            if (!schedule_has(schedule->minute, minute) ||
                schedule_to_utc(schedule, minute_ms + MINUTE_MS - 1) <= after_ms)
                continue;
            for (int second = 0; second < 60; second++) {
                int64_t at = schedule_to_utc(schedule, minute_ms + second * SECOND_MS);

                if (schedule_has(schedule->second, second) && at > after_ms)
                    return at;
            }
        }
    }
    return INT64_MAX;
}

/* Returns the next time by the local clocks of the zone, or INT64_MAX if no day within DAYS_MAX
 * fires. */
static int64_t schedule_next_by_clocks(const struct schedule *schedule, int64_t after_ms)
{
    /* Clocks that are set back may show a day twice, so the search begins one day earlier. */
    int64_t day_ms =
        schedule_floor(truce__date_to_local(after_ms, &schedule->zone), DAY_MS) - DAY_MS;

    for (int i = 0; i < DAYS_MAX; i++, day_ms += DAY_MS) {
        static const struct date_zone as_shown;
        struct date_parts parts;
        int64_t at = INT64_MAX;

        truce__date_split(day_ms, &as_shown, &parts);
        if (schedule_day_fires(schedule, &parts))
            at = schedule_next_in_day(schedule, day_ms, after_ms);
        if (at != INT64_MAX)
            return at;
    }
    return INT64_MAX;
}

int64_t truce__schedule_next(const struct schedule *schedule, int64_t after_ms)
{
    if (schedule->every_ms)
        return after_ms > INT64_MAX - schedule->every_ms ? INT64_MAX
                                                         : after_ms + schedule->every_ms;
    return schedule->hour == ALL_HOURS ? schedule_next_by_time(schedule, after_ms)
                                       : schedule_next_by_clocks(schedule, after_ms);
}

/* ---- missed times ---------------------------------------------------------------------------- */

/* Walks the times in (after_ms, last_ms]; ticks[n % most] is the n-th. */
static uint64_t schedule_walk(const struct schedule *schedule, int64_t after_ms, int64_t last_ms,
                              uint32_t most, int64_t *ticks)
{
    uint64_t count = 0;

    for (int64_t at = after_ms; (at = truce__schedule_next(schedule, at)) <= last_ms;)
        ticks[count++ % most] = at;
    return count;
}

static void schedule_reverse(int64_t *ticks, uint32_t count)
{
    for (uint32_t i = 0; i + 1 < count - i; i++) {
        int64_t other = ticks[count - 1 - i];

        ticks[count - 1 - i] = ticks[i];
        ticks[i] = other;
    }
}

/* Rotates a ring whose oldest time is at `from` into order. */
static void schedule_rotate(int64_t *ticks, uint32_t count, uint32_t from)
{
    if (!from)
        return;
    schedule_reverse(ticks, from);
    schedule_reverse(ticks + from, count - from);
    schedule_reverse(ticks, count);
}

static uint32_t schedule_every_between(const struct schedule *schedule, int64_t first_ms,
                                       int64_t last_ms, uint32_t most, int64_t *ticks,
                                       bool *first_left)
{
    int64_t all = (last_ms - first_ms) / schedule->every_ms + 1;
    uint32_t count = all > most ? most : (uint32_t)all;

    *first_left = all > most;
    for (uint32_t i = 0; i < count; i++)
        ticks[i] = first_ms + (all - count + i) * schedule->every_ms;
    return count;
}

uint32_t truce__schedule_between(const struct schedule *schedule, int64_t first_ms, int64_t last_ms,
                                 uint32_t most, int64_t *ticks, bool *first_left)
{
    uint64_t count = 0;
    bool whole = false;

    *first_left = false;
    if (first_ms > last_ms || !most)
        return 0;
    if (schedule->every_ms)
        return schedule_every_between(schedule, first_ms, last_ms, most, ticks, first_left);
    /* The windows grow until one contains enough times, so a walk is never much longer than
     * necessary. */
    for (int64_t window = MINUTE_MS; !whole && count <= most; window *= 2) {
        whole = last_ms - first_ms < window;
        count =
            schedule_walk(schedule, whole ? first_ms - 1 : last_ms - window, last_ms, most, ticks);
    }
    *first_left = count > most || !whole;
    if (count <= most)
        return (uint32_t)count;
    schedule_rotate(ticks, most, (uint32_t)(count % most));
    return most;
}
