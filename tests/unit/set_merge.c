/* Winners merged into the lists of a document, against a reference that takes them one by one. */
#include "base/random.h"
#include "patterns/set/set.h"
#include "tests/support/test.h"
#include "tests/support/tutorial.h"

#define NAMES   12
#define ENTRIES 30
#define WINNERS 12

/* An element of a list: an entry, or another value (name -1, which is kept unchanged). */
struct element {
    int name, seq;
    bool reversed; /* the name is not its first field */
};

struct case_of {
    struct element lists[2][ENTRIES]; /* tombstones, members */
    int counts[2];
    bool exists[2];
    int watermark;
};

static void name_of(int name, char text[8])
{
    snprintf(text, 8, "n%d", name);
}

static void append_one(bson_t *array, int index, struct element entry)
{
    char name[8], key[12];
    bson_t document;

    snprintf(key, sizeof key, "%d", index);
    name_of(entry.name, name);
    if (entry.name < 0) {
        BSON_APPEND_DOCUMENT_BEGIN(array, key, &document);
        BSON_APPEND_INT32(&document, "other", entry.seq);
        bson_append_document_end(array, &document);
        return;
    }
    bson_append_document_begin(array, key, -1, &document);
    if (entry.reversed && entry.seq)
        BSON_APPEND_INT64(&document, "seq", entry.seq);
    BSON_APPEND_UTF8(&document, "name", name);
    if (!entry.reversed && entry.seq)
        BSON_APPEND_INT64(&document, "seq", entry.seq);
    bson_append_document_end(array, &document);
}

static void append_list(bson_t *document, const char *field, const struct case_of *c, int list)
{
    bson_t array;

    if (!c->exists[list])
        return;
    BSON_APPEND_ARRAY_BEGIN(document, field, &array);
    for (int i = 0; i < c->counts[list]; i++)
        append_one(&array, i, c->lists[list][i]);
    bson_append_array_end(document, &array);
}

static void make_case(struct random *random, struct case_of *c)
{
    *c = (struct case_of){.watermark = (int)truce__random_below(random, 4)};
    for (int list = 0; list < 2; list++) {
        c->exists[list] = truce__random_below(random, 8) > 0;
        c->counts[list] = c->exists[list] ? (int)truce__random_below(random, ENTRIES) : 0;
        for (int i = 0; i < c->counts[list]; i++)
            c->lists[list][i] = (struct element){(int)truce__random_below(random, NAMES + 1) - 1,
                                                 (int)truce__random_below(random, 20),
                                                 truce__random_below(random, 4) == 0};
    }
}

/* The highest rank of a name: number * 2, and one more for a member; 0: none has a number. */
static int standing(const struct case_of *c, int name)
{
    int best = 0;

    for (int list = 0; list < 2; list++) {
        for (int i = 0; i < c->counts[list]; i++) {
            const struct element *entry = &c->lists[list][i];

            if (entry->name == name && entry->seq && entry->seq * 2 + list > best)
                best = entry->seq * 2 + list;
        }
    }
    return best;
}

static enum set_decision decision_of(const struct case_of *c, int name, int seq, bool add)
{
    int rank = seq * 2 + add, there = standing(c, name);

    if (there && there >= rank)
        return there == rank ? SET_DUPLICATE : SET_STALE;
    return seq <= c->watermark ? SET_BELOW : SET_OPEN;
}

/* Removes the name from both lists; it returns to its first place in its own list, or to the
 * end. */
static void apply(struct case_of *c, int name, int seq, bool add)
{
    for (int list = 0; list < 2; list++) {
        bool placed = list != add;
        int kept = 0;

        for (int i = 0; i < c->counts[list]; i++) {
            struct element entry = c->lists[list][i];

            if (entry.name == name && placed)
                continue;
            if (entry.name == name) {
                entry = (struct element){name, seq, false};
                placed = true;
            }
            c->lists[list][kept++] = entry;
        }
        if (!placed) {
            REQUIRE(kept < ENTRIES);
            c->lists[list][kept++] = (struct element){name, seq, false};
            c->exists[list] = true;
        }
        c->counts[list] = kept;
    }
}

