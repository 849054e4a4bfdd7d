/*
 * Finding rows and keys in the pages of the file and of the log.
 *
 *     inner page   | header, 12 bytes | cell pointers | ... | cells: child, last row of it |
 *     leaf         | header, 8 bytes  | cell pointers | ... | cells: size, row, record     |
 *
 * In a table of keys, the cells of inner pages have entries of their own, each between the entries
 * of two children:
 *
 *     inner page   | header, 12 bytes | cell pointers | ... | cells: child, size, record   |
 *     leaf         | header, 8 bytes  | cell pointers | ... | cells: size, record          |
 *
 * A lookup goes from the root to a leaf. SQLite executes some ten instructions of a statement for
 * it, and looks for each page in its page cache. A walk does the same once for each leaf. SQLite
 * does it for each row or entry, and copies each body. The formats of pages, records, and of the
 * log's index are those of SQLite's "Database File Format" and "WAL-mode File Format".
 *
 *     pages of a snapshot: in the log, if one of its frames has the page, otherwise in the file
 *
 *     frames of the log   | moved into the file | to be moved | later commits |
 *                         1                     log_from      log_upto
 *
 * Invariants (1 and 2: models/page_cache.cpp):
 *  1. A page is that of the connection's snapshot. If all frames of the snapshot had been moved
 *     when it began, SQLite reads the file alone. The log may then begin again, so its index is not
 *     read. Otherwise SQLite's lock keeps the log from beginning again, and the frames of the
 *     snapshot do not change. A frame that was moved before the snapshot began is also in the file.
 *     No checkpoint replaces it there by a later one.
 *  2. The number of moved frames is of the same generation as the header. A writer that begins the
 *     log again changes the header first, and the header was the same afterwards (kv.c).
 *  3. No byte outside of a page is read, whatever the page contains.
 *  4. A row or a key is returned only if it was found where its number or its order requires. All
 *     other results are SQLite's.
 *  5. A walk over keys continues with a larger entry, or it ends. Whatever the pages contain, it
 *     therefore terminates.
 */
#include "engine/storage/kv_direct.h"

#include <sqlite3.h>
#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/kv_connection.h"

/* The number of bytes of a page that SQLite uses, and the largest payload of a row that does not
 * continue on other pages. */
#define USABLE    (KV_PAGE_BYTES - KV_SUM_BYTES)
#define LOCAL_MAX (USABLE - 35)
/* The largest payload of an entry of a table of keys that does not continue on other pages. */
#define ENTRY_MAX ((USABLE - 12) * 64 / 255 - 23)
/* The number of bytes after the end of a page that a read of a cell's numbers may touch. */
#define BEYOND 24
/* The first byte of a page in SQLite's file format: of an inner page and of a leaf, in a table of
 * rows (TYPE) and in a table of keys (KEYS). */
#define TYPE_INNER 0x05
#define TYPE_LEAF  0x0d
#define KEYS_INNER 0x02
#define KEYS_LEAF  0x0a
/* The number of bytes of the header of an inner page, and of that of a leaf. */
#define HEAD_INNER 12
#define HEAD_LEAF  8
/* The maximum depth of a tree. A deeper one is left to SQLite. */
#define DEPTH_MAX 20
/* The maximum number of inner pages that a connection keeps. */
#define INNER_PAGES 256

/* A part of the index of the log has the page numbers of PART_FRAMES frames, and a hash table of
 * PART_SLOTS slots. The first part begins with the header, so it has FIRST_FRAMES frames. */
#define PART_FRAMES  4096
#define PART_SLOTS   8192
#define FIRST_FRAMES (PART_FRAMES - 34)
/* The number of bytes of the header of the log, and of the header of a frame. */
#define LOG_HEADER   32
#define FRAME_HEADER 24

struct direct_page {
    /* The number of the page, or 0 if none is loaded, and the data that it belongs to
     * (kv_direct.data). */
    uint32_t number;
    uint64_t data;
    uint8_t bytes[KV_PAGE_BYTES + BEYOND];
};

/* An entry of a table of keys. */
struct direct_entry {
    struct bytes key;
    int64_t row;
};

