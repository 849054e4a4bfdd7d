/*
 * $group, and the stages that are parsed into it: $count and $sortByCount.
 *
 * Groups are in a hash table by the key (key_encoding.h) of their id, so that equal numbers of
 * different types are one group. A group and the states of its accumulators are one piece of an
 * arena; for a document whose group exists, only accumulators such as $push allocate memory.
 *
 *     table:  hash | entry ──>  next, hash, id | key ... | states ... | id's bytes
 *
 * If the groups do not fit into memory, the table is frozen. Documents of its groups are still
 * added. Documents of other groups are written, as evaluated inputs, to one of PARTITIONS files,
 * chosen by the hash of the group. At the end the groups of the table are returned. Then each file
 * is read like an input, one level deeper, with other bits of the hash:
 *
 *     input ──> table 0 ──> output
 *                  └─ others ─> files 0 .. 15, each: ──> table ──> output
 *                                                          └─ others ─> files ...
 *
 * If the frozen groups themselves grow (a $push), all of them are written to the files, each before
 * the documents that are still to come for it. The order within a group therefore never changes. A
 * single group that does not fit is refused.
 *
 * Invariants:
 *   1. At any time a group is in the table or in exactly one file. Within the file, the state of
 *      the group, if it is there, comes before the group's documents.
 *   2. A file of level n holds only groups that agree in the first n * PARTITION_BITS bits of hash.
 */
#include "base/limits.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/aggregate/accumulator.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

struct id_part {
    /* The name of the part, or NULL if the id is a single expression. */
    char *name;
    struct expression *expression;
    struct value constant;
    bool is_constant;
    /* The field whose value is this part, or NULL if the expression is not a single field. */
    char *field;
};

struct group_stage {
    struct id_part *parts;
    uint32_t count;
    bool has_id;
    struct accumulators list;
};

/* ---- $group from BSON ------------------------------------------------------------------------ */

static truce_status group_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error);

static void group_free(void *data)
{
    struct group_stage *stage = data;

    for (uint32_t i = 0; i < stage->count; i++) {
        bson_free(stage->parts[i].name);
        bson_free(stage->parts[i].field);
        truce__expression_free(stage->parts[i].expression);
    }
    bson_free(stage->parts);
    truce__accumulators_release(&stage->list);
    bson_free(stage);
}

/* Returns the field whose value is "_id", or "_id.x" if the id has parts. */
static const char *group_takes(const void *data, const char *path, size_t *length)
{
    const struct group_stage *stage = data;

    if (strncmp(path, "_id", 3) != 0 || (path[3] && path[3] != '.'))
        return NULL;
    *length = 3;
    if (stage->count == 1 && !stage->parts[0].name)
        return stage->parts[0].field;
    for (uint32_t i = 0; path[3] && i < stage->count; i++) {
        size_t of_name = strlen(stage->parts[i].name);

        if (strcspn(path + 4, ".") == of_name && !memcmp(path + 4, stage->parts[i].name, of_name)) {
            *length = 4 + of_name;
            return stage->parts[i].field;
        }
    }
    return NULL;
}

static const struct stage_kind group_kind = {
    .open = group_open, .free = group_free, .takes = group_takes};

/* Returns the name in "$name", or NULL if the expression has another form. */
static char *parse_field_of(struct value expression)
{
    uint32_t length;
    const char *text;

    if (expression.type != BSON_TYPE_UTF8)
        return NULL;
    text = truce__value_text(expression, &length);
    return length > 1 && text[0] == '$' && text[1] != '$' && !memchr(text, '.', length)
               ? bson_strndup(text + 1, length - 1)
               : NULL;
}

/* Compiles an expression of _id. `name` is NULL if _id is a single expression. */
static truce_status parse_add_part(struct group_stage *stage, const char *name, struct value value,
                                   const char *const *variables, bson_error_t *error)
{
    struct id_part part = {0};
    truce_status status;

    if (name && strchr(name, '.'))
        return truce__refuse(17390, error, "$group: the field '%s' of _id has a dot", name);
    status = truce__expression_new(value, variables, &part.expression, error);
    if (status)
        return status;
    part.name = name ? bson_strdup(name) : NULL;
    part.is_constant = truce__expression_constant_value(part.expression, &part.constant);
    part.field = parse_field_of(value);
    stage->parts = bson_realloc(stage->parts, (stage->count + 1) * sizeof *stage->parts);
    stage->parts[stage->count++] = part;
    return TRUCE_OK;
}

