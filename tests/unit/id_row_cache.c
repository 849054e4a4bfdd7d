/* Row hints of documents: used if they are right, and harmless if they are wrong. */
#include "engine/id_row_cache.h"

#include "bson/key_encoding.h"
#include "engine/storage/body_fingerprints.h"

#include "tests/support/test.h"

enum { TABLE = 0, OTHER = 5, INDEX = 7 };

static struct kv *kv;
static struct hints *hints;
static struct buffer key, scratch;

static struct bytes key_of(int32_t id)
{
    bson_t document = BSON_INITIALIZER;

    BSON_APPEND_INT32(&document, "_id", id);
    key.size = 0;
    truce__key_append(&key, truce__value_field(truce__value_document(&document), "_id", 3), false);
    bson_destroy(&document);
    return (struct bytes){key.bytes, key.size};
}

static int64_t put_in(int64_t table, int32_t id, int64_t row)
{
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;

    BSON_APPEND_INT32(&document, "_id", id);
    CHECK_OK(truce__kv_row_insert(kv, table, &row,
                                  (struct bytes){bson_get_data(&document), document.len}, &error),
             error);
    CHECK_OK(truce__kv_key_insert(kv, INDEX, key_of(id), row, &error), error);
    bson_destroy(&document);
    return row;
}

static int64_t put(int32_t id)
{
    return put_in(TABLE, id, 0);
}

static void lose(int32_t id, int64_t row, bool of_index)
{
    bson_error_t error;

    if (of_index)
        CHECK_OK(truce__kv_key_delete(kv, INDEX, key_of(id), row, &error), error);
    else
        CHECK_OK(truce__kv_row_delete(kv, TABLE, row, &error), error);
}

/* Returns the row of the document with that _id after reading it, or 0. */
static int64_t find_in(int64_t table, int32_t id)
{
    struct bytes body, wanted = key_of(id);
    bson_error_t error;
    bson_iter_t iter;
    bson_t document;
    int64_t row = 0;
    truce_status status =
        truce__hints_look_up(hints, kv, INDEX, table, wanted, &scratch, &row, &body, &error);

    if (status == TRUCE_NOT_FOUND)
        return 0;
    CHECK_OK(status, error);
    CHECK(bson_init_static(&document, body.data, body.size) &&
          bson_iter_init_find(&iter, &document, "_id") && bson_iter_as_int64(&iter) == id);
    return row;
}

static int64_t find(int32_t id)
{
    return find_in(TABLE, id);
}

static bool begin(void)
{
    bson_error_t error;
    uint32_t version;
    char path[400];
    bool fresh;

    snprintf(path, sizeof path, "%s/s.db", test_directory());
    hints = truce__hints_new();
    return CHECK_OK(truce__kv_open(path, KV_WRITER | KV_CREATE, 1000, &kv, &error), error) &&
           CHECK_OK(truce__kv_format_check(kv, &fresh, &error), error) &&
           CHECK_OK(truce__kv_format_create(kv, &error), error) &&
           CHECK_OK(truce__kv_write_begin(kv, &version, &error), error) &&
           CHECK_OK(truce__kv_rows_create(kv, OTHER, &error), error) &&
           CHECK_OK(truce__kv_keys_create(kv, INDEX, &error), error);
}

static void end(void)
{
    truce__kv_write_rollback(kv);
    truce__kv_close(kv);
    truce__hints_free(hints);
    truce__buffer_release(&key);
    truce__buffer_release(&scratch);
}

TEST(finds_a_seen_document_without_the_index)
{
    int64_t row;

    if (!begin())
        return;
    row = put(1);
    CHECK(find(1) == row);
    lose(1, row, true);
    CHECK(find(1) == row);
    CHECK(put_in(OTHER, 2, 0) != 0);
    CHECK(find_in(OTHER, 1) == 0); /* another table */
    end();
}

TEST(a_document_that_moved_is_found_where_it_is)
{
    int64_t row, moved;

    if (!begin())
        return;
    row = put(1);
    put(2);
    CHECK(find(1) == row);
    lose(1, row, true);
    lose(1, row, false);
    CHECK(find(1) == 0);
    moved = put(1);
    CHECK(moved != row);
    CHECK(find(1) == moved);
    lose(1, moved, true);
    CHECK(find(1) == moved); /* the hint is the new one */
    end();
}

TEST(does_not_return_another_document_of_the_same_row)
{
    int64_t row;

    if (!begin())
        return;
    row = put(1);
    CHECK(find(1) == row);
    lose(1, row, true);
    lose(1, row, false);
    CHECK(put_in(TABLE, 2, row) == row);
    CHECK(find(1) == 0);
    CHECK(find(2) == row);
    end();
}

/* _ids that are not in runs. */
static int32_t apart(int32_t i)
{
    return -1 - i;
}

TEST(more_documents_than_there_is_room_for_hints_are_found)
{
    enum { MANY = 100000 };
    static int64_t rows[MANY];
    int hinted = 0;

    if (!begin())
        return;
    for (int32_t i = 0; i < MANY; i++) {
        rows[i] = put(apart(i));
        if (find(apart(i)) != rows[i] && !CHECK(false))
            break;
    }
    for (int32_t i = 0; i < MANY; i++) {
        if (find(apart(i)) != rows[i] && !CHECK(false))
            break;
    }
    for (int32_t i = MANY - 1000; i < MANY; i++) { /* most of the last are hinted at */
        lose(apart(i), rows[i], true);
        hinted += find(apart(i)) == rows[i];
    }
    CHECK(hinted > 800);
    end();
}

