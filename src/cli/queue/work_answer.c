/*
 * An answer is one document on one line: what it is, with the job's id, the epoch that the job was given with, and what
 * belongs to it.
 *
 *     {"done": ID, "epoch": 1, "result": {...}, "changes": [...]}     the last two may be missing
 *     {"fail": ID, "epoch": 1, "error": "...", "delay_ms": 1000}      without delay_ms: the queue's backoff
 *     {"snooze": ID, "epoch": 1, "delay_ms": 1000}                    without: what --later says
 *     {"discard": ID, "epoch": 1, "error": "..."}
 *     {"progress": ID, "epoch": 1, "result": {...}}
 *
 * Any other field refuses the line: it is misspelt, and what it was to say would be lost.
 */
#include "cli/queue/work_answer.h"

#include <string.h>

static const char *const kinds[] = {"done", "fail", "snooze", "discard", "progress"};

enum field { EPOCH, RESULT, CHANGES, ERROR, DELAY };
static const char *const fields[] = {"epoch", "result", "changes", "error", "delay_ms"};

/* A bit for each field that stands beside it. */
static const unsigned allowed[] = {
    [ANSWER_DONE] = 1U << EPOCH | 1U << RESULT | 1U << CHANGES,
    [ANSWER_FAIL] = 1U << EPOCH | 1U << ERROR | 1U << DELAY,
    [ANSWER_SNOOZE] = 1U << EPOCH | 1U << DELAY,
    [ANSWER_DISCARD] = 1U << EPOCH | 1U << ERROR,
    [ANSWER_PROGRESS] = 1U << EPOCH | 1U << RESULT,
};

static int answer_place_of(const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (!strcmp(word, words[i]))
            return i;
    }
    return -1;
}

static bool take_bytes(const bson_iter_t *iter, bool array, bson_t *taken)
{
    const uint8_t *bytes;
    uint32_t length;

    if (array ? !BSON_ITER_HOLDS_ARRAY(iter) : !BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    if (array)
        bson_iter_array(iter, &length, &bytes);
    else
        bson_iter_document(iter, &length, &bytes);
    return bson_init_static(taken, bytes, length);
}

static bool answer_take_number(const bson_iter_t *iter, int64_t *number)
{
    *number = BSON_ITER_HOLDS_NUMBER(iter) ? bson_iter_as_int64(iter) : -1;
    return *number >= 0;
}

static bool answer_take_field(enum field field, const bson_iter_t *iter, struct answer *answer)
{
    switch (field) {
    case EPOCH:
        return answer_take_number(iter, &answer->epoch);
    case RESULT:
        return take_bytes(iter, false, &answer->result);
    case CHANGES:
        return take_bytes(iter, true, &answer->changes);
    case ERROR:
        answer->error = BSON_ITER_HOLDS_UTF8(iter) ? bson_iter_utf8(iter, NULL) : NULL;
        return answer->error != NULL;
    case DELAY:
        return answer_take_number(iter, &answer->delay_ms);
    }
    return false;
}

static bool answer_take_job(const bson_iter_t *iter, struct answer *answer)
{
    const char *text = BSON_ITER_HOLDS_UTF8(iter) ? bson_iter_utf8(iter, NULL) : "";

    if (!bson_oid_is_valid(text, strlen(text)))
        return false;
    bson_oid_init_from_string(&answer->job, text);
    return true;
}

/* What it is, and for which job: the field that says so may stand anywhere. */
static truce_status answer_find_kind(const bson_t *document, struct answer *answer,
                                     bson_error_t *error)
{
    bson_iter_t iter;
    int found = -1;

    for (bson_iter_init(&iter, document); bson_iter_next(&iter);) {
        int kind = answer_place_of(bson_iter_key(&iter), kinds, sizeof kinds / sizeof *kinds);

        if (kind < 0)
            continue;
        if (found >= 0)
            return truce__fail(TRUCE_INVALID, error, "both \"%s\" and \"%s\"", kinds[found],
                               kinds[kind]);
        if (!answer_take_job(&iter, answer))
            return truce__fail(TRUCE_INVALID, error, "\"%s\" is not the id of a job", kinds[kind]);
        found = kind;
    }
    if (found < 0)
        return truce__fail(TRUCE_INVALID, error,
                           "none of \"done\", \"fail\", \"snooze\", \"discard\", \"progress\"");
    answer->kind = (enum answer_kind)found;
    return TRUCE_OK;
}

static truce_status answer_take_all(const bson_t *document, struct answer *answer, unsigned *seen,
                                    bson_error_t *error)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, document); bson_iter_next(&iter);) {
        const char *name = bson_iter_key(&iter);
        int field = answer_place_of(name, fields, sizeof fields / sizeof *fields);

        if (answer_place_of(name, kinds, sizeof kinds / sizeof *kinds) >= 0)
            continue;
        if (field < 0 || !(allowed[answer->kind] & 1U << field))
            return truce__fail(TRUCE_INVALID, error, "\"%s\" has no field \"%s\"",
                               kinds[answer->kind], name);
        if (*seen & 1U << field)
            return truce__fail(TRUCE_INVALID, error, "the field \"%s\" is there twice", name);
        if (!answer_take_field((enum field)field, &iter, answer))
            return truce__fail(TRUCE_INVALID, error, "the field \"%s\" is of a wrong kind", name);
        *seen |= 1U << field;
    }
    return TRUCE_OK;
}

truce_status work_answer_read(struct json_reader *reader, const char *line, size_t size,
                              struct answer *answer, bson_error_t *error)
{
    unsigned seen = 0;
    bson_t document;
    truce_status status = truce__json_read(reader, line, size, &document, NULL, error);

    *answer = (struct answer){.delay_ms = -1};
    bson_init(&answer->result);
    bson_init(&answer->changes);
    if (!status)
        status = answer_find_kind(&document, answer, error);
    if (!status)
        status = answer_take_all(&document, answer, &seen, error);
    if (!status && !(seen & 1U << EPOCH))
        status = truce__fail(TRUCE_INVALID, error, "\"epoch\" is missing");
    if (!status && answer->kind == ANSWER_FAIL && !answer->error)
        status = truce__fail(TRUCE_INVALID, error, "\"error\" is missing");
    return status;
}
