/* What SQLite's results mean: the status, the sentence, and which table it was. */
#include "engine/storage/kv_connection.h"

#include "base/assert.h"
#include "base/budget.h"
#include "base/limits.h"
#include "engine/storage/kv_page.h"
#include "engine/storage/lock_bytes.h"

/* A table that is missing, or an entry that stands where none can: we have asked for neither. A read that fails, which
 * SQLite calls IOERR_CORRUPTFS if it fails with EIO, says nothing of the file: the next one may be right. */
static bool is_damage(int result)
{
    return result == SQLITE_IOERR_DATA || (result & 0xff) == SQLITE_CORRUPT ||
           (result & 0xff) == SQLITE_CONSTRAINT || (result & 0xff) == SQLITE_MISMATCH ||
           result == SQLITE_ERROR;
}

static truce_status error_status_of(int result)
{
    if (is_damage(result))
        return TRUCE_CORRUPT;
    switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return TRUCE_LOCKED;
    case SQLITE_NOTADB:
        return TRUCE_CORRUPT;
    case SQLITE_TOOBIG:
        return TRUCE_LIMIT;
    default:
        return TRUCE_IO;
    }
}

/* Which page, or frame of the log, has a wrong checksum; in `kv`. */
static const char *damage_of(struct kv *kv)
{
    uint32_t page = 0, frame = 0;

    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_FRAME, &frame);
    if (frame) {
        snprintf(kv->reason, sizeof kv->reason,
                 "frame %u of the log is damaged (its checksum is wrong)", frame);
        return kv->reason;
    }
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_DAMAGED, &page);
    snprintf(kv->reason, sizeof kv->reason,
             "page %u of the file is damaged (its checksum is wrong)", page);
    return kv->reason;
}

static const char *error_reason_of(struct kv *kv, int result)
{
    int system = sqlite3_system_errno(kv->db);

    if (result == SQLITE_IOERR_DATA)
        return damage_of(kv);
    if (is_damage(result))
        return "the structure of the file is damaged";
    if (result == SQLITE_IOERR_LOCK || result == SQLITE_IOERR_SHMLOCK)
        return "the operating system refuses to lock it" LOCK_ADVICE;
    switch (result & 0xff) {
    case SQLITE_READONLY:
        return "the file or its directory is read-only";
    case SQLITE_NOTADB:
        return "the file is not a truce store";
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        return system ? strerror(system) : sqlite3_errstr(result);
    default:
        return sqlite3_errmsg(kv->db);
    }
}

truce_status truce__kv_fail(struct kv *kv, int result, const char *what, bson_error_t *error)
{
    truce_assert(result != SQLITE_OK && result != SQLITE_ROW && result != SQLITE_DONE);
    if (result == SQLITE_INTERRUPT && kv->budget && kv->budget->over)
        return truce__budget_look(kv->budget, error);
    if ((result & 0xff) == SQLITE_FULL)
        return truce__refuse(CODE_OUT_OF_DISK_SPACE, error, "cannot %s \"%s\": the disk is full",
                             what, kv->path);
    return truce__fail(error_status_of(result), error, "cannot %s \"%s\": %s", what, kv->path,
                       error_reason_of(kv, result));
}

truce_status truce__kv_fail_table(struct kv *kv, int64_t table, int result, const char *what,
                                  bson_error_t *error)
{
    char name[160] = "";

    if (is_damage(result) && kv->names)
        kv->names(kv->names_arg, table, name, sizeof name);
    if (!*name)
        return truce__kv_fail(kv, result, what, error);
    return truce__fail(TRUCE_CORRUPT, error, "cannot %s %s in \"%s\": %s", what, name, kv->path,
                       error_reason_of(kv, result));
}

void truce__kv_names(struct kv *kv, kv_name_function *names, void *arg)
{
    kv->names = names;
    kv->names_arg = arg;
}

void truce__kv_wide(struct kv *kv, int64_t table)
{
    kv->wide = table;
}

void truce__kv_sound(struct kv *kv, bool (*sound)(const uint8_t *body, size_t size))
{
    kv->sound = sound;
}

bool truce__kv_look_at(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    if (body.size > TRUCE_DOCUMENT_BYTES_MAX && table != kv->wide)
        return false;
    if (!kv->sound(body.data, body.size))
        return false;
    truce__seen_add(&kv->seen, table, row, body.data, body.size);
    return true;
}

void truce__kv_vouch(struct kv *kv, int64_t table, int64_t row, struct bytes body)
{
    if (kv->sound)
        truce__seen_add(&kv->seen, table, row, body.data, body.size);
}

truce_status truce__kv_fail_row(struct kv *kv, int64_t table, int64_t row, bson_error_t *error)
{
    char name[160] = "";

    if (kv->names)
        kv->names(kv->names_arg, table, name, sizeof name);
    return truce__fail(TRUCE_CORRUPT, error, "cannot read %s in \"%s\": row %lld is damaged",
                       *name ? name : "a table", kv->path, (long long)row);
}