TEST(a_row_with_a_very_great_number_is_found_by_the_index)
{
    const int64_t great = INT64_C(1) << 41;

    if (!begin())
        return;
    CHECK(put_in(TABLE, 1, great) == great);
    CHECK(find(1) == great);
    CHECK(find(1) == great);
    lose(1, great, true);
    CHECK(find(1) == 0); /* no hint */
    end();
}

/* ---- runs ------------------------------------------------------------------------------------ */

TEST(two_documents_show_where_those_of_their_run_are)
{
    enum { RUN = 256, MANY = 3 * RUN };
    int64_t rows[MANY];

    if (!begin())
        return;
    for (int32_t id = 0; id < MANY; id++) {
        if (id % RUN == 0)
            put(-1 - id); /* so that the runs are not one after the other */
        rows[id] = put(id);
    }
    CHECK(find(RUN + 7) == rows[RUN + 7]);
    lose(RUN, rows[RUN], true);
    CHECK(find(RUN) == 0); /* one document shows nothing */
    CHECK(find(RUN + 9) == rows[RUN + 9]);
    CHECK(find(RUN) == rows[RUN]);
    for (int32_t id = 0; id < MANY; id++) {
        bool in_run = id >= RUN && id < 2 * RUN;

        if (id != RUN)
            lose(id, rows[id], true);
        if (find(id) != (in_run ? rows[id] : 0) && !CHECK(false))
            break;
    }
    CHECK(find_in(OTHER, RUN + 1) == 0); /* another table */
    end();
}

TEST(numbers_without_a_gap_are_found_in_runs_that_were_never_seen)
{
    enum { FIRST = 5000, MANY = 2000 };
    static int64_t rows[MANY];

    if (!begin())
        return;
    put(-1);
    for (int32_t i = 0; i < MANY; i++)
        rows[i] = put(FIRST + i);
    CHECK(find(FIRST) == rows[0]);
    CHECK(find(FIRST + 1000) == rows[1000]);
    for (int32_t i = 0; i < MANY; i++) {
        lose(FIRST + i, rows[i], true);
        if (find(FIRST + i) != rows[i] && !CHECK(false))
            break;
    }
    CHECK(find(FIRST - 1) == 0); /* another document is in the row */
    CHECK(find(FIRST + MANY) == 0);
    CHECK(find(0) == 0);
    CHECK(find_in(OTHER, FIRST + 1) == 0);
    put(-2);
    rows[0] = put(FIRST + MANY); /* the numbers have a gap */
    CHECK(find(FIRST + MANY) == rows[0]);
    CHECK(find(FIRST + 1000) == 0);
    end();
}

TEST(a_run_that_is_broken_is_not_followed)
{
    int64_t rows[8];

    if (!begin())
        return;
    for (int32_t id = 0; id < 8; id++)
        rows[id] = put(id);
    CHECK(find(0) == rows[0]);
    CHECK(find(1) == rows[1]);
    CHECK(find(4) == rows[4]);
    lose(2, rows[2], true);
    lose(2, rows[2], false);
    rows[2] = put(2);
    CHECK(find(2) == rows[2]); /* it has another place now */
    lose(5, rows[5], true);
    CHECK(find(5) == 0);
    CHECK(find(4) == rows[4]);
    CHECK(find(6) == rows[6]);
    CHECK(find(7) == rows[7]); /* the others are a run again */
    CHECK(find(5) == rows[5]);
    CHECK(find(2) == rows[2]);
    end();
}

TEST(ids_in_any_order_are_found_where_they_are)
{
    enum { MANY = 2000 };
    static int64_t rows[MANY];

    if (!begin())
        return;
    for (int32_t i = 0; i < MANY; i++)
        rows[i * 7 % MANY] = put(i * 7 % MANY);
    for (int32_t i = 0; i < 3 * MANY; i++) {
        int32_t id = i * 13 % MANY;

        if (find(id) != rows[id] && !CHECK(false))
            break;
        if (i % 5 == 0) {
            lose(id, rows[id], true);
            lose(id, rows[id], false);
            rows[id] = put(id);
        }
    }
    CHECK(find(MANY) == 0);
    end();
}

/* Rejects the body of the document 100. */
static bool is_not_100(const uint8_t *body, size_t size)
{
    bson_iter_t iter;
    bson_t document;

    return bson_init_static(&document, body, size) && bson_iter_init(&iter, &document) &&
           bson_iter_next(&iter) && bson_iter_as_int64(&iter) != 100;
}

TEST(a_damaged_row_does_not_hide_a_document_elsewhere)
{
    struct seen *seen = truce__seen_new();
    int64_t row;

    if (!begin())
        return;
    truce__kv_set_validator(kv, is_not_100, seen);
    put(0);
    put(1);
    CHECK(put(100) == 3);
    CHECK(find(0) == 1);
    CHECK(find(1) == 2);
    row = put(2); /* the run leads to the row of 100 */
    CHECK(row == 4);
    CHECK(find(2) == row);
    end();
    truce__seen_free(seen);
}
