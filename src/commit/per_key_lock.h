#ifndef TRUCE_COMMIT_PER_KEY_LOCK_H
#define TRUCE_COMMIT_PER_KEY_LOCK_H

/* Turns of the commits of one open store at documents that many change; the essay is in per_key_lock.c. */
#include <stdbool.h>
#include <stdint.h>

struct entry;
struct turns;

struct turns *truce__turns_new(void);
void truce__turns_free(struct turns *turns); /* NULL is allowed; nobody has one, or waits */

/* One commit's; zeros: it has none. */
struct commit_turn {
    struct turns *turns;
    uint32_t place;
    bool held;
};

/* Which turn is a document's. */
uint32_t truce__turn_place(const struct entry *entry);

/* Somebody has that turn. */
bool truce__turn_busy(const struct turns *turns, uint32_t place);

/* Waits for it, up to `until_ns` (monotonic) and COMMIT_TURN_MS at most; `turn` may be without it then. One that it had is
 * given back before, unless it is the same. */
void truce__turn_take(struct commit_turn *turn, struct turns *turns, uint32_t place,
                      int64_t until_ns);
void truce__turn_give(struct commit_turn *turn);

#endif
