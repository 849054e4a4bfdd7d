#ifndef TESTS_SUPPORT_TUTORIAL_H
#define TESTS_SUPPORT_TUTORIAL_H

/* Makes handles. Options that a test leaves out have the values of the tutorials. */
#include <truce/truce.h>

static inline truce_set *tutorial_set(truce_store *store, const truce_set_options *options)
{
    truce_set_options named = options ? *options : (truce_set_options){0};

    named.collection = named.collection ? named.collection : "students";
    named.key = named.key ? named.key : "student_id";
    named.field = named.field ? named.field : "classes";
    named.name = named.name ? named.name : "name";
    return truce_set_new(store, &named);
}

static inline truce_item *tutorial_item(truce_store *store, const truce_item_options *options)
{
    truce_item_options named = options ? *options : (truce_item_options){0};

    named.collection = named.collection ? named.collection : "employees";
    named.field = named.field ? named.field : "badges";
    named.identity = named.identity ? named.identity : "type";
    return truce_item_new(store, &named);
}

static inline truce_revision *tutorial_revision(truce_store *store,
                                                const truce_revision_options *options)
{
    truce_revision_options named = options ? *options : (truce_revision_options){0};

    named.collection = named.collection ? named.collection : "posts";
    return truce_revision_new(store, &named);
}

#endif