/* Compiles _id. A document whose first field begins with `$` is a single expression; any other
 * document has an expression for each field. */
static truce_status parse_id(struct group_stage *stage, struct value id,
                             const char *const *variables, bson_error_t *error)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (stage->has_id)
        return truce__refuse(15948, error, "$group has _id twice: expected one");
    stage->has_id = true;
    if (id.type != BSON_TYPE_DOCUMENT)
        return parse_add_part(stage, NULL, id, variables, error);
    fields = truce__fields(id);
    if (!truce__fields_next(&fields) || fields.key[0] == '$')
        return parse_add_part(stage, NULL, id, variables, error);
    fields = truce__fields(id);
    while (!status && truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            status = truce__refuse(17390, error, "$group: the field '%s' of _id begins with '$'",
                                   fields.key);
        else
            status = parse_add_part(stage, fields.key, fields.value, variables, error);
    }
    return status;
}

truce_status truce__stage_group(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    struct group_stage *stage;
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(15947, argument, "$group must be a document", error);
    stage = bson_malloc0(sizeof *stage);
    fields = truce__fields(argument);
    while (!status && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "_id"))
            status = parse_id(stage, fields.value, parser->variables, error);
        else
            status = truce__accumulators_add_field(&stage->list, fields.key, fields.key_length,
                                                   fields.value, parser->variables, error);
    }
    if (!status && !stage->has_id)
        status = truce__refuse(15955, error,
                               "$group has no _id: expected an expression, or null for one group");
    if (status)
        group_free(stage);
    else
        truce__stage_push(parser, &group_kind, stage);
    return status;
}

/* ---- $count and $sortByCount ----------------------------------------------------------------- */

/* Appends the stage {$group: {_id: <id>, <name>: {$sum: 1}}}. */
static truce_status push_counting_group(struct stage_parser *parser, struct value id,
                                        const char *name, bson_error_t *error)
{
    bson_t group = BSON_INITIALIZER, sum;
    truce_status status;

    truce__value_append(&group, "_id", 3, id);
    BSON_APPEND_DOCUMENT_BEGIN(&group, name, &sum);
    BSON_APPEND_INT32(&sum, "$sum", 1);
    bson_append_document_end(&group, &sum);
    status = truce__stage_group(parser, truce__value_document(&group), error);
    bson_destroy(&group);
    return status;
}

truce_status truce__stage_count(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    bson_t project = BSON_INITIALIZER;
    size_t length;
    const char *name = truce__stage_text(argument, &length);
    truce_status status;

    if (!name)
        return truce__stage_refuse(40156, argument, "$count must be the name of a field", error);
    if (length == 0)
        return truce__refuse(
            40157, error,
            "$count's field name must not be empty: give a name, for example {$count: \"total\"}");
    if (name[0] == '$')
        return truce__stage_refuse(40158, argument, "$count's field name must not begin with '$'",
                                   error);
    if (strlen(name) != length)
        return truce__refuse_value(40159, argument, error,
                                   "$count's field name must not contain a zero byte");
    if (strchr(name, '.'))
        return truce__stage_refuse(40160, argument, "$count's field name must not have a dot",
                                   error);
    status = push_counting_group(parser, truce__value_null(), name, error);
    BSON_APPEND_INT32(&project, "_id", 0);
    if (!status)
        status = truce__stage_project(parser, truce__value_document(&project), error);
    bson_destroy(&project);
    return status;
}

