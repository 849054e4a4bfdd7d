/*
 * Merges texts by lines and, inside lines that both sides changed, by words (diff3; Khanna, Kunal,
 * Pierce, "A Formal Investigation of Diff3", 2007). A line or word of the base that both sides kept
 * is an anchor. The lines between two anchors are a stretch. If one side changed the stretch, or
 * both sides changed it in the same way, the result has the change. If the sides changed it in
 * different ways, the stretch is a hunk.
 *
 *     base    a  b  c  d      mine    a  B  c  d      theirs    a  b  c  D
 *     anchors a     c         stretches b | B | b -> B          d | d | D -> D
 *
 * A hunk of lines is merged again by words, with the same rule: a word that both sides kept must
 * separate their changes. Blanks and punctuation are not anchors, because they are everywhere. The
 * remaining hunks are conflicts; the rest of the text is merged anyway.
 *
 *     base    the quick fox ran     mine    the slow fox ran     theirs    the quick fox walked
 *     merged  the slow fox walked
 *
 * Line ends do not matter if each text has only one kind. The result has the kind of the side that
 * changed it.
 */
#include "base/buffer.h"
#include "merge/lcs.h"
#include "merge/merge_parts.h"

/* A text with more pieces is not merged by pieces. */
#define PIECES_MAX 200000
/* The maximum size of a hunk that is merged by words. */
#define WORDS_BYTES 65536

enum side { BASE, MINE, THEIRS, SIDES };

/* A piece of a text. */
struct piece {
    const char *text;
    uint32_t length;
    /* The piece may be an anchor: it is a line, or a word without blanks and punctuation. */
    bool anchor;
};

/* A text in pieces: lines with their ends, or words and the characters between them. */
struct text {
    struct piece *pieces;
    uint32_t count;
    /* The numbers of the pieces. Equal pieces have equal numbers. */
    uint32_t *numbers;
};

/* ---- ends of lines --------------------------------------------------------------------------- */

enum ends { ENDS_NONE, ENDS_LF, ENDS_CRLF, ENDS_MIXED };

/* Returns the kind of the line ends of a text, MIXED if there are both, or NONE. */
static enum ends ends_of(struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);
    enum ends ends = ENDS_NONE;

    for (uint32_t i = 0; i < length; i++) {
        enum ends here = i && text[i - 1] == '\r' ? ENDS_CRLF : ENDS_LF;

        if (text[i] != '\n')
            continue;
        if (ends != ENDS_NONE && ends != here)
            return ENDS_MIXED;
        ends = here;
    }
    return ends;
}

static struct value without_returns(struct arena *arena, struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);
    char *made = truce__arena_take(arena, length + 1);
    size_t size = 0;

    for (uint32_t i = 0; i < length; i++) {
        if (text[i] != '\r' || i + 1 == length || text[i + 1] != '\n')
            made[size++] = text[i];
    }
    return truce__value_from_text(arena, made, size);
}

static struct value with_returns(struct arena *arena, struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);
    char *made = truce__arena_take(arena, (size_t)2 * length + 1);
    size_t size = 0;

    for (uint32_t i = 0; i < length; i++) {
        if (text[i] == '\n')
            made[size++] = '\r';
        made[size++] = text[i];
    }
    return truce__value_from_text(arena, made, size);
}

/* Returns the line ends of the result; MIXED if they are a part of the lines. */
static enum ends ends_of_result(const struct value *values)
{
    enum ends of[SIDES];

    for (int side = 0; side < SIDES; side++) {
        of[side] = ends_of(values[side]);
        if (of[side] == ENDS_MIXED)
            return ENDS_MIXED;
    }
    if (of[BASE] == ENDS_NONE)
        return of[MINE] == of[THEIRS] || of[THEIRS] == ENDS_NONE ? of[MINE]
               : of[MINE] == ENDS_NONE                           ? of[THEIRS]
                                                                 : ENDS_LF;
    if (of[MINE] != of[BASE] && of[MINE] != ENDS_NONE)
        return of[MINE];
    return of[THEIRS] != ENDS_NONE ? of[THEIRS] : of[BASE];
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static uint32_t line_length(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));

    return (uint32_t)((newline ? newline + 1 : end) - at);
}

static bool is_of_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '\'' || (unsigned char)c >= 0x80;
}

static uint32_t text_word_length(const char *at, const char *end)
{
    const char *next = at;

    while (next < end && is_of_word(*next))
        next++;
    return next > at ? (uint32_t)(next - at) : 1;
}