/* A walk over a table of keys. */
struct direct_walk {
    /* The root of the table, or 0 if there is no walk. */
    uint32_t root;
    /* The last entry, or the entry after which the walk begins. The bytes of its key are in
     * `key`. */
    struct direct_entry last;
    uint8_t key[ENTRY_MAX];
    /* The leaf that contains the next entries, and the cell of the next entry. */
    struct direct_page leaf;
    unsigned cell;
};

struct kv_direct {
    /* The files of the connection. `file` is NULL if the snapshot cannot be read directly. */
    sqlite3_file *file, *log;
    /* The mapped parts of the index of the log. */
    void *const *parts;
    /* A number that changes when a snapshot shows other data than the one before. */
    uint64_t data;
    /* The first and the last frame of the snapshot that are not in the file. If all are in the
     * file, log_from is log_upto + 1. */
    uint32_t log_from, log_upto;
    /* The header of the last snapshot. */
    struct kv_snapshot snapshot;
    /* The last leaf that was read. */
    struct direct_page *leaf;
    struct direct_walk walk;
    /* Inner pages, each at its page number modulo INNER_PAGES, or NULL. */
    struct direct_page *inner[INNER_PAGES];
};

struct kv_direct *truce__kv_direct_new(void)
{
    struct kv_direct *direct = bson_malloc0(sizeof *direct);

    direct->leaf = bson_malloc0(sizeof *direct->leaf);
    return direct;
}

void truce__kv_direct_free(struct kv_direct *direct)
{
    if (!direct)
        return;
    for (int i = 0; i < INNER_PAGES; i++)
        bson_free(direct->inner[i]);
    bson_free(direct->leaf);
    bson_free(direct);
}

static void direct_find_files(struct kv *kv, struct kv_direct *direct)
{
    (void)sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_FILE_POINTER, &direct->file);
    (void)sqlite3_file_control(kv->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &direct->log);
    (void)sqlite3_file_control(kv->db, "main", KV_PAGE_PARTS, &direct->parts);
}

void truce__kv_direct_begin(struct kv *kv, uint32_t moved)
{
    struct kv_direct *direct = kv->direct;
    uint32_t frames = kv->snapshot.header[4];

    direct->file = NULL;
    if (!kv->snapshot.known || moved > frames)
        return;
    direct_find_files(kv, direct);
    if (!truce__kv_snapshot_same(&direct->snapshot, &kv->snapshot))
        direct->data++;
    direct->snapshot = kv->snapshot;
    direct->log_from = moved + 1;
    direct->log_upto = frames;
}

/* ---- pages ---------------------------------------------------------------------------------- */