truce_status truce__stage_sort_by_count(struct stage_parser *parser, struct value argument,
                                        bson_error_t *error)
{
    bson_t sort = BSON_INITIALIZER;
    size_t length;
    const char *text = truce__stage_text(argument, &length);
    truce_status status;

    if (argument.type == BSON_TYPE_DOCUMENT) {
        struct fields fields = truce__fields(argument);

        if (!truce__fields_next(&fields) || fields.key[0] != '$')
            return truce__refuse_value(40147, argument, error,
                                       "$sortByCount must be a path or an expression");
    } else if (!text) {
        return truce__stage_refuse(40149, argument, "$sortByCount must be a path or an expression",
                                   error);
    } else if (text[0] != '$') {
        return truce__stage_refuse(40148, argument, "$sortByCount's path must begin with '$'",
                                   error);
    }
    status = push_counting_group(parser, argument, "count", error);
    BSON_APPEND_INT32(&sort, "count", -1);
    if (!status)
        status = truce__stage_sort(parser, truce__value_document(&sort), error);
    bson_destroy(&sort);
    return status;
}

/* ---- $group ---------------------------------------------------------------------------------- */

#define PARTITION_BITS 4
#define PARTITIONS     (1u << PARTITION_BITS)
#define LEVELS_MAX     (64 / PARTITION_BITS)
#define TABLE_FIRST    64
#define KEY_OF_WHOLE   0xff

/* A group. Its id is the value of one expression, or a document of fields with an expression each,
 * which is made only once for a group. As in MongoDB, a missing value becomes null if the id has
 * one part, and a missing field if it has several. */
struct entry {
    /* The next group, in the order of the groups' first documents. */
    struct entry *next;
    uint64_t hash;
    uint32_t key_size;
    struct value id;
    uint8_t key[];
};

struct slot {
    uint64_t hash;
    struct entry *entry;
};

struct part {
    struct spill_file file;
    /* The level of the table that will be made from the file. */
    unsigned level;
};

struct group_stream {
    struct stream base;
    /* The memory in use when the limit was last checked. Most documents use no more, so the check
     * is skipped. */
    size_t noted;
    const struct group_stage *stage;
    struct spill_options options;
    /* All input was read. */
    bool drained;
    /* The number of times that the current documents were partitioned into files. */
    unsigned level;
    /* The memory of the groups, and the table. */
    struct arena groups;
    struct slot *table;
    /* The number of slots of the table, a power of two, and of groups. */
    size_t room, count;
    /* The list of the groups, in the order of their first documents. */
    struct entry *first, *last;
    /* No new group is added to the table: documents of other groups are written to files. */
    bool frozen;
    /* The files of this level, and the files that are still to be read. */
    struct spill_file writing[PARTITIONS];
    struct part *parts;
    size_t parts_count;
    /* Scratch memory for one document. */
    struct value *id_parts;
    struct accumulator_input *inputs;
    struct buffer key, sort_key, row;
};

/* The key of a group that is looked up or written. */
struct group_key {
    uint64_t hash;
    const uint8_t *bytes;
    uint32_t size;
    /* The id, or VALUE_MISSING before it is made from stream->id_parts. */
    struct value id;
};

/* ---- hashing -------------------------------------------------------------------------------- */

static uint64_t group_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Hashes the bytes: each word is mixed into the hash by a multiplication with a constant (after
 * wyhash, Wang Yi 2019). */