struct given {
    bson_t element;
    truce_set_operation public;
    struct set_operation operation;
};

static void give(const truce_set *set, struct given *given, const bson_t *key, int name, int seq,
                 bool add)
{
    bson_error_t error;
    char text[8];

    name_of(name, text);
    bson_init(&given->element);
    BSON_APPEND_UTF8(&given->element, "name", text);
    given->public = (truce_set_operation){add ? TRUCE_SET_ADD : TRUCE_SET_REMOVE, key,
                                          &given->element, seq, NULL};
    CHECK_OK(truce__set_operation_check(set, &given->public, &given->operation, &error), error);
}

/* The lists of `wanted` that differ from those of `before`. */
static void check_change(const struct case_of *before, const struct case_of *wanted,
                         const struct set_merge *merge)
{
    static const char *const fields[] = {"deleted_classes", "classes"};
    bson_t expected = BSON_INITIALIZER;

    for (int list = 1; list >= 0; list--) {
        bson_t was = BSON_INITIALIZER, is = BSON_INITIALIZER;

        append_list(&was, fields[list], before, list);
        append_list(&is, fields[list], wanted, list);
        if (!bson_equal(&was, &is))
            bson_concat(&expected, &is);
        bson_destroy(&was);
        bson_destroy(&is);
    }
    CHECK_BSON(&expected, &merge->change);
    bson_destroy(&expected);
}

static void merge_at_random(const truce_set *set, struct random *random,
                            struct set_scratch *scratch)
{
    size_t count = 1 + truce__random_below(random, truce__random_below(random, 2) ? 3 : WINNERS);
    const struct set_operation *winners[WINNERS];
    enum set_decision decisions[WINNERS];
    struct set_merge merge = {
        .scratch = scratch, .winners = winners, .count = count, .decisions = decisions};
    bson_t document = BSON_INITIALIZER, key = BSON_INITIALIZER;
    struct given given[WINNERS];
    struct case_of before, after;
    bson_error_t error;
    bool changed = false;
    int first = (int)truce__random_below(random, NAMES);

    BSON_APPEND_INT32(&key, "student_id", 1);
    do
        make_case(random, &before);
    while (before.counts[0] + WINNERS > ENTRIES || before.counts[1] + WINNERS > ENTRIES);
    append_list(&document, "deleted_classes", &before, 0);
    append_list(&document, "classes", &before, 1);
    BSON_APPEND_INT64(&document, "_wm", before.watermark);
    for (size_t i = 0; i < count; i++) {
        give(set, &given[i], &key, (first + (int)i) % NAMES,
             1 + (int)truce__random_below(random, 24), truce__random_below(random, 2));
        winners[i] = &given[i].operation;
    }
    CHECK_OK(truce__set_merge(set, &document, &merge, &error), error);
    after = before;
    for (size_t i = 0; i < count; i++) {
        const struct set_rank *rank = &winners[i]->rank;
        int name = (first + (int)i) % NAMES;
        enum set_decision decision = decision_of(&before, name, (int)rank->seq, rank->add);

        CHECK_INT(decisions[i], ==, decision);
        if (decision == SET_OPEN)
            apply(&after, name, (int)rank->seq, rank->add);
        changed = changed || decision == SET_OPEN;
    }
    CHECK_INT(merge.changed, ==, changed);
    check_change(&before, &after, &merge);
    for (size_t i = 0; i < count; i++)
        bson_destroy(&given[i].element);
    bson_destroy(&merge.change);
    bson_destroy(&document);
    bson_destroy(&key);
}

TEST(gives_equal_results_for_merged_and_single_winners)
{
    struct set_scratch scratch = {{0}};
    struct random random;
    truce_store *store;
    truce_set *set;
    bson_error_t error;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    set = tutorial_set(store, NULL);
    truce__random_seed(&random, test_seed());
    for (long i = test_scale("TRUCE_MERGES", 20000); i > 0 && !test_failures(); i--)
        merge_at_random(set, &random, &scratch);
    truce__set_scratch_release(&scratch);
    truce_set_free(set);
    truce_store_close(store);
}
