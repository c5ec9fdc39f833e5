/* rows.h - all rows of a model's table made at once, as lookups make them. */
#pragma once

#include "fleet/job/handle.h"
#include "helper.h"
#include "model.h"
#include "runtime/store/store.h"

/* Those of the ids 0 .. o.rows - 1. The store is there after the first step. */
static inline void make_all_rows(const bench *b)
{
    enum { CHUNK = 1 << 14 };
    fl_rows *r = fl_store_rows(b->f->store, "embedding");
    static uint64_t key[CHUNK];
    static float *row[CHUNK];

    must(r != NULL, "no table");
    for (long at = 0; at < b->o.rows; at += CHUNK) {
        long n = b->o.rows - at < CHUNK ? b->o.rows - at : CHUNK;

        for (long i = 0; i < n; i++)
            key[i] = (uint64_t)(at + i);
        must(r->methods->make(r, key, n, row) == FLEET_OK, fleet_last_error());
    }
}