static uint64_t group_hash_bytes(const uint8_t *bytes, size_t size)
{
    uint64_t hash = size ^ 0x9e3779b97f4a7c15ULL, word = 0;
    size_t left = size;

    for (; left >= 8; bytes += 8, left -= 8) {
        memcpy(&word, bytes, 8);
        hash = group_mix(hash ^ word, 0xe7037ed1a0b428dbULL);
    }
    /* The last word overlaps the one before it if the size is not a multiple of 8. */
    if (size >= 8)
        memcpy(&word, bytes + left - 8, 8);
    else
        memcpy(&word, bytes, left);
    hash = group_mix(hash ^ word, 0x8ebc6af09c88c6e3ULL);
    return group_mix(hash, 0x589965cc75374cc3ULL);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Returns the size of an entry with a key of that size, up to its states. */
static size_t head_size(uint32_t key_size)
{
    return (sizeof(struct entry) + key_size + 15) & ~(size_t)15;
}

static void *states_of(const struct entry *entry)
{
    return (uint8_t *)(uintptr_t)entry + head_size(entry->key_size);
}

/* Returns the group of a key in the table, or NULL if it is not there. */
static struct entry *group_find_entry(const struct group_stream *stream,
                                      const struct group_key *key)
{
    size_t mask = stream->room - 1;

    if (!stream->room)
        return NULL;
    for (size_t at = key->hash & mask; stream->table[at].entry; at = (at + 1) & mask) {
        const struct slot *slot = &stream->table[at];

        if (slot->hash == key->hash && slot->entry->key_size == key->size &&
            !memcmp(slot->entry->key, key->bytes, key->size))
            return slot->entry;
    }
    return NULL;
}

static void insert_entry(struct group_stream *stream, struct entry *entry)
{
    size_t mask = stream->room - 1, at = entry->hash & mask;

    while (stream->table[at].entry)
        at = (at + 1) & mask;
    stream->table[at] = (struct slot){entry->hash, entry};
}

static void grow_table(struct group_stream *stream)
{
    stream->room = stream->room ? 2 * stream->room : TABLE_FIRST;
    bson_free(stream->table);
    stream->table = bson_malloc0(stream->room * sizeof *stream->table);
    for (struct entry *entry = stream->first; entry; entry = entry->next)
        insert_entry(stream, entry);
}

static void empty_table(struct group_stream *stream)
{
    truce__arena_reset(&stream->groups);
    bson_free(stream->table);
    stream->table = NULL;
    stream->room = stream->count = 0;
    stream->first = stream->last = NULL;
    stream->frozen = false;
}

/* Adds a group to the table and to the end of the list, and begins its accumulators. */
static truce_status group_add_entry(struct group_stream *stream, const struct group_key *key,
                                    struct entry **added, bson_error_t *error)
{
    size_t states = stream->stage->list.state_size;
    size_t head = head_size(key->size);
    struct entry *entry = truce__arena_take(&stream->groups, head + states + key->id.size);
    uint8_t *id = (uint8_t *)entry + head + states;

    memset(entry, 0, head + states);
    entry->hash = key->hash;
    entry->key_size = key->size;
    memcpy(entry->key, key->bytes, key->size);
    if (key->id.size)
        memcpy(id, key->id.data, key->id.size);
    entry->id = (struct value){id, key->id.size, key->id.type};
    if (stream->last)
        stream->last->next = entry;
    else
        stream->first = entry;
    stream->last = entry;
    if (++stream->count * 2 > stream->room)
        grow_table(stream);
    else
        insert_entry(stream, entry);
    *added = entry;
    return truce__accumulators_begin(&stream->stage->list, states_of(entry), entry->id,
                                     &stream->base.context, error);
}

/* ---- files ---------------------------------------------------------------------------------- */

enum record_kind { RECORD_INPUTS, RECORD_STATE };

/* Begins a record in stream->row: | kind 1 | hash 8 | size of the key 4 | key | id | inputs or
 * state |. The caller appends the last part. */
static void begin_record(struct group_stream *stream, enum record_kind kind,
                         const struct group_key *key)
{
    stream->row.size = 0;
    truce__buffer_append_byte(&stream->row, (uint8_t)kind);
    truce__buffer_append(&stream->row, &key->hash, sizeof key->hash);
    truce__buffer_append(&stream->row, &key->size, sizeof key->size);
    truce__buffer_append(&stream->row, key->bytes, key->size);
    truce__value_save(key->id, &stream->row);
}

static truce_status group_write_record(struct group_stream *stream, uint64_t hash,
                                       const void *bytes, size_t size, bson_error_t *error)
{
    unsigned shift = 64 - PARTITION_BITS * (stream->level + 1);
    struct spill_file *file = &stream->writing[hash >> shift & (PARTITIONS - 1)];
    truce_status status = TRUCE_OK;

    if (!file->spill)
        status = truce__spill_begin(file, &stream->options, error);
    return status ? status : truce__spill_put(file, bytes, size, error);
}

static truce_status write_inputs(struct group_stream *stream, const struct group_key *key,
                                 bson_error_t *error)
{
    begin_record(stream, RECORD_INPUTS, key);
    truce__accumulators_save_inputs(&stream->stage->list, stream->inputs, &stream->row);
    return group_write_record(stream, key->hash, stream->row.bytes, stream->row.size, error);
}

/* Writes all groups to the files; the table stays frozen, and empty. */
static truce_status group_spill(struct group_stream *stream, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (struct entry *entry = stream->first; entry && !status; entry = entry->next) {
        struct group_key key = {entry->hash, entry->key, entry->key_size, entry->id};

        begin_record(stream, RECORD_STATE, &key);
        truce__accumulators_save(&stream->stage->list, states_of(entry), &stream->row);
        status = group_write_record(stream, key.hash, stream->row.bytes, stream->row.size, error);
    }
    empty_table(stream);
    stream->frozen = true;
    return status;
}

/* Limits the memory of the table. At the limit, freezes it. If the frozen groups grow beyond
 * another half of the limit, or the budget of the call is used up, writes them to files. Fails if
 * no files are allowed, or if one group alone is too large. */
static truce_status group_limit_memory(struct group_stream *stream, bson_error_t *error)
{
    size_t used = stream->groups.bytes + stream->room * sizeof *stream->table;
    size_t max = stream->options.memory_max;
    bool full;

    if (used == stream->noted)
        return TRUCE_OK;
    stream->noted = used;
    /* The limit also counts the memory of other stages. */
    full = truce__stream_hold(&stream->base, used, NULL) != TRUCE_OK;

    if (used <= max && !(full && used > SPILL_BYTES_MIN))
        return TRUCE_OK;
    if (full && !stream->options.open)
        return truce__budget_full(stream->base.context.budget, error);
    if (!stream->options.open)
        return truce__refuse(
            CODE_NO_DISK_USE_ALLOWED, error,
            "a $group takes more than %zu bytes of memory: set allowDiskUse (in C: "
            "allow_disk_use)",
            max);
    if (!full && (!stream->frozen || used <= max + max / 2)) {
        stream->frozen = true;
        return TRUCE_OK;
    }
    if (stream->count == 1 || stream->level + 1 == LEVELS_MAX)
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error,
                             "one group of a $group takes more than %zu bytes of memory", max);
    return group_spill(stream, error);
}

