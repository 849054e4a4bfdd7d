/*
 * Writers and a reader of one document's items, at every interleaving of their store calls, with
 * crashes, lost answers and calls that land late. The reader never sees an item absent, twice or
 * half-changed, nor the others in another order.
 *
 * TRUCE_ITEM_TURNS: how many runs of a scene.
 */
#include "patterns/item/item.h"
#include "tests/support/item_rig.h"
#include "tests/support/turns.h"
#include "tests/support/tutorial.h"

#define CALLS_MAX 3

/* Checks the items, as an array, after every call (`acknowledged` NULL) and at the end. */
typedef void check_function(const bson_t *document, const bool *acknowledged, const char *who);

struct scene {
    const char *name, *before;
    const char *calls[CALLS_MAX]; /* one for each writer; "to-map", "to-array" convert */
    int writers;
    check_function *check;
};

struct play {
    const struct scene *scene;
    struct item_way way;
    truce_item_form form;
    bool acknowledged[CALLS_MAX];
};

/* ---- reads of items ---- */

static int places(const bson_t *document, const char *type, struct value *last)
{
    struct value items = truce__item_at(document, "badges");
    int count = 0;

    if (items.type != BSON_TYPE_ARRAY)
        return 0;
    for (struct fields fields = truce__fields(items); truce__fields_next(&fields);) {
        struct value own = truce__value_field(fields.value, "type", 4);
        uint32_t length;

        if (strcmp(truce__value_text(own, &length), type) != 0)
            continue;
        *last = fields.value;
        count++;
    }
    return count;
}

static int64_t number_in(struct value item, const char *name)
{
    struct value field = truce__value_field(item, name, strlen(name));

    return field.type == BSON_TYPE_INT32 ? truce__value_int32(field) : -1;
}

/* the types in their order, one letter each */
static void order(const bson_t *document, char *letters, size_t size)
{
    struct value items = truce__item_at(document, "badges");
    size_t length = 0;

    if (items.type == BSON_TYPE_ARRAY) {
        for (struct fields fields = truce__fields(items); truce__fields_next(&fields);) {
            uint32_t ignored;

            if (length + 1 < size)
                letters[length++] =
                    *truce__value_text(truce__value_field(fields.value, "type", 4), &ignored);
        }
    }
    letters[length] = '\0';
}

static void check_order(const bson_t *document, const char *const *allowed, const char *who)
{
    char letters[20];

    order(document, letters, sizeof letters);
    for (int i = 0; allowed[i]; i++) {
        if (!strcmp(letters, allowed[i]))
            return;
    }
    test_fail(__FILE__, __LINE__, "%s: the items are \"%s\"", who, letters);
}

/* B has both of its numbers as they were, or both changed. */
static void check_b(const bson_t *document, bool done, const char *who)
{
    struct value b = truce__value_missing();
    int64_t n, m;

    if (places(document, "B", &b) != 1) {
        test_fail(__FILE__, __LINE__, "%s: B is there %d times", who, places(document, "B", &b));
        return;
    }
    n = number_in(b, "n");
    m = number_in(b, "m");
    if (!(n == 9 && m == 9) && !(n == 2 && m == 3 && !done))
        test_fail(__FILE__, __LINE__, "%s: B is %d, %d", who, (int)n, (int)m);
}

/* ---- the scenes ---- */

#define ABC                                                                                        \
    "{'_id': 1, 'badges': [{'type': 'A'}, {'type': 'B', 'n': 2, 'm': 3}, {'type': 'C', 'n': 2}]}"

static void check_removal(const bson_t *document, const bool *acknowledged, const char *who)
{
    static const char *const allowed[] = {"ABC", "BC", NULL}, *const ended[] = {"BC", NULL};
    struct value c;

    check_order(document, acknowledged && acknowledged[1] ? ended : allowed, who);
    check_b(document, acknowledged && acknowledged[0], who);
    if (places(document, "C", &c) == 1 && number_in(c, "n") != 2)
        test_fail(__FILE__, __LINE__, "%s: C was changed", who);
}

