#ifndef TRUCE_CLI_DEMO_DEMO_STAGE_H
#define TRUCE_CLI_DEMO_DEMO_STAGE_H

/*
 * Where a story plays: a file of its own in a directory of its own, or the store of --store. That must be empty, and is
 * emptied at the end; or, for a story of one collection, be without this collection, which is dropped at the end.
 */
#include "cli/core/cli.h"

struct demo_stage {
    struct cli *cli;
    const char *uri, *collection; /* collection, NULL: a story of several */
    char directory[80], own[120]; /* own: uri, if there is no --store */
    bool all;                     /* the store of --store was empty */
};

/* CLI_DONE, or the exit code with the reason printed. `story` is the name of the file. */
int demo_stage_begin(struct demo_stage *stage, struct cli *cli, const char *story,
                     const char *collection);
/* As it was at first. No process of the story may run. */
truce_status demo_stage_clear(const struct demo_stage *stage, bson_error_t *error);
/* The same at the end, unless there is --keep: then it says where the store is. */
void demo_stage_end(const struct demo_stage *stage);

#endif
