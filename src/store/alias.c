#include "store/alias.h"

#include <stdatomic.h>

#include "bson/value.h"

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

static bool only_filters(const bson_t *stages)
{
    bson_iter_t at, stage;

    if (bson_iter_init(&at, stages))
        while (bson_iter_next(&at))
            if (!BSON_ITER_HOLDS_DOCUMENT(&at) || !bson_iter_recurse(&at, &stage) ||
                !bson_iter_next(&stage) || strcmp(bson_iter_key(&stage), "$match") != 0)
                return false;
    return true;
}

void truce__aliases_add(struct aliases *aliases, const char *name, const char *on,
                        const bson_t *stages)
{
    struct alias *alias = bson_malloc0(sizeof *alias);

    *alias = (struct alias){.next = aliases->first,
                            .name = bson_strdup(name),
                            .on = bson_strdup(on),
                            .stages = bson_copy(stages),
                            .filters = only_filters(stages)};
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
    uint32_t count = 0;
    bson_t *last;

    bson_init(stages);
    while (truce__fields_next(&fields))
        truce__value_append_element(stages, &count, fields.value);
    if (!filter)
        return;
    last = BCON_NEW("$match", BCON_DOCUMENT(filter));
    truce__value_append_element(stages, &count, truce__value_document(last));
    bson_destroy(last);
}
