/* pass_keys.h - the keys of a table that a pass has, each once, in FL_N_PART
 * parts by their hash, in each part in the order in which they came.
 *
 * All threads of a pool add to it: each takes the keys of one part after the
 * other, so that no two threads touch one part, and the list is the same for
 * any number of them.
 */
#pragma once

#include "base/pool.h"
#include "runtime/lookup/lookup_data.h"

typedef struct fl_pass_keys {
    fl_key_set part[FL_N_PART]; /* zeros: no keys */
    int64_t marked[FL_N_PART];  /* keys of each at the last mark */
} fl_pass_keys;

/* n keys, of which some may be listed. pool: got by the caller; NULL: this
 * thread works alone. FLEET_ENOMEM: some of them are listed. */
fleet_status fl_pass_keys_add(fl_pass_keys *s, fl_pool *pool,
                              const uint64_t *key, int64_t n);
int64_t fl_pass_keys_count(const fl_pass_keys *s);

/* Keys that came after the mark leave the list again. Nothing is added to it
 * from then on until it is cleared. */
void fl_pass_keys_mark(fl_pass_keys *s);
void fl_pass_keys_back(fl_pass_keys *s);

void fl_pass_keys_clear(fl_pass_keys *s); /* no keys; its memory stays */
void fl_pass_keys_done(fl_pass_keys *s);
