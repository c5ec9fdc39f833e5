/* store_hash.h - params_hash: one number for all that was trained. */
#pragma once

#include "runtime/store/store.h"

/* params_hash: of all parameters and rows, as docs/formats.md has it. Rows that
 * are not in this process are added up by hash_rows; NULL: all are. Under the
 * store's lock, at least for reading. */
typedef fleet_status fl_rows_hasher(void *arg, const fl_rows *r, uint64_t *sum);
fleet_status fl_store_hash(fl_store *s, fl_rows_hasher *hash_rows, void *arg,
                           uint64_t *hash);

/* A table's part of it: the sum over its rows. */
fleet_status fl_store_hash_rows(const fl_rows *r, uint64_t *sum);