/* Splits a text into lines or words. Returns false if there are too many. */
static bool text_split(struct arena *arena, const char *begin, const char *end, bool words,
                       struct text *text)
{
    uint32_t count = 0;

    for (const char *at = begin; at < end; count++)
        at += words ? text_word_length(at, end) : line_length(at, end);
    if (count > PIECES_MAX)
        return false;
    text->pieces = truce__arena_take(arena, (count + 1) * sizeof *text->pieces);
    text->numbers = truce__arena_take(arena, (count + 1) * sizeof *text->numbers);
    text->count = 0;
    for (const char *at = begin; at < end;) {
        uint32_t length = words ? text_word_length(at, end) : line_length(at, end);

        text->pieces[text->count++] = (struct piece){at, length, !words || is_of_word(*at)};
        at += length;
    }
    return true;
}

/* Gives equal pieces of the three texts equal numbers. Returns how many numbers there are. */
static uint32_t number_pieces(struct arena *arena, struct text *texts)
{
    struct numbering numbering;

    truce__numbering_begin(&numbering, arena,
                           texts[BASE].count + texts[MINE].count + texts[THEIRS].count, false);
    for (int side = 0; side < SIDES; side++) {
        numbering.expected = 0;
        for (uint32_t i = 0; i < texts[side].count; i++) {
            const struct piece *piece = &texts[side].pieces[i];

            texts[side].numbers[i] =
                truce__numbering_of(&numbering, truce__numbering_key(piece->text, piece->length));
        }
    }
    return numbering.count;
}

/* ---- stretches ------------------------------------------------------------------------------- */

/* The pieces `from` to `to` - 1 of a text. */
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

static const char *begin_of(struct stretch stretch)
{
    return stretch.from < stretch.to ? stretch.text->pieces[stretch.from].text : "";
}

static uint32_t length_of(struct stretch stretch)
{
    const struct piece *last = &stretch.text->pieces[stretch.to - 1];

    return stretch.from < stretch.to ? (uint32_t)(last->text + last->length - begin_of(stretch))
                                     : 0;
}

static void text_put(struct buffer *to, struct stretch stretch)
{
    truce__buffer_append(to, begin_of(stretch), length_of(stretch));
}

/* Chooses the stretch for the result. Returns false if both sides changed it in different ways. */
static bool text_choose(const struct stretch *at, struct stretch *chosen)
{
    bool mine_kept = same_stretch(at[BASE], at[MINE]);

    *chosen = mine_kept ? at[THEIRS] : at[MINE];
    return mine_kept || same_stretch(at[BASE], at[THEIRS]) || same_stretch(at[MINE], at[THEIRS]);
}

struct text_merge {
    struct arena *arena;
    /* Receives the merged text. Each conflict has the hunk of one side. */
    struct buffer *merged;
    /* Receives the merged text with both hunks of each conflict between markers. NULL if the first
     * hunk ends the merge. */
    struct buffer *marked;
    /* The side whose hunks are in `merged`. */
    enum side wins;
    /* Receives the hunks as {base, mine, theirs}. Used only if `marked` is not NULL. */
    struct array hunks;
};

static bool merge_pieces(struct text_merge *merge, struct text *texts);

static void put_marked_line(struct buffer *to, const char *mark)
{
    if (to->size && to->bytes[to->size - 1] != '\n')
        truce__buffer_append(to, "\n", 1);
    truce__buffer_append(to, mark, strlen(mark));
}

/* Adds a conflict: one side's hunk to the merged text, both with markers to the marked text, and
 * all three to the list. */
static void add_hunk(struct text_merge *merge, const struct stretch *at)
{
    static const char *const names[] = {"base", "mine", "theirs"};
    bson_t hunk;

    text_put(merge->merged, at[merge->wins]);
    put_marked_line(merge->marked, "<<<<<<< mine\n");
    text_put(merge->marked, at[MINE]);
    put_marked_line(merge->marked, "=======\n");
    text_put(merge->marked, at[THEIRS]);
    put_marked_line(merge->marked, ">>>>>>> theirs\n");
    truce__array_open_document(&merge->hunks, &hunk);
    for (int side = 0; side < SIDES; side++)
        bson_append_utf8(&hunk, names[side], -1, begin_of(at[side]), (int)length_of(at[side]));
    truce__array_close_document(&merge->hunks, &hunk);
}

/* Merges lines that both sides changed by words. Returns false, and writes nothing, if a hunk is
 * left. */
