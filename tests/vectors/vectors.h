#ifndef TRUCE_TESTS_VECTORS_H
#define TRUCE_TESTS_VECTORS_H

/*
 * Runs recorded answers of a real MongoDB server against a store. A case is one line of Extended
 * JSON: inputs and an answer, see run.c for the kinds. main.c reads files and arguments, case.c
 * reads a case's fields, and run.c runs it. variants.c says how it is run again with indexes,
 * compare.c compares values, and judge.c compares answers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "truce/store.h"

/* ---- case.c ---- */

struct vector_case {
    bson_t *line;       /* the whole case */
    bson_t *newer;      /* fields that replace the case's own (exceptions.txt), or NULL */
    const char *reason; /* with `newer` */
    const char *id, *kind, *group;
    bool generated_id, now;
};

/* NULL: the line is not a case. */
struct vector_case *vector_case_new(const char *json, size_t size);
void vector_case_free(struct vector_case *vector);

/* A field of the answer or the input; false: it is missing. `raw` fields are unwrapped. */
bool vector_field(const struct vector_case *vector, const char *name, bson_iter_t *field);
bool vector_has(const struct vector_case *vector, const char *name);
int64_t vector_number(const struct vector_case *vector, const char *name, int64_t otherwise);
bool vector_truth(const struct vector_case *vector, const char *name);
/* The field as a document that borrows; false: it is missing, or not a document or array. */
bool vector_document(const struct vector_case *vector, const char *name, bson_t *document);
/* The same for a field of any document; `document` is empty if the field is missing. */
bool vector_sub(const bson_t *parent, const char *name, bson_t *document);
bool vector_sub_truth(const bson_t *parent, const char *name);

/* ---- compare.c ---- */

struct vector_rules {
    bool generated_id; /* ObjectIds ffff... match any */
    bool now;          /* dates and timestamps of 0 match any */
    bool as_sets;      /* the order within arrays does not count */
};

bool vector_same_value(const bson_value_t *expected, const bson_value_t *actual,
                       const struct vector_rules *rules);
bool vector_same(const bson_t *expected, const bson_t *actual, const struct vector_rules *rules);

/* ---- judge.c ---- */

/* True if the answer is right. `fields` (NULL-terminated) are those that the answer of the kind
 * has. `varied`: other indexes than the recorded ones decide the order of documents that no sort
 * decides. */
bool vector_judge(const struct vector_case *vector, const char *const *fields, bool varied,
                  const bson_t *answer);

/* ---- run.c ---- */

/* The answer of a run, in the shape of the case's own answer: {match: [...]}, {error: {code}} ...
 */
struct vector_answer {
    bson_t document;
    char note[600]; /* of errors: the text */
};

struct vector_run {
    truce_store *store;
    const struct vector_case *vector;
    const struct variant *variant; /* NULL: as recorded */
};

/* Runs the case in empty collections and leaves nothing. True: the answer is right. */
bool vector_run(struct vector_run *run, struct vector_answer *answer);

/* ---- variants.c ---- */

/* One way to run a case again, which must not change its answer. */
struct variant {
    const char *name;
    const char *kinds; /* the kinds of cases that it applies to, with spaces around each */
    bool hinted;       /* finds use each of the indexes in turn as the hint */
    bool without;      /* the indexes of the case that only make reads faster are left out */
    /* Creates the indexes; returns the number made. */
    int (*prepare)(truce_store *store, const char *collection, const struct vector_case *vector);
};

extern const struct variant vector_variants[];
extern const size_t vector_variants_count;

#endif