/* Ends the writing of the files, and appends them to the files that are still to be read. */
static truce_status group_close_files(struct group_stream *stream, bson_error_t *error)
{
    for (unsigned i = 0; i < PARTITIONS; i++) {
        struct part *part;
        truce_status status;

        if (!stream->writing[i].spill)
            continue;
        stream->parts =
            bson_realloc(stream->parts, (stream->parts_count + 1) * sizeof *stream->parts);
        part = &stream->parts[stream->parts_count++];
        *part = (struct part){stream->writing[i], stream->level + 1};
        stream->writing[i] = (struct spill_file){0};
        status = truce__spill_end_run(&part->file, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* ---- adding --------------------------------------------------------------------------------- */

/* Makes the id of a group from the values of its parts: the only value, or a document. */
static truce_status make_id(struct group_stream *stream, struct value *id, bson_error_t *error)
{
    const struct group_stage *stage = stream->stage;
    struct builder builder;

    if (stage->count == 1 && !stage->parts[0].name) {
        *id = stream->id_parts[0];
        return TRUCE_OK;
    }
    truce__builder_begin(&builder, &stream->base.arena,
                         stream->base.arena.bytes + TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    for (uint32_t i = 0; i < stage->count; i++)
        truce__builder_append(&builder, stage->parts[i].name, strlen(stage->parts[i].name),
                              stream->id_parts[i]);
    return truce__builder_finish(&builder, id, error);
}

/* Adds the inputs of a document to its group. If the table is frozen and does not have the group,
 * writes them to a file instead. */
static truce_status add_inputs(struct group_stream *stream, struct group_key *key,
                               bson_error_t *error)
{
    struct entry *entry = group_find_entry(stream, key);
    truce_status status = TRUCE_OK;

    if (!entry && key->id.type == VALUE_MISSING)
        status = make_id(stream, &key->id, error);
    if (status)
        return status;
    if (!entry && stream->frozen)
        return write_inputs(stream, key, error);
    if (!entry)
        status = group_add_entry(stream, key, &entry, error);
    if (!status)
        status = truce__accumulators_add(&stream->stage->list, states_of(entry), stream->inputs,
                                         &stream->groups, &stream->base.context, error);
    return status ? status : group_limit_memory(stream, error);
}

static truce_status add_state(struct group_stream *stream, const struct group_key *key,
                              const uint8_t *state, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = group_add_entry(stream, key, &entry, error);

    if (!status)
        status = truce__accumulators_load(&stream->stage->list, states_of(entry), &state,
                                          &stream->groups, &stream->base.context, error);
    return status ? status : group_limit_memory(stream, error);
}

/* Adds a record of a file: the state of a group, or the inputs of a document. */
static truce_status add_record(struct group_stream *stream, const uint8_t *record, size_t size,
                               bson_error_t *error)
{
    const uint8_t *at = record + 1;
    struct group_key key;

    memcpy(&key.hash, at, sizeof key.hash);
    memcpy(&key.size, at + 8, sizeof key.size);
    key.bytes = at + 12;
    at = key.bytes + key.size;
    key.id = truce__value_load(&at);
    if (record[0] == RECORD_STATE) {
        if (stream->frozen)
            return group_write_record(stream, key.hash, record, size, error);
        return add_state(stream, &key, at, error);
    }
    truce__accumulators_load_inputs(&stream->stage->list, stream->inputs, &at);
    return add_inputs(stream, &key, error);
}

/* Appends the key of an id. Keys distinguish groups and need no order, so a whole number of any
 * type is 8 bytes after a byte that is not a type class. */
static void group_append_key(struct buffer *key, struct value value)
{
    int64_t whole;

    if (!truce__value_is_number(value) || !truce__number_to_int64(value, &whole)) {
        truce__key_append(key, value, false);
        return;
    }
    truce__buffer_append_byte(key, KEY_OF_WHOLE);
    truce__buffer_append(key, &whole, sizeof whole);
}

/* Writes the key of the document's group to stream->key. */
static truce_status group_evaluate_key(struct group_stream *stream, struct value document,
                                       struct group_key *key, bson_error_t *error)
{
    const struct group_stage *stage = stream->stage;
    struct query_context *context = &stream->base.context;

    stream->key.size = 0;
    for (uint32_t i = 0; i < stage->count; i++) {
        const struct id_part *part = &stage->parts[i];
        struct value value = part->constant;
        truce_status status = TRUCE_OK;

        if (!part->is_constant)
            status = truce__expression_evaluate(part->expression, document, context->variables,
                                                context, &value, error);
        if (status)
            return status;
        if (value.type == VALUE_MISSING && stage->count == 1)
            value = truce__value_null();
        stream->id_parts[i] = value;
        group_append_key(&stream->key, value);
    }
    *key = (struct group_key){
        .hash = group_hash_bytes(stream->key.bytes, stream->key.size),
        .bytes = stream->key.bytes,
        .size = (uint32_t)stream->key.size,
    };
    return TRUCE_OK;
}

/* Adds a document to its group. If the group is in the table, the accumulators take the document
 * directly; otherwise their inputs are evaluated, because they may be written to a file. */
static truce_status group_take_document(struct group_stream *stream, struct value document,
                                        bson_error_t *error)
{
    const struct accumulators *list = &stream->stage->list;
    struct query_context *context = &stream->base.context;
    struct entry *entry;
    struct group_key key;
    truce_status status;

    truce__arena_reset(&stream->base.arena);
    status = truce__stream_spend_on(&stream->base, document, error);
    if (!status)
        status = group_evaluate_key(stream, document, &key, error);
    if (status)
        return status;
    entry = group_find_entry(stream, &key);
    if (entry) {
        status = truce__accumulators_take(list, states_of(entry), document, &stream->groups,
                                          context, &stream->sort_key, error);
        return status ? status : group_limit_memory(stream, error);
    }
    status = truce__accumulators_evaluate(list, document, context, &stream->sort_key,
                                          stream->inputs, error);
    return status ? status : add_inputs(stream, &key, error);
}

/* Adds a document to its group. The expressions of the stage share one search for their fields. */
static truce_status group_add_document(void *arg, struct value document, bson_error_t *error)
{
    struct group_stream *stream = arg;
    struct field_finder finder = {NULL};
    truce_status status;

    if (document.size < FIELD_FINDER_BYTES)
        return group_take_document(stream, document, error);
    stream->base.context.finder = &finder;
    status = group_take_document(stream, document, error);
    stream->base.context.finder = NULL;
    truce__field_finder_release(&finder);
    return status;
}

/* ---- giving --------------------------------------------------------------------------------- */

/* Groups all documents of the input. Sets `*paused` if the input has no more documents for now. */
static truce_status group_read_input(struct group_stream *stream, bool *paused, bson_error_t *error)
{
    for (;;) {
        struct value document;
        truce_status status = stream->base.input->next(stream->base.input, &document, error);

        *paused = !status && document.type == STREAM_PAUSED;
        if (status || !truce__stream_is_document(document))
            return status;
        status = group_add_document(stream, document, error);
        if (status)
            return status;
    }
}

static truce_status group_drain(struct group_stream *stream, bool *paused, bson_error_t *error)
{
    struct stream *input = stream->base.input;
    truce_status status;

    if (stream->drained)
        return TRUCE_OK;
    status = input->each ? input->each(input, group_add_document, stream, error)
                         : group_read_input(stream, paused, error);
    if (status || *paused)
        return status;
    stream->drained = true;
    return group_close_files(stream, error);
}

/* Reads the next file into the table. */
static truce_status group_read_part(struct group_stream *stream, bson_error_t *error)
{
    struct part part = stream->parts[--stream->parts_count];
    const void *record;
    size_t size;
    truce_status status;

    empty_table(stream);
    stream->level = part.level;
    do {
        truce__arena_reset(&stream->base.arena);
        status = truce__spill_get(&part.file, &record, &size, error);
        if (!status && record)
            status = add_record(stream, record, size, error);
    } while (!status && record);
    truce__spill_release(&part.file);
    return status ? status : group_close_files(stream, error);
}

/* Makes the document of the first group, and removes the group from the list. */
static truce_status group_give(struct group_stream *stream, struct value *document,
                               bson_error_t *error)
{
    const struct entry *entry = stream->first;
    struct builder builder;
    truce_status status;

    truce__arena_reset(&stream->base.arena);
    truce__builder_begin(&builder, &stream->base.arena, 2 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_DOCUMENT);
    truce__builder_append(&builder, "_id", 3, entry->id);
    status = truce__accumulators_finish(&stream->stage->list, states_of(entry),
                                        &stream->base.context, &builder, error);
    stream->first = entry->next;
    return status ? status : truce__builder_finish(&builder, document, error);
}

/* Returns the document of the next group. If the table has no more, reads the next file into it. */
static truce_status group_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct group_stream *stream = (struct group_stream *)base;
    bool paused = false;
    truce_status status = group_drain(stream, &paused, error);

    *document = truce__value_missing();
    if (paused)
        document->type = STREAM_PAUSED;
    if (status || paused)
        return status;
    while (!stream->first) {
        if (!stream->parts_count)
            return TRUCE_OK;
        status = group_read_part(stream, error);
        if (status)
            return status;
    }
    return group_give(stream, document, error);
}

static void group_release(struct stream *base)
{
    struct group_stream *stream = (struct group_stream *)base;

    for (unsigned i = 0; i < PARTITIONS; i++)
        truce__spill_release(&stream->writing[i]);
    for (size_t i = 0; i < stream->parts_count; i++)
        truce__spill_release(&stream->parts[i].file);
    bson_free(stream->parts);
    bson_free(stream->table);
    bson_free(stream->inputs);
    bson_free(stream->id_parts);
    truce__arena_release(&stream->groups);
    truce__buffer_release(&stream->key);
    truce__buffer_release(&stream->sort_key);
    truce__buffer_release(&stream->row);
}

static truce_status group_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error)
{
    const struct group_stage *stage = data;
    struct group_stream *made =
        truce__stream_new(sizeof *made, run, input, group_next, group_release);

    made->stage = stage;
    made->options = truce__stage_spill(run->environment, run->context);
    made->inputs = bson_malloc0((stage->list.count + 1) * sizeof *made->inputs);
    made->id_parts = bson_malloc0((stage->count + 1) * sizeof *made->id_parts);
    *stream = &made->base;
    return TRUCE_OK;
}
