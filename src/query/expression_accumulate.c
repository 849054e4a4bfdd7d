#include "query/expression_tree.h"

const struct expression_operator truce__expressions_accumulate[] = {
    {NULL},
};