static uint32_t direct_number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static unsigned direct_short_at(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

/* Returns the number of cells of a page. */
static unsigned direct_cells(const uint8_t *page)
{
    return direct_short_at(page + 3);
}

static uint32_t direct_part_of(uint32_t frame)
{
    return (frame + PART_FRAMES - FIRST_FRAMES - 1) / PART_FRAMES;
}

/* Looks for the newest frame of the page in one part of the index. `*frame` is 0 if it has none.
 * Returns false if the part is not mapped, or not valid. */
static bool direct_find_frame_in_part(const struct kv_direct *direct, uint32_t part, uint32_t page,
                                      uint32_t *frame)
{
    const uint8_t *base = part < KV_PAGE_PARTS_MAX ? direct->parts[part] : NULL;
    uint32_t before = part ? FIRST_FRAMES + (part - 1) * PART_FRAMES : 0;
    uint32_t slot = page * 383 % PART_SLOTS;
    const atomic_uint *pages;
    const atomic_ushort *slots;

    *frame = 0;
    if (!base)
        return false;
    pages = (const void *)(part ? base : base + 34 * sizeof *pages);
    slots = (const void *)(base + PART_FRAMES * sizeof *pages);
    for (int tries = 0; tries < PART_SLOTS; tries++, slot = (slot + 1) % PART_SLOTS) {
        uint32_t position = atomic_load_explicit(&slots[slot], memory_order_relaxed);
        uint32_t number = before + position;

        if (!position)
            return true;
        if (position > PART_FRAMES)
            return false;
        /* Invariant 1: the frame belongs to a later commit. */
        if (number > direct->log_upto)
            continue;
        if (number >= direct->log_from &&
            atomic_load_explicit(&pages[position - 1], memory_order_relaxed) == page)
            *frame = number;
    }
    return false;
}

/* Finds the last frame of a page in the log of the snapshot. `*frame` is 0 if the page is in the
 * file. Returns false if the index cannot be used. */
static bool direct_find_frame(const struct kv_direct *direct, uint32_t page, uint32_t *frame)
{
    uint32_t part = direct_part_of(direct->log_upto), least = direct_part_of(direct->log_from);

    *frame = 0;
    if (direct->log_from > direct->log_upto)
        return true;
    for (;; part--) {
        if (!direct_find_frame_in_part(direct, part, page, frame))
            return false;
        if (*frame || part <= least)
            return true;
    }
}

/* Reads a page of the snapshot, from the log or from the file. Returns false if it cannot be found
 * or read. */
static bool direct_read(struct kv_direct *direct, uint32_t number, uint8_t *bytes)
{
    sqlite3_file *file = direct->file;
    sqlite3_int64 offset = (sqlite3_int64)(number - 1) * KV_PAGE_BYTES;
    uint32_t frame;

    if (!number || !direct_find_frame(direct, number, &frame))
        return false;
    if (frame) {
        file = direct->log;
        offset =
            LOG_HEADER + FRAME_HEADER + (sqlite3_int64)(frame - 1) * (FRAME_HEADER + KV_PAGE_BYTES);
    }
    return file->pMethods && file->pMethods->xRead(file, bytes, KV_PAGE_BYTES, offset) == SQLITE_OK;
}

static bool direct_is_inner(const uint8_t *page)
{
    return *page == TYPE_INNER || *page == KEYS_INNER;
}

/* Returns whether the cell pointers are within the page (invariant 3). */
static bool direct_is_valid(const uint8_t *page)
{
    unsigned head = direct_is_inner(page) ? HEAD_INNER : HEAD_LEAF, cells = direct_cells(page);

    return (direct_is_inner(page) || *page == TYPE_LEAF || *page == KEYS_LEAF) &&
           head + 2 * cells <= USABLE && (cells || !direct_is_inner(page));
}

/* Returns a page of a tree, or NULL if it cannot be read. A leaf is valid until the next call. */
static const uint8_t *direct_page_of(struct kv_direct *direct, uint32_t number)
{
    struct direct_page **kept = &direct->inner[number % INNER_PAGES], *leaf = direct->leaf;

    if (*kept && (*kept)->number == number && (*kept)->data == direct->data)
        return (*kept)->bytes;
    if (leaf->number == number && leaf->data == direct->data)
        return leaf->bytes;
    leaf->number = 0;
    if (!direct_read(direct, number, leaf->bytes) || !direct_is_valid(leaf->bytes))
        return NULL;
    leaf->number = number;
    leaf->data = direct->data;
    if (!direct_is_inner(leaf->bytes))
        return leaf->bytes;
    direct->leaf = *kept ? *kept : bson_malloc0(sizeof **kept);
    *kept = leaf;
    return leaf->bytes;
}

/* ---- cells ---------------------------------------------------------------------------------- */

/* Reads a variable-length integer of at most nine bytes. Returns the number of bytes. */
static unsigned direct_number(const uint8_t *at, uint64_t *number)
{
    uint64_t read = 0;

    for (unsigned i = 0; i < 8; i++) {
        read = read << 7 | (at[i] & 0x7f);
        if (at[i] < 0x80) {
            *number = read;
            return i + 1;
        }
    }
    *number = read << 8 | at[8];
    return 9;
}

/* Returns a cell, or NULL if it is not within the page. */
static const uint8_t *direct_cell(const uint8_t *page, unsigned head, unsigned cell)
{
    unsigned position = direct_short_at(page + head + (size_t)2 * cell);

    return position < USABLE ? page + position : NULL;
}

static bool direct_row_of(const uint8_t *page, unsigned head, unsigned cell, int64_t *row)
{
    const uint8_t *at = direct_cell(page, head, cell);
    uint64_t number;

    if (!at)
        return false;
    at += head == HEAD_INNER ? 4 : direct_number(at, &number);
    direct_number(at, &number);
    *row = (int64_t)number;
    return true;
}

/* Returns the position of the page number of a child. After the last cell, that is the last child
 * in the header. */
static const uint8_t *direct_child(const uint8_t *page, unsigned cell)
{
    return cell < direct_cells(page) ? direct_cell(page, HEAD_INNER, cell) : page + 8;
}

/* Returns the cell that the row has if the rows of the page have equal distances. Rows that are
 * numbered consecutively have. */
static unsigned direct_guess(const uint8_t *page, unsigned head, int64_t row)
{
    unsigned last = direct_cells(page) - 1;
    int64_t from, to;

    if (last > INT16_MAX || !direct_row_of(page, head, 0, &from) ||
        !direct_row_of(page, head, last, &to) || row <= from || row > to)
        return last / 2;
    /* Subtracts before the conversion: near 2^60, hundreds of rows become the same double. */
    return (unsigned)((double)last * (double)((uint64_t)row - (uint64_t)from) /
                      (double)((uint64_t)to - (uint64_t)from));
}

/* Finds the first cell whose row is not smaller. `*cell` is the number of cells if there is
 * none. */
static bool direct_search(const uint8_t *page, unsigned head, int64_t row, unsigned *cell)
{
    unsigned low = 0, high = direct_cells(page), middle = direct_guess(page, head, row);

    for (unsigned step = 1; low < high; step *= 4) {
        int64_t found;

        if (!direct_row_of(page, head, middle, &found))
            return false;
        if (found < row) {
            low = middle + 1;
            middle = high - low < 2 * step ? (low + high) / 2 : low + step - 1;
        } else {
            high = middle;
            middle = high - low < 2 * step ? (low + high) / 2 : high - step;
        }
    }
    *cell = low;
    return true;
}

/* Returns the leaf that contains the row if the row exists, or NULL if the leaf cannot be found. No
 * row of the leaf is larger than `*upto`. */
static const uint8_t *direct_leaf_of(struct kv_direct *direct, uint32_t root, int64_t row,
                                     int64_t *upto)
{
    uint32_t number = root;

    *upto = INT64_MAX;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        const uint8_t *page = direct_page_of(direct, number), *at;
        unsigned cell;

        if (!page || *page == TYPE_LEAF)
            return page;
        if (*page != TYPE_INNER || !direct_search(page, HEAD_INNER, row, &cell))
            return NULL;
        if (cell < direct_cells(page))
            (void)direct_row_of(page, HEAD_INNER, cell, upto);
        at = direct_child(page, cell);
        if (!at)
            return NULL;
        number = direct_number_at(at);
    }
    return NULL;
}

