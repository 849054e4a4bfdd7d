/*
 * Texts merged line by line (diff3; Khanna, Kunal, Pierce, "A Formal Investigation of Diff3", 2007).
 * Lines of the base that both sides kept are anchors; between two anchors a stretch was changed by
 * one side, which is taken, by both in the same way, or by both differently: no merge.
 *
 *     base    a  b  c  d      mine    a  B  c  d      theirs    a  b  c  D
 *     anchors a     c         stretches b | B | b -> B          d | d | D -> D
 */
#include "query/lcs.h"
#include "query/merge_parts.h"

#define LINES_MAX 200000

struct line {
    const char *text;
    uint32_t length; /* with the newline */
};

struct text {
    struct line *lines;
    uint32_t count;
    uint32_t *numbers; /* equal lines have equal ones */
};

static bool split(struct arena *arena, struct value value, struct text *text)
{
    uint32_t length, count = 1, at = 0;
    const char *bytes = truce__value_text(value, &length);

    for (uint32_t i = 0; i < length; i++)
        count += bytes[i] == '\n';
    if (count > LINES_MAX)
        return false;
    text->lines = truce__arena_take(arena, count * sizeof *text->lines);
    text->numbers = truce__arena_take(arena, count * sizeof *text->numbers);
    text->count = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (bytes[i] != '\n' && i + 1 < length)
            continue;
        text->lines[text->count++] = (struct line){bytes + at, i + 1 - at};
        at = i + 1;
    }
    return true;
}

static bool same_line(const struct line *a, const struct line *b)
{
    return a->length == b->length && !memcmp(a->text, b->text, a->length);
}

/* Numbers for the lines of all three texts, by a table of hashes. */
static void number_lines(struct arena *arena, struct text *texts)
{
    uint32_t all = texts[0].count + texts[1].count + texts[2].count, size = 16, next = 0;
    const struct line **table;
    uint32_t *numbers;

    while (size < 2 * all)
        size *= 2;
    table = truce__arena_take(arena, size * sizeof(struct line *));
    numbers = truce__arena_take(arena, size * sizeof *numbers);
    memset(table, 0, size * sizeof(struct line *));
    for (int side = 0; side < 3; side++) {
        for (uint32_t i = 0; i < texts[side].count; i++) {
            const struct line *line = &texts[side].lines[i];
            uint64_t hash = 14695981039346656037u;
            uint32_t at;

            for (uint32_t k = 0; k < line->length; k++)
                hash = (hash ^ (uint8_t)line->text[k]) * 1099511628211u;
            at = (uint32_t)(hash >> 20) & (size - 1);
            while (table[at] && !same_line(table[at], line))
                at = (at + 1) & (size - 1);
            if (!table[at]) {
                table[at] = line;
                numbers[at] = next++;
            }
            texts[side].numbers[i] = numbers[at];
        }
    }
}

/* Lines from .. to of a text */
struct stretch {
    const struct text *text;
    uint32_t from, to;
};

static bool same_stretch(struct stretch a, struct stretch b)
{
    if (a.to - a.from != b.to - b.from)
        return false;
    for (uint32_t i = 0; i < a.to - a.from; i++) {
        if (a.text->numbers[a.from + i] != b.text->numbers[b.from + i])
            return false;
    }
    return true;
}

static char *put(char *to, struct stretch stretch)
{
    for (uint32_t i = stretch.from; i < stretch.to; i++) {
        memcpy(to, stretch.text->lines[i].text, stretch.text->lines[i].length);
        to += stretch.text->lines[i].length;
    }
    return to;
}

/* The stretch that stands in the result; false: both changed it, differently. */
static bool choose(struct stretch base, struct stretch mine, struct stretch theirs,
                   struct stretch *chosen)
{
    bool theirs_kept = same_stretch(base, theirs);

    *chosen = same_stretch(base, mine) ? theirs : mine;
    return same_stretch(base, mine) || theirs_kept || same_stretch(mine, theirs);
}

static bool merge_lines(struct arena *arena, const struct text *texts, char *to, size_t *length)
{
    uint32_t *in_mine = truce__arena_take(arena, (texts[0].count + 1) * sizeof *in_mine);
    uint32_t *in_theirs = truce__arena_take(arena, (texts[0].count + 1) * sizeof *in_theirs);
    struct stretch at[3] = {{&texts[0], 0, 0}, {&texts[1], 0, 0}, {&texts[2], 0, 0}}, chosen;
    const char *begin = to;

    truce__lcs(arena, texts[0].numbers, texts[0].count, texts[1].numbers, texts[1].count, in_mine);
    truce__lcs(arena, texts[0].numbers, texts[0].count, texts[2].numbers, texts[2].count,
               in_theirs);
    for (uint32_t i = 0; i <= texts[0].count; i++) {
        bool end = i == texts[0].count;

        if (!end && (in_mine[i] == LCS_NONE || in_theirs[i] == LCS_NONE))
            continue;
        at[0].to = i;
        at[1].to = end ? texts[1].count : in_mine[i];
        at[2].to = end ? texts[2].count : in_theirs[i];
        if (!choose(at[0], at[1], at[2], &chosen))
            return false;
        to = put(to, chosen);
        if (!end)
            to = put(to, (struct stretch){&texts[0], i, i + 1});
        for (int side = 0; side < 3; side++)
            at[side].from = at[side].to + 1;
    }
    *length = (size_t)(to - begin);
    return true;
}

bool truce__merge_text(struct arena *arena, const struct merge_three *three, struct value *merged)
{
    const struct value *values[] = {&three->base, &three->mine, &three->theirs};
    struct text texts[3];
    size_t room = 1, length;
    char *to;

    for (int side = 0; side < 3; side++) {
        if (values[side]->type != BSON_TYPE_UTF8 || !split(arena, *values[side], &texts[side]))
            return false;
        room += values[side]->size;
    }
    number_lines(arena, texts);
    to = truce__arena_take(arena, room);
    if (!merge_lines(arena, texts, to, &length))
        return false;
    *merged = truce__value_from_text(arena, to, length);
    return true;
}
