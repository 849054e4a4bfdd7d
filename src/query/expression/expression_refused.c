#include "query/expression/expression_tree.h"

/* Operators of MongoDB that truce does not have, each with the reason, so that they are not
 * reported as unknown. */

static truce_status refuse_javascript(struct expression_compiler *compiler,
                                      const struct expression_operator *operator,
                                      struct value argument, struct expression_node **node)
{
    return truce__refuse(31264, compiler->error,
                         "%s needs JavaScript, which this server does not run", operator->name);
}

static truce_status compile_meta(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    static const char *const known[] = {"textScore",    "randVal",         "searchScore",
                                        "geoNearPoint", "geoNearDistance", "searchHighlights",
                                        "recordId",     "indexKey",        "sortKey"};
    const char *name;
    uint32_t length;

    if (argument.type != BSON_TYPE_UTF8)
        return truce__refuse(17307, compiler->error, "$meta takes a string");
    name = truce__value_text(argument, &length);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcmp(known[i], name))
            return truce__refuse(40218, compiler->error, "$meta has no \"%s\" here", name);
    }
    return truce__refuse(17308, compiler->error, "$meta does not know \"%s\"", name);
}

const struct expression_operator truce__expressions_refused[] = {
    {"$function", .compile = refuse_javascript},
    {"$_internalJsEmit", .compile = refuse_javascript},
    {"$accumulator", .compile = refuse_javascript},
    {"$where", .compile = refuse_javascript},
    {"$meta", .compile = compile_meta},
    {NULL},
};
