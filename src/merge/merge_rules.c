/* Parses the rules of a merge and finds the rule of each value that both sides changed. */
#include "merge/merge_parts.h"

/* The rule of one path. */
struct rule {
    char *path;
    enum merge_policy policy;
    /* The rule gives a policy. A rule may give only the key of an array. */
    bool has_policy;
    char *key;
};

struct merge_rules {
    struct rule *rules;
    uint32_t count;
    /* The policy of values that no rule names. */
    enum merge_policy otherwise;
    /* The policy of at least one rule is "sum". */
    bool sums;
};

static const char *const policy_names[] = {"ask", "mine", "theirs", "newest", "max",
                                           "min", "sum",  "union",  "text"};

/* Reads the name of a policy. The position in policy_names is its number. */
static truce_status read_policy(const char *path, struct value value, enum merge_policy *policy,
                                bson_error_t *error)
{
    char text[100];
    uint32_t length;

    for (size_t i = 0; value.type == BSON_TYPE_UTF8 && i < sizeof policy_names / sizeof(char *);
         i++) {
        if (!strcmp(truce__value_text(value, &length), policy_names[i])) {
            *policy = (enum merge_policy)i;
            return TRUCE_OK;
        }
    }
    return truce__fail(
        TRUCE_INVALID, error,
        "invalid policy of \"%s\": %s; valid ones are ask, mine, theirs, newest, max, min, "
        "sum, union, and text",
        path, truce__value_show(value, text, sizeof text));
}

/* Reads the policy and the key of a rule. */
static truce_status read_details(struct rule *rule, struct value details, bson_error_t *error)
{
    struct fields fields = truce__fields(details);

    while (truce__fields_next(&fields)) {
        truce_status status = TRUCE_OK;
        uint32_t length;

        if (!strcmp(fields.key, "policy")) {
            status = read_policy(rule->path, fields.value, &rule->policy, error);
            rule->has_policy = true;
        } else if (strcmp(fields.key, "key") != 0) {
            status =
                truce__fail(TRUCE_INVALID, error,
                            "the rule of \"%s\" may have \"policy\" and \"key\", but not \"%s\"",
                            rule->path, fields.key);
        } else if (fields.value.type != BSON_TYPE_UTF8 ||
                   !*truce__value_text(fields.value, &length)) {
            status = truce__fail(TRUCE_INVALID, error,
                                 "the key of \"%s\" must be the name of a field of its elements",
                                 rule->path);
        } else {
            bson_free(rule->key);
            rule->key = bson_strdup(truce__value_text(fields.value, &length));
        }
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Adds the rule of one path, or sets the default policy. Fails with INVALID for a path with empty
 * names, or one that begins with "$". */
static truce_status rules_read_rule(struct merge_rules *rules, const struct fields *field,
                                    bson_error_t *error)
{
    struct rule *rule;

    if (!strcmp(field->key, "$default"))
        return read_policy(field->key, field->value, &rules->otherwise, error);
    if (!field->key_length || field->key[0] == '.' || field->key[0] == '$' ||
        field->key[field->key_length - 1] == '.' || strstr(field->key, ".."))
        return truce__fail(TRUCE_INVALID, error, "\"%s\" is not a valid path of a rule",
                           field->key);
    rule = &rules->rules[rules->count++];
    rule->path = bson_strdup(field->key);
    if (field->value.type == BSON_TYPE_DOCUMENT)
        return read_details(rule, field->value, error);
    rule->has_policy = true;
    return read_policy(rule->path, field->value, &rule->policy, error);
}

truce_status truce__merge_rules_new(const bson_t *rules, struct merge_rules **made,
                                    bson_error_t *error)
{
    struct merge_rules *new = bson_malloc0(sizeof *new);
    uint32_t count = rules ? bson_count_keys(rules) : 0;
    truce_status status = TRUCE_OK;

    *made = NULL;
    if (count > MERGE_RULES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "there are %u rules; the maximum is %d", count,
                             MERGE_RULES_MAX);
    new->rules = bson_malloc0((count + 1) * sizeof *new->rules);
    if (!status && rules) {
        struct fields fields = truce__fields(truce__value_document(rules));

        while (!status && truce__fields_next(&fields))
            status = rules_read_rule(new, &fields, error);
    }
    for (uint32_t i = 0; i < new->count; i++)
        new->sums |= new->rules[i].policy == MERGE_SUM;
    new->sums |= new->otherwise == MERGE_SUM;
    if (status)
        truce__merge_rules_free(new);
    else
        *made = new;
    return status;
}

void truce__merge_rules_free(struct merge_rules *rules)
{
    if (!rules)
        return;
    for (uint32_t i = 0; i < rules->count; i++) {
        bson_free(rules->rules[i].path);
        bson_free(rules->rules[i].key);
    }
    bson_free(rules->rules);
    bson_free(rules);
}

/* Returns the number of names in the rule's path if the path is the current one or above it, or
 * 0. */
static uint32_t rules_reach(const struct rule *rule, const struct merge *merge)
{
    const char *at = rule->path;

    for (uint32_t i = 0; i < merge->depth; i++) {
        size_t length = strcspn(at, ".");

        if (length != merge->names[i].length || memcmp(at, merge->names[i].text, length) != 0)
            return 0;
        if (!at[length])
            return i + 1;
        at += length + 1;
    }
    return 0;
}

enum merge_policy truce__merge_policy(const struct merge *merge)
{
    const struct merge_rules *rules = merge->options->rules;
    enum merge_policy policy = rules ? rules->otherwise : MERGE_ASK;
    uint32_t nearest = 0;

    for (uint32_t i = 0; rules && i < rules->count; i++) {
        uint32_t length = rules->rules[i].has_policy ? rules_reach(&rules->rules[i], merge) : 0;

        if (length > nearest) {
            nearest = length;
            policy = rules->rules[i].policy;
        }
    }
    return policy;
}

bool truce__merge_sums(const struct merge *merge)
{
    return merge->options->rules && merge->options->rules->sums;
}

const char *truce__merge_key(const struct merge *merge)
{
    const struct merge_rules *rules = merge->options->rules;

    for (uint32_t i = 0; rules && i < rules->count; i++) {
        if (rules->rules[i].key && merge->depth &&
            rules_reach(&rules->rules[i], merge) == merge->depth)
            return rules->rules[i].key;
    }
    return NULL;
}