/* Returns the row number and the body in a cell. Returns false if the cell has another form. A row
 * is a record of (NULL, blob): its header has its own size, 0, and the type of the blob. */
static bool direct_body_of(const uint8_t *leaf, unsigned cell, int64_t *row, struct bytes *body)
{
    const uint8_t *at = direct_cell(leaf, HEAD_LEAF, cell), *end = leaf + USABLE;
    uint64_t size, number, type;
    unsigned header;

    if (!at)
        return false;
    at += direct_number(at, &size);
    at += direct_number(at, &number);
    *row = (int64_t)number;
    if (size < 3 || size > LOCAL_MAX || at + size > end)
        return false;
    header = 2 + direct_number(at + 2, &type);
    if (at[0] != header || at[1] || type < 12 || type % 2 || header + (type - 12) / 2 != size)
        return false;
    *body = (struct bytes){at + header, (size_t)(size - header)};
    return true;
}

/* ---- entries of tables of keys -------------------------------------------------------------- */

/* Reads a row number of a record: SQLite's types 1 to 6, 8, and 9. */
static bool direct_integer(const uint8_t *at, uint64_t type, unsigned *size, int64_t *number)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 0, 0, 0};
    uint64_t read;

    if (!type || type == 7 || type > 9)
        return false;
    *size = sizes[type];
    read = type == 9;
    if (*size)
        read = *at & 0x80 ? UINT64_MAX : 0;
    for (unsigned i = 0; i < *size; i++)
        read = read << 8 | at[i];
    *number = (int64_t)read;
    return true;
}

