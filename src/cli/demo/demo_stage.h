#ifndef TRUCE_CLI_DEMO_DEMO_STAGE_H
#define TRUCE_CLI_DEMO_DEMO_STAGE_H

/* The store of a story: a file in a directory of its own, or the store of --store. The latter must
 * be empty and is emptied at the end. A story of one collection needs only a store without this
 * collection, and drops it at the end. */
#include "cli/core/cli.h"

struct demo_stage {
    struct cli *cli;
    /* The store, and the collection of the story, or NULL if it has several. */
    const char *uri, *collection;
    /* The directory of the story's own file, and the URI of this file. */
    char directory[80], own[120];
    /* The store of --store was empty. */
    bool all;
};

/* Prepares the store. Returns CLI_DONE, or the exit code after printing the reason. `story` names
 * the file. */
int demo_stage_begin(struct demo_stage *stage, struct cli *cli, const char *story,
                     const char *collection);
/* Empties the store again. No process of the story may run. */
truce_status demo_stage_clear(const struct demo_stage *stage, bson_error_t *error);
/* Empties the store at the end, unless --keep is given; then prints its path. */
void demo_stage_end(const struct demo_stage *stage);

#endif
