#include "store/collection_alias.h"

#include <stdatomic.h>
#include <string.h>

#include "bson/array.h"
#include "bson/value.h"
#include "query/aggregate/aggregate.h"

struct aliases {
    atomic_int references;
    struct alias *first;
};

static _Thread_local struct aliases *in_use;

struct aliases *truce__aliases_new(void)
{
    struct aliases *made = bson_malloc0(sizeof *made);

    atomic_init(&made->references, 1);
    return made;
}

struct aliases *truce__aliases_hold(struct aliases *aliases)
{
    if (aliases)
        atomic_fetch_add(&aliases->references, 1);
    return aliases;
}

void truce__aliases_release(struct aliases *aliases)
{
    if (!aliases || atomic_fetch_sub(&aliases->references, 1) > 1)
        return;
    while (aliases->first) {
        struct alias *gone = aliases->first;

        aliases->first = gone->next;
        bson_free(gone->name);
        bson_free(gone->on);
        bson_destroy(gone->stages);
        bson_free(gone);
    }
    bson_free(aliases);
}

void truce__aliases_add(struct aliases *aliases, const char *name, const char *on,
                        const bson_t *stages)
{
    struct alias *alias = bson_malloc0(sizeof *alias);

    *alias = (struct alias){.next = aliases->first,
                            .name = bson_strdup(name),
                            .on = bson_strdup(on),
                            .stages = bson_copy(stages)};
    aliases->first = alias;
}

const struct alias *truce__aliases_find(const struct aliases *aliases, const char *name)
{
    const struct alias *at = aliases ? aliases->first : NULL;

    while (at && strcmp(at->name, name) != 0)
        at = at->next;
    return at;
}

struct aliases *truce__aliases_use(struct aliases *aliases)
{
    struct aliases *before = in_use;

    in_use = aliases;
    return before;
}

struct aliases *truce__aliases_used(void)
{
    return in_use;
}

void truce__alias_pipeline(const struct alias *alias, const bson_t *filter, bson_t *stages)
{
    struct fields fields = truce__fields(truce__value_document(alias->stages));
    struct array list = {.to = stages};
    bson_t *last;

    bson_init(stages);
    while (truce__fields_next(&fields))
        truce__array_add(&list, fields.value);
    if (!filter)
        return;
    last = BCON_NEW("$match", BCON_DOCUMENT(filter));
    truce__array_add_document(&list, last);
    bson_destroy(last);
}

/* Returns the path for which the filter requires equality to the id `mark`, or NULL. The caller
 * frees it. */
static char *find_marked(struct value filter, const bson_oid_t *mark)
{
    struct fields fields = truce__fields(filter);
    char *found = NULL;

    while (!found && truce__fields_next(&fields)) {
        struct fields filters = truce__fields(fields.value);

        if (fields.value.type == BSON_TYPE_OID &&
            !memcmp(fields.value.data, mark->bytes, sizeof mark->bytes))
            found = bson_strdup(fields.key);
        while (!found && !strcmp(fields.key, "$and") && truce__fields_next(&filters))
            found = find_marked(filters.value, mark);
    }
    return found;
}

/* Returns whether a stage reads another collection. Each run of such a pipeline for a single
 * document may read that whole collection, and one run over all documents reads it only once. */
static bool alias_joins(const bson_t *stages)
{
    struct fields fields = truce__fields(truce__value_document(stages));

    while (truce__fields_next(&fields)) {
        struct fields stage = truce__fields(fields.value);

        if (truce__fields_next(&stage) &&
            (!strcmp(stage.key, "$lookup") || !strcmp(stage.key, "$unionWith")))
            return true;
    }
    return false;
}

char *truce__alias_path(const struct alias *alias, const char *path)
{
    struct pipeline *pipeline = NULL;
    bson_t filter = BSON_INITIALIZER, stages;
    struct pipeline_head head;
    char *found = NULL;
    bson_oid_t mark;

    if (alias_joins(alias->stages))
        return NULL;
    bson_oid_init(&mark, NULL);
    BSON_APPEND_OID(&filter, path, &mark);
    truce__alias_pipeline(alias, &filter, &stages);
    if (!truce__pipeline_new(&stages, &pipeline, NULL)) {
        truce__pipeline_head(pipeline, &head);
        if (head.filter)
            found = find_marked(truce__value_document(head.filter), &mark);
    }
    truce__pipeline_free(pipeline);
    bson_destroy(&stages);
    bson_destroy(&filter);
    return found;
}