static void check_added(const bson_t *document, const bool *acknowledged, const char *who)
{
    static const char *const allowed[] = {"ABC", "ABCD", NULL}, *const ended[] = {"ABCD", NULL};

    check_order(document, acknowledged && (acknowledged[0] || acknowledged[1]) ? ended : allowed,
                who);
}

static void check_upserted(const bson_t *document, const bool *acknowledged, const char *who)
{
    const bool upserted[] = {acknowledged && acknowledged[0], false};

    check_added(document, acknowledged ? upserted : NULL, who);
}

static void check_first(const bson_t *document, const bool *acknowledged, const char *who)
{
    static const char *const allowed[] = {"", "D", NULL}, *const ended[] = {"D", NULL};

    check_order(document, acknowledged && (acknowledged[0] || acknowledged[1]) ? ended : allowed,
                who);
}

static void check_counted(const bson_t *document, const bool *acknowledged, const char *who)
{
    static const char *const allowed[] = {"ABC", NULL};
    struct value b;
    int64_t n;

    check_order(document, allowed, who);
    if (places(document, "B", &b) != 1)
        return;
    n = number_in(b, "n");
    if (n < 2 || n > 4 || (acknowledged && n < 2 + acknowledged[0] + acknowledged[1]))
        test_fail(__FILE__, __LINE__, "%s: B counts %d", who, (int)n);
}

static const struct scene scenes[] = {
    {"an item is changed while the one before it is removed",
     ABC,
     {"update {'type': 'B'} {'$set': {'n': 9, 'm': 9}}", "remove {'type': 'A'}"},
     2,
     check_removal},
    {"items that a condition finds are changed while one is removed",
     ABC,
     {"update {'m': 3} {'$set': {'n': 9, 'm': 9}}", "remove {'type': 'A'}"},
     2,
     check_removal},
    {"an item is replaced while the one before it is removed",
     ABC,
     {"replace {'type': 'B', 'n': 9, 'm': 9}", "remove {'type': 'A'}"},
     2,
     check_removal},
    {"two add one item",
     ABC,
     {"add {'type': 'D', 'n': 1}", "add {'type': 'D', 'n': 2}"},
     2,
     check_added},
    {"one adds and one upserts an item",
     ABC,
     {"add {'type': 'D', 'n': 1}", "upsert {'type': 'D', 'n': 2}"},
     2,
     check_added},
    {"two upsert the first item",
     "{'_id': 1}",
     {"upsert {'type': 'D', 'n': 1}", "upsert {'type': 'D', 'n': 2}"},
     2,
     check_first},
    {"two count at one item",
     ABC,
     {"update {'type': 'B'} {'$inc': {'n': 1}}",
      "update {'n': {'$gte': 2}, 'm': 3} {'$inc': {'n': 1}}"},
     2,
     check_counted},
    {"an item is changed while the document becomes a map",
     ABC,
     {"update {'type': 'B'} {'$set': {'n': 9, 'm': 9}}", "remove {'type': 'A'}", "to-map"},
     3,
     check_removal},
    {"an item is added while the document becomes an array",
     ABC,
     {"upsert {'type': 'D', 'n': 1}", "to-array"},
     2,
     check_upserted},
};

/* ---- the players ---- */

static truce_item *open_item(const struct play *play, truce_store *store)
{
    return tutorial_item(store,
                         &(truce_item_options){.layout = play->way.layout, .form = play->form});
}

static void begin(truce_store *store, void *arg)
{
    struct play *play = arg;
    bson_t *document = test_bson(play->scene->before);
    truce_item *item = open_item(play, store);
    bson_error_t error;

    memset(play->acknowledged, 0, sizeof play->acknowledged);
    CHECK_OK(truce_insert(store, "employees", document, NULL, &error), error);
    if (play->way.layout == TRUCE_ITEM_MAP)
        CHECK_OK(truce_item_convert(item, TRUCE_ITEM_MAP, NULL, NULL, &error), error);
    truce_item_free(item);
    bson_destroy(document);
}