static bool merge_words(struct text_merge *merge, const struct stretch *at)
{
    struct buffer words = {0};
    struct text_merge inner = {.arena = merge->arena, .merged = &words};
    struct text texts[SIDES];
    bool done = true;

    for (int side = 0; done && side < SIDES; side++) {
        const char *begin = begin_of(at[side]);
        uint32_t length = length_of(at[side]);

        done = length && length <= WORDS_BYTES &&
               text_split(merge->arena, begin, begin + length, true, &texts[side]);
    }
    done = done && merge_pieces(&inner, texts);
    if (done) {
        truce__buffer_append(merge->merged, words.bytes, words.size);
        truce__buffer_append(merge->marked, words.bytes, words.size);
    }
    truce__buffer_release(&words);
    return done;
}

/* Appends a stretch, or reports its conflict. Returns false, and appends nothing, if there is a
 * conflict and no list of hunks: then the caller merges by words. */
static bool put_stretch(struct text_merge *merge, const struct stretch *at)
{
    struct stretch chosen;

    if (text_choose(at, &chosen)) {
        text_put(merge->merged, chosen);
        if (merge->marked)
            text_put(merge->marked, chosen);
        return true;
    }
    if (!merge->marked)
        return false;
    if (!merge_words(merge, at))
        add_hunk(merge, at);
    return true;
}

/* Merges the texts piece by piece, from one anchor to the next. Returns false if a hunk ends the
 * merge. */
static bool merge_pieces(struct text_merge *merge, struct text *texts)
{
    const struct text *base = &texts[BASE];
    uint32_t *in_mine = truce__arena_take(merge->arena, (base->count + 1) * sizeof *in_mine);
    uint32_t *in_theirs = truce__arena_take(merge->arena, (base->count + 1) * sizeof *in_theirs);
    struct stretch at[SIDES] = {{&texts[BASE], 0, 0}, {&texts[MINE], 0, 0}, {&texts[THEIRS], 0, 0}};
    uint32_t numbers = number_pieces(merge->arena, texts);

    truce__lcs(merge->arena, base->numbers, base->count, texts[MINE].numbers, texts[MINE].count,
               numbers, in_mine);
    truce__lcs(merge->arena, base->numbers, base->count, texts[THEIRS].numbers, texts[THEIRS].count,
               numbers, in_theirs);
    for (uint32_t i = 0; i <= base->count; i++) {
        bool end = i == base->count;

        if (!end && (!base->pieces[i].anchor || in_mine[i] == LCS_NONE || in_theirs[i] == LCS_NONE))
            continue;
        at[BASE].to = i;
        at[MINE].to = end ? texts[MINE].count : in_mine[i];
        at[THEIRS].to = end ? texts[THEIRS].count : in_theirs[i];
        if (!put_stretch(merge, at))
            return false;
        if (!end) {
            struct stretch anchor = {&texts[BASE], i, i + 1};

            text_put(merge->merged, anchor);
            if (merge->marked)
                text_put(merge->marked, anchor);
        }
        for (int side = 0; side < SIDES; side++)
            at[side].from = at[side].to + 1;
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static struct value text_from(struct arena *arena, const struct buffer *buffer, enum ends ends)
{
    struct value made = truce__value_from_text(arena, (const char *)buffer->bytes, buffer->size);

    return ends == ENDS_CRLF ? with_returns(arena, made) : made;
}

bool truce__merge_text(struct arena *arena, const struct merge_three *three, bool mine_wins,
                       struct merged_text *merged)
{
    struct value values[] = {three->base, three->mine, three->theirs};
    struct buffer plain = {0}, marked = {0};
    struct text_merge merge = {.arena = arena,
                               .merged = &plain,
                               .marked = &marked,
                               .wins = mine_wins ? MINE : THEIRS,
                               .hunks.to = &merged->hunks};
    struct text texts[SIDES];
    enum ends ends;
    bool done = true;

    bson_init(&merged->hunks);
    for (int side = 0; side < SIDES; side++) {
        if (values[side].type != BSON_TYPE_UTF8)
            return false;
    }
    ends = ends_of_result(values);
    for (int side = 0; done && side < SIDES; side++) {
        uint32_t length;
        const char *text;

        if (ends != ENDS_MIXED)
            values[side] = without_returns(arena, values[side]);
        text = truce__value_text(values[side], &length);
        done = text_split(arena, text, text + length, false, &texts[side]);
    }
    done = done && merge_pieces(&merge, texts);
    if (done) {
        merged->text = text_from(arena, &plain, ends);
        merged->marked = text_from(arena, &marked, ends);
    }
    truce__buffer_release(&plain);
    truce__buffer_release(&marked);
    return done;
}