/* Reads a record of (blob, integer). Its header has its own size and the two types. */
static bool direct_entry_of(const uint8_t *page, unsigned cell, struct direct_entry *entry)
{
    unsigned head = direct_is_inner(page) ? HEAD_INNER : HEAD_LEAF, header, row_size = 0;
    const uint8_t *at = direct_cell(page, head, cell), *end = page + USABLE;
    uint64_t size, type, row_type, key_size;

    if (!at)
        return false;
    at += head == HEAD_INNER ? 4 : 0;
    at += direct_number(at, &size);
    if (size < 3 || size > ENTRY_MAX || at + size > end)
        return false;
    header = 1 + direct_number(at + 1, &type);
    header += direct_number(at + header, &row_type);
    key_size = (type - 12) / 2;
    if (at[0] != header || type < 12 || type % 2 || header + key_size > size ||
        !direct_integer(at + header + key_size, row_type, &row_size, &entry->row) ||
        header + key_size + row_size != size)
        return false;
    entry->key = (struct bytes){at + header, (size_t)key_size};
    return true;
}

static int direct_order_of_keys(struct bytes a, struct bytes b)
{
    return truce__bytes_compare(a.data, a.size, b.data, b.size);
}

static bool direct_is_after(const struct direct_entry *a, const struct direct_entry *b)
{
    int order = direct_order_of_keys(a->key, b->key);

    return order ? order > 0 : a->row > b->row;
}

/* Finds the first cell whose entry is larger than `last`. `*cell` is the number of cells if no
 * entry is larger. */
static bool direct_search_keys(const uint8_t *page, const struct direct_entry *last, unsigned *cell)
{
    unsigned low = 0, high = direct_cells(page);

    while (low < high) {
        unsigned middle = (low + high) / 2;
        struct direct_entry entry;

        if (!direct_entry_of(page, middle, &entry))
            return false;
        if (direct_is_after(&entry, last))
            high = middle;
        else
            low = middle + 1;
    }
    *cell = low;
    return true;
}

/* Finds the first entry of a table that is larger than `last`, in a leaf or in an inner page. Its
 * key is borrowed until the next page is read. `*next` is the cell of the leaf after it, or 0 if
 * the entry is not in a leaf. */
static enum kv_direct_end direct_seek(struct kv_direct *direct, uint32_t root,
                                      const struct direct_entry *last, struct direct_entry *entry,
                                      unsigned *next)
{
    uint32_t number = root, above = 0;
    unsigned above_cell = 0, cell;
    const uint8_t *page = NULL, *at;

    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        page = direct_page_of(direct, number);
        if (!page || (*page != KEYS_LEAF && *page != KEYS_INNER) ||
            !direct_search_keys(page, last, &cell))
            return KV_DIRECT_UNKNOWN;
        if (*page == KEYS_LEAF)
            break;
        if (cell < direct_cells(page)) {
            above = number;
            above_cell = cell;
        }
        at = direct_child(page, cell);
        if (!at)
            return KV_DIRECT_UNKNOWN;
        number = direct_number_at(at);
    }
    if (!page || *page != KEYS_LEAF || (!direct_cells(page) && number != root))
        return KV_DIRECT_UNKNOWN;
    *next = cell + 1;
    if (cell == direct_cells(page)) {
        if (!above)
            return KV_DIRECT_END;
        page = direct_page_of(direct, above);
        cell = above_cell;
        *next = 0;
    }
    return page && direct_entry_of(page, cell, entry) ? KV_DIRECT_ENOUGH : KV_DIRECT_UNKNOWN;
}

/* ---- lookups and walks ---------------------------------------------------------------------- */

static struct kv_direct *direct_of(const struct kv *kv)
{
    return kv->direct && kv->direct->file && kv->state == KV_SNAPSHOT ? kv->direct : NULL;
}

bool truce__kv_direct_row(struct kv *kv, int64_t table, int64_t row, struct bytes *body)
{
    struct kv_direct *direct = direct_of(kv);
    uint32_t root = direct ? truce__kv_root(kv, 'c', table) : 0;
    const uint8_t *leaf;
    int64_t found, upto;
    unsigned cell;

    truce_assert(!kv->take);
    if (!root)
        return false;
    kv_settle(kv);
    leaf = direct_leaf_of(direct, root, row, &upto);
    if (!leaf || !direct_search(leaf, HEAD_LEAF, row, &cell) || cell == direct_cells(leaf) ||
        !direct_body_of(leaf, cell, &found, body))
        return false;
    /* Invariant 4. */
    return found == row;
}