static void read_and_check(truce_store *store, struct play *play)
{
    bson_t *filter = test_bson("{'_id': 1}"), found, *document;
    truce_store *copy;
    bson_error_t error;

    if (!truce_find_one(store, "employees", filter, NULL, &found, &error)) {
        CHECK_OK(truce_store_open("memory:", NULL, &copy, &error), error);
        CHECK_OK(truce_insert(copy, "employees", &found, NULL, &error), error);
        document = item_rig_read(copy, "employees", "badges");
        play->scene->check(document, NULL, "a reader");
        bson_destroy(document);
        truce_store_close(copy);
    }
    bson_destroy(&found);
    bson_destroy(filter);
}

static void client(truce_store *store, int number, void *arg)
{
    struct play *play = arg;
    truce_item_result result;
    bson_error_t error = {0};
    truce_status status;
    truce_item *item;

    if (number == play->scene->writers) {
        read_and_check(store, play);
        read_and_check(store, play);
        return;
    }
    item = open_item(play, store);
    if (!strncmp(play->scene->calls[number], "to-", 3))
        status = truce_item_convert(
            item, play->scene->calls[number][3] == 'm' ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY, NULL,
            NULL, &error);
    else
        status =
            item_rig_call(item, &play->way, store, play->scene->calls[number], &result, &error);
    play->acknowledged[number] = !status;
    if (status && status != TRUCE_UNKNOWN && !turns_is_dead(store))
        test_fail(__FILE__, __LINE__, "a live client failed: %s", error.message);
    truce_item_free(item);
}

/* A conversion that was acknowledged has converted. */
static void check_layout(truce_store *store, bool map)
{
    bson_t *filter = test_bson("{'_id': 1}"), found;
    bson_error_t error;

    CHECK_OK(truce_find_one(store, "employees", filter, NULL, &found, &error), error);
    CHECK_INT(truce__item_at(&found, "badges").type == BSON_TYPE_DOCUMENT, ==, map);
    bson_destroy(&found);
    bson_destroy(filter);
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    struct play *play = arg;
    bson_t *document = item_rig_read(store, "employees", "badges");
    int before = test_failures();

    (void)crashed;
    for (int i = 0; i < play->scene->writers; i++) {
        if (play->acknowledged[i] && !strncmp(play->scene->calls[i], "to-", 3))
            check_layout(store, play->scene->calls[i][3] == 'm');
    }
    play->scene->check(document, play->acknowledged, "the end");
    if (test_failures() > before) {
        char *text = bson_as_relaxed_extended_json(document, NULL);

        fprintf(stderr, "    %s, %s: %s\n", play->scene->name, play->way.name, text);
        bson_free(text);
    }
    bson_destroy(document);
}

static void explore(truce_item_form form, const struct item_way *way, struct turns_budget budget,
                    long most)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes && !test_failures(); i++) {
        struct play play = {.scene = &scenes[i], .way = *way, .form = form};
        struct turns_run run = {.clients = scenes[i].writers + 1,
                                .client = client,
                                .begin = begin,
                                .end = end,
                                .arg = &play,
                                .budget = budget};

        CHECK_INT(turns_explore(&run, most, test_seed(), NULL), >, 0);
    }
}

static const struct item_way array_way = {"array", "memory", 0, false, TRUCE_ITEM_ARRAY};
static const struct item_way map_way = {"map", "memory", 0, false, TRUCE_ITEM_MAP};

TEST(items_stay_whole_through_the_operator)
{
    explore(TRUCE_ITEM_FORM_OPERATOR, &array_way, (struct turns_budget){1, 1, 1},
            test_scale("TRUCE_ITEM_TURNS", 60));
}

TEST(items_stay_whole_through_array_filters)
{
    explore(TRUCE_ITEM_FORM_FILTERS, &array_way, (struct turns_budget){1, 1, 1},
            test_scale("TRUCE_ITEM_TURNS", 60));
}

TEST(items_stay_whole_through_the_positional_operator)
{
    explore(TRUCE_ITEM_FORM_POSITIONAL, &array_way, (struct turns_budget){1, 1, 1},
            test_scale("TRUCE_ITEM_TURNS", 100));
}

TEST(items_stay_whole_in_maps)
{
    explore(TRUCE_ITEM_FORM_AUTO, &map_way, (struct turns_budget){1, 1, 1},
            test_scale("TRUCE_ITEM_TURNS", 100));
}
