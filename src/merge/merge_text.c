/*
 * Texts merged line by line (diff3; Khanna, Kunal, Pierce, "A Formal Investigation of Diff3", 2007).
 * Lines of the base that both sides kept are anchors; between two anchors a stretch was changed by
 * one side, which is taken, by both in the same way, or by both differently: no merge.
 *
 *     base    a  b  c  d      mine    a  B  c  d      theirs    a  b  c  D
 *     anchors a     c         stretches b | B | b -> B          d | d | D -> D
 */
#include "merge/lcs.h"
#include "merge/merge_parts.h"

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
    uint32_t length, count = 0;
    const char *at = truce__value_text(value, &length), *end = at + length;

    for (const char *line = at; line < end; count++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));

        line = newline ? newline + 1 : end;
    }
    if (count > LINES_MAX)
        return false;
    text->lines = truce__arena_take(arena, (count + 1) * sizeof *text->lines);
    text->numbers = truce__arena_take(arena, (count + 1) * sizeof *text->numbers);
    text->count = count;
    for (uint32_t i = 0; i < count; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline ? newline + 1 : end;

        text->lines[i] = (struct line){at, (uint32_t)(next - at)};
        at = next;
    }
    return true;
}

/* Equal lines of all three texts get equal numbers; how many there are. */
static uint32_t number_lines(struct arena *arena, struct text *texts)
{
    struct numbering numbering;

    truce__numbering_begin(&numbering, arena, texts[0].count + texts[1].count + texts[2].count,
                           false);
    for (int side = 0; side < 3; side++) {
        numbering.expected = 0;
        for (uint32_t i = 0; i < texts[side].count; i++) {
            const struct line *line = &texts[side].lines[i];

            texts[side].numbers[i] =
                truce__numbering_of(&numbering, truce__numbering_key(line->text, line->length));
        }
    }
    return numbering.count;
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

static bool merge_lines(struct arena *arena, const struct text *texts, uint32_t numbers, char *to,
                        size_t *length)
{
    uint32_t *in_mine = truce__arena_take(arena, (texts[0].count + 1) * sizeof *in_mine);
    uint32_t *in_theirs = truce__arena_take(arena, (texts[0].count + 1) * sizeof *in_theirs);
    struct stretch at[3] = {{&texts[0], 0, 0}, {&texts[1], 0, 0}, {&texts[2], 0, 0}}, chosen;
    const char *begin = to;

    truce__lcs(arena, texts[0].numbers, texts[0].count, texts[1].numbers, texts[1].count, numbers,
               in_mine);
    truce__lcs(arena, texts[0].numbers, texts[0].count, texts[2].numbers, texts[2].count, numbers,
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
    uint32_t numbers;
    char *to;

    for (int side = 0; side < 3; side++) {
        if (values[side]->type != BSON_TYPE_UTF8 || !split(arena, *values[side], &texts[side]))
            return false;
        room += values[side]->size;
    }
    numbers = number_lines(arena, texts);
    to = truce__arena_take(arena, room);
    if (!merge_lines(arena, texts, numbers, to, &length))
        return false;
    *merged = truce__value_from_text(arena, to, length);
    return true;
}