enum kv_direct_end truce__kv_direct_each(struct kv *kv, int64_t table, int64_t after,
                                         bool (*take)(struct kv *kv, int64_t row,
                                                      struct bytes body))
{
    struct kv_direct *direct = direct_of(kv);
    uint32_t root = direct ? truce__kv_root(kv, 'c', table) : 0;

    kv_settle(kv);
    while (root && after < INT64_MAX) {
        const uint8_t *leaf;
        int64_t row, upto;
        struct bytes body;
        unsigned cell;

        leaf = direct_leaf_of(direct, root, after + 1, &upto);
        if (!leaf || !direct_search(leaf, HEAD_LEAF, after + 1, &cell) ||
            (!direct_cells(leaf) && direct->leaf->number != root))
            return KV_DIRECT_UNKNOWN;
        for (; cell < direct_cells(leaf); cell++) {
            if (!direct_body_of(leaf, cell, &row, &body) || row > upto)
                return KV_DIRECT_UNKNOWN;
            if (!take(kv, row, body))
                return KV_DIRECT_ENOUGH;
        }
        after = upto;
    }
    return root ? KV_DIRECT_END : KV_DIRECT_UNKNOWN;
}

bool truce__kv_direct_key(struct kv *kv, int64_t table, struct bytes key, int64_t *row)
{
    struct kv_direct *direct = direct_of(kv);
    uint32_t root = direct ? truce__kv_root(kv, 'x', table) : 0;
    struct direct_entry last = {key, INT64_MIN}, entry;
    unsigned next;

    kv_settle(kv);
    if (!root || direct_seek(direct, root, &last, &entry, &next) != KV_DIRECT_ENOUGH)
        return false;
    *row = entry.row;
    /* Invariant 4. */
    return direct_order_of_keys(entry.key, key) == 0;
}

/* Copies the entry, because its page may be replaced before the next call. */
static void direct_note_last(struct direct_walk *walk, const struct direct_entry *entry)
{
    if (entry->key.size)
        memcpy(walk->key, entry->key.data, entry->key.size);
    walk->last = (struct direct_entry){{walk->key, entry->key.size}, entry->row};
}

bool truce__kv_direct_walk(struct kv *kv, int64_t table, struct bytes key, int64_t row)
{
    struct kv_direct *direct = direct_of(kv);
    struct direct_walk *walk;

    if (!direct || direct->walk.root || key.size > ENTRY_MAX)
        return false;
    walk = &direct->walk;
    walk->root = truce__kv_root(kv, 'x', table);
    walk->leaf.number = 0;
    direct_note_last(walk, &(struct direct_entry){key, row});
    return walk->root;
}

enum kv_direct_end truce__kv_direct_walk_next(struct kv *kv, struct bytes *key, int64_t *row)
{
    struct kv_direct *direct = direct_of(kv);
    struct direct_walk *walk = &direct->walk;
    enum kv_direct_end end = KV_DIRECT_ENOUGH;
    struct direct_entry entry;

    kv_settle(kv);
    if (walk->leaf.number && walk->cell < direct_cells(walk->leaf.bytes)) {
        if (!direct_entry_of(walk->leaf.bytes, walk->cell++, &entry))
            end = KV_DIRECT_UNKNOWN;
    } else {
        end = direct_seek(direct, walk->root, &walk->last, &entry, &walk->cell);
        walk->leaf.number = 0;
        if (end == KV_DIRECT_ENOUGH && walk->cell)
            walk->leaf = *direct->leaf;
    }
    if (end != KV_DIRECT_ENOUGH)
        return end;
    /* Invariant 5. */
    if (!direct_is_after(&entry, &walk->last))
        return KV_DIRECT_UNKNOWN;
    direct_note_last(walk, &entry);
    *key = walk->last.key;
    *row = walk->last.row;
    return KV_DIRECT_ENOUGH;
}

void truce__kv_direct_walk_end(struct kv *kv)
{
    kv->direct->walk.root = 0;
}
