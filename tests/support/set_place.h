#ifndef TRUCE_TESTS_SUPPORT_SET_PLACE_H
#define TRUCE_TESTS_SUPPORT_SET_PLACE_H

/* A store with the set of the docs, in memory, in a file, or at the server that the program runs
 * at. */
#include "tests/support/server.h"
#include "tests/support/tutorial.h"

struct place {
    truce_store *store;
    truce_set *set;
    /* The requested write form, or TRUCE_SET_FORM_AUTO if the store does not support it. */
    truce_set_form form;
    /* {student_id: 1}. */
    bson_t *key;
    /* The URI of a store in a file. */
    char uri[600];
};

static inline void place_open(struct place *place, bool file, truce_set_form form)
{
    static int number;
    bson_error_t error;

    if (file) {
        snprintf(place->uri, sizeof place->uri, "file:%s/place%d.truce", test_directory(),
                 ++number);
        CHECK_OK(truce_store_open(place->uri, NULL, &place->store, &error), error);
    } else {
        place->store = server_or_memory();
    }
    if (form == TRUCE_SET_FORM_PIPELINE &&
        !(place->store->capabilities & TRUCE_CAN_PIPELINE_UPDATE))
        form = TRUCE_SET_FORM_AUTO;
    place->form = form;
    place->set = tutorial_set(place->store, &(truce_set_options){.form = form});
    place->key = test_bson("{'student_id': 1}");
}

static inline void place_close(struct place *place)
{
    truce_set_free(place->set);
    truce_store_close(place->store);
    bson_destroy(place->key);
}

static inline void place_reopen(struct place *place)
{
    bson_error_t error;

    truce_set_free(place->set);
    truce_store_close(place->store);
    CHECK_OK(truce_store_open(place->uri, NULL, &place->store, &error), error);
    place->set = tutorial_set(place->store, &(truce_set_options){.form = place->form});
}

/* At a server the tests cannot look into a file. */
static inline bool has_files(void)
{
    return !server_under_test();
}

static inline int64_t watermark(struct place *place)
{
    int64_t number = -1;
    bson_error_t error;

    CHECK_OK(truce_set_watermark(place->set, &number, NULL, &error), error);
    return number;
}

static inline truce_set_collected collect(struct place *place)
{
    truce_set_collected collected = {0};
    bson_error_t error;

    CHECK_OK(truce_set_collect(place->set, &collected, &error), error);
    return collected;
}

#endif
