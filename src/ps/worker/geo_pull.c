/* geo_pull.c - rows that are looked up: copies where there are any, and for
 * other keys rows of the servers, which become copies when they have come. */
#include "ps/worker/geo_internal.h"

#include <string.h>

#include "base/memory.h"

/* --- which are missing ---------------------------------------------------- */

static fleet_status want(fl_geo_wanted *a, uint64_t key, const float **out)
{
    size_t n = (size_t)a->n + 1;

    FL_TRY(fl_grow(&a->key, &a->key_capacity, n, sizeof *a->key));
    FL_TRY(fl_grow(&a->row, &a->row_capacity, n, sizeof *a->row));
    FL_TRY(fl_grow(&a->out, &a->out_capacity, n, sizeof *a->out));
    a->key[a->n] = key;
    a->out[a->n++] = out;
    return FLEET_OK;
}

enum { CHUNK = 256 };

static fleet_status look_up(fl_rows *copies, const fl_pull_part *part,
                            fl_geo_wanted *missing)
{
    float *row[CHUNK];

    for (int64_t i = 0, n; i < part->n; i += n) {
        n = part->n - i < CHUNK ? part->n - i : CHUNK;
        FL_TRY(copies->methods->find(copies, part->key + i, n, row));
        for (int64_t j = 0; j < n; j++) {
            part->row[i + j] = row[j];
            if (!row[j])
                FL_TRY(want(missing, part->key[i + j], &part->row[i + j]));
        }
    }
    return FLEET_OK;
}

static fleet_status look_up_all(fl_worker *w, fl_geo_slot *s, int64_t *missing)
{
    *missing = 0;
    for (int t = 0; t < w->layout.n_table; t++) {
        s->wanted[t].n = 0;
        for (int i = 0; i < s->n_asked; i++)
            for (int p = 0;
                 s->asked[i].rows == w->layout.table[t] && p < FL_N_PART; p++)
                FL_TRY(look_up(w->geo->table[t].rows, &s->asked[i].part[p],
                               &s->wanted[t]));
        *missing += s->wanted[t].n;
    }
    return FLEET_OK;
}

static fleet_status ask_missing(fl_worker *w, int slot)
{
    fl_geo_slot *s = &w->geo->slot[slot];
    fl_pull_rows *all =
        fl_alloc_array((size_t)w->layout.n_table + 1, sizeof *all);
    fleet_status status = all ? FLEET_OK : FLEET_ENOMEM;

    for (int t = 0; all && t < w->layout.n_table; t++) {
        all[t] = (fl_pull_rows){.rows = w->layout.table[t]};
        all[t].part[0] =
            (fl_pull_part){s->wanted[t].key, s->wanted[t].n, s->wanted[t].row};
    }
    if (status == FLEET_OK)
        status = fl_worker_pull(&w->remote, slot, all, w->layout.n_table, false,
                                false, true);
    fl_free(all);
    return status;
}

static fleet_status ask_rows(fl_worker *w, int slot)
{
    fl_geo_slot *s = &w->geo->slot[slot];
    int64_t missing;

    s->life = w->geo->life;
    if (!s->wanted)
        FL_TRY(FL_NEW(&s->wanted,
                      ((size_t)w->layout.n_table + 1) * sizeof *s->wanted));
    FL_TRY(look_up_all(w, s, &missing));
    s->under_way = missing > 0;
    return missing > 0 ? ask_missing(w, slot) : FLEET_OK;
}

/* --- the remote's methods ------------------------------------------------- */

/* An executor for test sees what the servers have, with all that this worker
 * has trained, and makes no copies. */
static fleet_status pull_now(fl_worker *w, int slot, const fl_pull_rows *table,
                             int n_table, bool dense)
{
    FL_TRY(fl_geo_flush(w));
    if (dense)
        FL_TRY(fl_geo_refresh(&w->remote));
    return fl_worker_pull(&w->remote, slot, table, n_table, false, false, true);
}

fleet_status fl_geo_pull(fl_remote *x, int slot, const fl_pull_rows *table,
                         int n_table, bool dense, bool prefetch, bool now)
{
    fl_worker *w = (fl_worker *)(void *)x;
    fl_geo_slot *s = &w->geo->slot[slot];

    (void)prefetch; /* copies are as they are when they are used */
    fl_geo_drop(x, slot);
    FL_TRY(fl_client_status(w->client));
    if (now)
        return pull_now(w, slot, table, n_table, dense);
    s->asked = table;
    s->n_asked = n_table;
    s->own = true;
    return ask_rows(w, slot);
}

static fleet_status keep(fl_worker *w, fl_geo_slot *s)
{
    for (int t = 0; t < w->layout.n_table; t++) {
        fl_geo_wanted *a = &s->wanted[t];
        fl_rows *rows = w->geo->table[t].rows;

        FL_TRY(fl_geo_copy_rows(rows, a->key, a->row, a->n));
        for (int64_t i = 0; i < a->n; i++) {
            float *row;

            FL_TRY(rows->methods->find(rows, &a->key[i], 1, &row));
            *a->out[i] = row;
        }
    }
    return FLEET_OK;
}

fleet_status fl_geo_wait_pull(fl_remote *x, int slot)
{
    fl_worker *w = (fl_worker *)(void *)x;
    fl_geo_slot *s = &w->geo->slot[slot];

    if (!s->own)
        return fl_worker_complete(w, slot);
    if (s->life != w->geo->life) { /* the servers have loaded meanwhile */
        fl_worker_drop(x, slot);
        FL_TRY(ask_rows(w, slot));
    }
    if (!s->under_way)
        return FLEET_OK;
    FL_TRY(fl_worker_complete(w, slot));
    s->under_way = false;
    return keep(w, s);
}

/* Copies change until they are used: they are not gathered before. */
bool fl_geo_came(fl_remote *x, int slot)
{
    (void)x;
    (void)slot;
    return false;
}

void fl_geo_drop(fl_remote *x, int slot)
{
    fl_worker *w = (fl_worker *)(void *)x;
    fl_geo_slot *s = &w->geo->slot[slot];

    s->own = s->under_way = false;
    fl_worker_drop(x, slot);
}

void fl_geo_slots_done(fl_worker *w)
{
    for (int i = 0; i < FL_MOST_PULL_SLOT; i++) {
        fl_geo_wanted *a = w->geo->slot[i].wanted;

        for (int t = 0; a && t < w->layout.n_table; t++) {
            fl_free(a[t].key);
            fl_free(a[t].row);
            fl_free(a[t].out);
        }
        fl_free(a);
    }
}
