#ifndef TRUCE_TESTS_SUPPORT_STAGE_H
#define TRUCE_TESTS_SUPPORT_STAGE_H

/* A store on a server without data (fake.h) that answers as an empty one would, except for the
 * answers of a script. */
#include "tests/support/fake.h"
#include "tests/support/test.h"
#include "truce/store.h"

struct script {
    const char *name, *reply; /* for the first commands of this name; reply NULL: cut */
    int times;
    int seen;         /* commands of this name */
    const char *then; /* for those after; NULL: as an empty server */
    bool silent;      /* no answer, instead of `reply` */
    bool token;       /* statements of transactions answer with a recoveryToken, as a mongos does */
    fake_answer
        *own; /* NULL, or asked first, for every command: FAKE_PASS continues with the script */
    void *arg;
};

struct stage {
    struct script script;
    truce_store_options options;
    struct fake *fake;
    truce_store *store;
};

/* Opens it; `options` are those of the URI. strike() in any case. */
truce_status raise_stage(struct stage *stage, enum fake_deployment deployment, int32_t wire,
                         const char *options, bson_error_t *error);
void strike(struct stage *stage);
/* Replaces the script of the stage. */
void stage_script(struct stage *stage, struct script script);

/* The command's field is as in JSON; "": it has none. */
void check_asked(struct stage *stage, const char *name, const char *field, const char *json,
                 int line);
#define CHECK_ASKED(name, field, json) check_asked(&stage, name, field, json, __LINE__)

#endif
