#ifndef TRUCE_CLI_SET_SET_H
#define TRUCE_CLI_SET_SET_H

/* The options that select a set of a collection, and the set that they describe. */
#include "base/arena.h"
#include "cli/core/operation_row.h"
#include "truce/set.h"

/* The options of a row of sets whose names differ from their fields. */
#define CLI_SET_NAMED "--list field --watermark-field watermark"
/* The fields of a set. The only set of a collection needs none of them once it is defined. */
#define CLI_SET_FIELDS "field key name deleted seqField sourceField watermark byElement"
#define CLI_SET_ROW                                                                                \
    &(const struct cli_row)                                                                        \
    {                                                                                              \
        .name = "truceSetDefine", .named = CLI_SET_NAMED, .fields = CLI_SET_FIELDS                 \
    }

/* The set that the options and the definition in the store describe. */
struct cli_set {
    truce_set *set;
    /* The options. Their strings are in the arena. */
    truce_set_options options;
    struct arena arena;
};

/* Opens the set. Returns CLI_DONE, or the exit code after printing the error: CLI_USAGE if an
 * option is missing that no definition replaces. The caller releases the set in both cases. */
int cli_set_open(const struct cli *cli, const char *collection, struct cli_set *set);
void cli_set_release(struct cli_set *set);

#endif
