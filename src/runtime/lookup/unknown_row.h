/* unknown_row.h - ids and the rows that they do not have: which key an id has,
 * and what it reads as without a row. */
#pragma once

#include "runtime/graph/op.h"
#include "runtime/store/table_api.h"

static inline uint64_t fl_key_of_id(const fl_rows *rows, uint64_t id)
{
    return rows->modulo ? id % (uint64_t)rows->modulo : id;
}

/* What a predictor reads of a key without a row. */
fleet_status fl_unknown_row(const fl_table_ids *ids, fl_rows *rows,
                            uint64_t key, float *out);

/* Is that the same for all keys? */
bool fl_unknown_is_one(const fl_table_ids *ids, const fl_rows *rows);
