/* unknown_row.c - what ids read as that have no row in a predictor's table. */
#include "runtime/lookup/unknown_row.h"

#include "runtime/store/table.h"

fleet_status fl_unknown_row(const fl_table_ids *ids, fl_rows *rows,
                            uint64_t key, float *out)
{
    float *row = NULL;

    if (ids->fresh == FLEET_FRESH_ZEROS) {
        memset(out, 0, (size_t)rows->dim * sizeof *out);
        return FLEET_OK;
    }
    if (ids->fresh == FLEET_FRESH_ROW) {
        key = fl_key_of_id(rows, (uint64_t)ids->default_id);
        FL_TRY(rows->methods->find(rows, &key, 1, &row));
    }
    if (row)
        fl_rows_read(rows, out, row);
    else
        fl_rows_unknown(rows, key, out);
    return FLEET_OK;
}

bool fl_unknown_is_one(const fl_table_ids *ids, const fl_rows *rows)
{
    return ids->fresh != FLEET_FRESH_INITIAL ||
           (rows->life && rows->life->o.unknown_zeros) ||
           rows->filler.kind == FLEET_INIT_CONSTANT;
}
