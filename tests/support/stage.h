#ifndef TRUCE_TESTS_SUPPORT_STAGE_H
#define TRUCE_TESTS_SUPPORT_STAGE_H

/* A store on a server without data (fake.h), which replies as an empty server would, except for the
 * replies of a script. */
#include "tests/support/fake.h"
#include "tests/support/test.h"
#include "truce/store.h"

struct script {
    /* The reply to the first `times` commands of this name. If it is NULL, the connection ends
     * instead. */
    const char *name, *reply;
    int times;
    /* The number of commands of this name so far. */
    int seen;
    /* The reply to later commands of this name; NULL means that of an empty server. */
    const char *then;
    /* The first `times` commands get no reply at all. */
    bool silent;
    /* Other statements of transactions get a recoveryToken, as from a mongos. */
    bool token;
    /* NULL, or called first for every command. If it returns FAKE_PASS, the script decides. */
    fake_answer *own;
    void *arg;
};

struct stage {
    struct script script;
    truce_store_options options;
    struct fake *fake;
    truce_store *store;
};

/* Opens the store; `options` are those of the URI. Call strike() in any case. */
truce_status raise_stage(struct stage *stage, enum fake_deployment deployment, int32_t wire,
                         const char *options, bson_error_t *error);
void strike(struct stage *stage);
/* Replaces the script of the stage. */
void stage_script(struct stage *stage, struct script script);

/* Checks the field of the last command of this name against the JSON. If `json` is "", the field
 * must be missing. */
void check_asked(struct stage *stage, const char *name, const char *field, const char *json,
                 int line);
#define CHECK_ASKED(name, field, json) check_asked(&stage, name, field, json, __LINE__)

#endif
