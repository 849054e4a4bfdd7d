#ifndef TRUCE_CLI_LEDGER_LEDGER_IMPORT_H
#define TRUCE_CLI_LEDGER_LEDGER_IMPORT_H

/* The parts of truce ledger import: ledger_import.c reads and books, ledger_items.c makes transactions of records. */
#include "cli/book/book.h"
#include "cli/core/progress.h"
#include "cli/ledger/ledger.h"

/* ---- what accounts and currencies there are (ledger_names.c) -------------------------------- */

/* Of the ledger, of the file, or (--open) to be opened. */
struct import_name {
    char *name, *currency; /* of a currency: NULL */
    int digits;            /* of a currency; with `opens`: the most that an amount has */
    bool opens;
    int64_t changes,
        changed; /* of an account: how often its rules were changed; by the file so far */
};

struct import_names {
    struct import_name **slots;
    uint32_t count, room;
};

/* NULL: there is none. */
struct import_name *import_find(const struct import_names *names, const char *name);
struct import_name *import_add(struct import_names *names, const char *name);
void import_names_release(struct import_names *names);

/* ---- a transaction (ledger_items.c) --------------------------------------------------------- */

struct import_item {
    int64_t line;
    bson_t record, meta;
    bson_value_t id, of;
    truce_ledger_entry *entries;
    truce_ledger_transaction transaction;
};

struct importing {
    struct cli *cli;
    truce_ledger *ledger;
    struct book_source source;
    struct import_names accounts, currencies;
    bool opens;
    struct import_item *items;
    truce_ledger_transaction *transactions;
    truce_ledger_result *results;
    size_t count;
    int64_t records, posted, existed, refused;
    struct cli_progress shown;
};

/* The account's; NOT_FOUND: neither the ledger nor the file has it. */
truce_status import_account(struct importing *importing, const char *name,
                            struct import_name **account, bson_error_t *error);
truce_status import_currency(struct importing *importing, const char *code,
                             struct import_name **currency, bson_error_t *error);
/* Fills `item`, which is zeroed; release frees it, also if it was refused. INVALID: it is none, and why. */
truce_status import_item(struct importing *importing, int64_t line, const bson_t *record,
                         struct import_item *item, bson_error_t *error);
void import_item_release(struct import_item *item);
/* {open: ...} or {rules: ...} */
truce_status import_rules(struct importing *importing, const bson_t *record,
                          truce_ledger_account *account, bson_error_t *error);

#endif
