/* pass_list.c - ids of batches become the keys of a part, as long as their rows
 * fit. */
#include "fleet/pass/pass_list.h"

#include <inttypes.h>

#include "base/memory.h"
#include "fleet/pass/pass_rows.h"

static int merge_steps(const fleet_psgpu *g)
{
    return g->program->training.merge.steps;
}

/* --- ids ------------------------------------------------------------------ */

static int64_t ids_of(const fleet_slot *slot, const fl_slot_data *data,
                      int64_t rows)
{
    return data->offsets ? data->offsets[rows]
                         : rows * (slot->dim > 0 ? slot->dim : 1);
}

static fleet_status take_ids(fl_pass_table *t, const fleet_dataset *d,
                             const fl_batch *b)
{
    uint64_t modulo = (uint64_t)t->var->shape.dim[0];

    for (int i = 0; i < t->n_slot; i++) {
        const fl_slot_data *data = &b->slot[t->slot[i]];
        int64_t n = ids_of(&d->slots[t->slot[i]], data, b->rows);
        const uint64_t *id = data->values;

        FL_TRY(fl_grow(&t->key, &t->key_capacity, t->n_key + (size_t)n,
                       sizeof *t->key));
        for (int64_t k = 0; k < n; k++)
            t->key[t->n_key++] = modulo ? id[k] % modulo : id[k];
    }
    return FLEET_OK;
}

/* The next merge group; at the end of the pass what is left, or nothing. */
static fleet_status read_group(fleet_psgpu *g, fl_pass_list *l)
{
    int64_t end = l->read + merge_steps(g);

    for (int i = 0; i < g->n_table; i++)
        g->table[i].n_key = 0;
    while (l->read < end) {
        fl_batch *b;
        fleet_status status = fl_stream_next(l->stream, &b);

        if (status == FLEET_EEND)
            break;
        FL_TRY(status);
        for (int i = 0; i < g->n_table && status == FLEET_OK; i++)
            status = take_ids(&g->table[i], g->d, b);
        fl_stream_release(l->stream, b);
        FL_TRY(status);
        l->read++;
        l->has_group = true;
    }
    return FLEET_OK;
}

static fleet_status add_group(fleet_psgpu *g)
{
    fl_pool *pool = g->f->context.pool;
    bool got = fl_pool_acquire(pool);
    fleet_status status = FLEET_OK;

    for (int i = 0; i < g->n_table && status == FLEET_OK; i++) {
        fl_pass_table *t = &g->table[i];

        fl_pass_keys_mark(&t->next.keys);
        status = fl_pass_keys_add(&t->next.keys, got ? pool : NULL, t->key,
                                  (int64_t)t->n_key);
    }
    if (got)
        fl_pool_release(pool);
    return status;
}

/* --- bytes ---------------------------------------------------------------- */

static int64_t bytes_of_keys(const fl_pass_table *t, const fl_pass_keys *keys)
{
    return fl_table_gpu_bytes(t->rows, fl_pass_keys_count(keys));
}

int64_t fl_pass_bytes(const fleet_psgpu *g)
{
    int64_t bytes = 0;

    for (int i = 0; i < g->n_table; i++)
        bytes += bytes_of_keys(&g->table[i], &g->table[i].set.keys);
    return bytes;
}

int64_t fl_pass_next_bytes(const fleet_psgpu *g)
{
    int64_t bytes = 0;

    for (int i = 0; i < g->n_table; i++)
        bytes += bytes_of_keys(&g->table[i], &g->table[i].next.keys);
    return bytes;
}

static fleet_status group_too_large(const fleet_psgpu *g, const fl_pass_list *l)
{
    return fl_fail(FLEET_ENOMEM,
                   "the rows of %d batch%s, %" PRId64 " to %" PRId64
                   ", take %" PRId64 " bytes of gpu:%d's memory, and %" PRId64
                   " are allowed: a part of a pass cannot be smaller",
                   merge_steps(g), merge_steps(g) > 1 ? "es" : "", l->end,
                   l->read - 1, fl_pass_next_bytes(g), g->device,
                   g->memory_bytes);
}

/* --- parts ---------------------------------------------------------------- */

fleet_status fl_pass_list_part(fleet_psgpu *g, fl_pass_list *l)
{
    for (int i = 0; i < g->n_table; i++)
        fl_pass_keys_clear(&g->table[i].next.keys);
    l->first = l->end;
    l->is_last = false;
    while (!atomic_load(&g->stop)) {
        if (!l->has_group)
            FL_TRY(read_group(g, l));
        if (!l->has_group) {
            l->is_last = true;
            return FLEET_OK;
        }
        FL_TRY(add_group(g));
        if (l->end > l->first && l->most > 0 &&
            fl_pass_next_bytes(g) > l->most) {
            for (int i = 0; i < g->n_table; i++)
                fl_pass_keys_back(&g->table[i].next.keys);
            return FLEET_OK;
        }
        if (g->memory_bytes > 0 && fl_pass_next_bytes(g) > g->memory_bytes)
            return group_too_large(g, l);
        l->has_group = false;
        l->end = l->read;
    }
    return FLEET_OK;
}

fleet_status fl_pass_list_begin(fleet_psgpu *g, fl_pass_list *l, int64_t most)
{
    fl_pass_list_close(l);
    FL_TRY(l->open(g, l));
    l->most = most;
    l->has_group = false;
    l->end = l->read = l->from;
    return FLEET_OK;
}

fleet_status fl_pass_list_first(fleet_psgpu *g, fl_pass_list *l,
                                int64_t learned)
{
    const int64_t most = g->memory_bytes > 0 ? g->memory_bytes : learned;

    FL_TRY(fl_pass_list_begin(g, l, most));
    FL_TRY(fl_pass_list_part(g, l));
    if (l->is_last || g->memory_bytes == 0)
        return FLEET_OK;
    FL_TRY(fl_pass_list_begin(g, l, most / 2));
    return fl_pass_list_part(g, l);
}

void fl_pass_list_close(fl_pass_list *l)
{
    fl_stream_close(l->stream);
    l->stream = NULL;
}
