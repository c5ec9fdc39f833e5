/* lookup_data.c - sets of keys, sums by key, and the end of what the steps of a
 * lookup hand to each other. */
#include "runtime/lookup/lookup_data.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/simd/simd.h"

/* --- sets of keys -------------------------------------------------------- */

/* Empty the set and make room for `most` keys. */
fleet_status fl_key_set_begin(fl_key_set *s, int64_t most)
{
    size_t wanted = 16;

    while (wanted < 2 * (size_t)most)
        wanted *= 2;
    FL_TRY(fl_grow(&s->key, &s->capacity, (size_t)most, sizeof *s->key));
    FL_TRY(fl_grow(&s->slot, &s->slot_capacity, wanted, sizeof *s->slot));
    memset(s->slot, 0, wanted * sizeof *s->slot);
    s->n_slot = wanted;
    fl_secret_draw();
    s->n = 0;
    return FLEET_OK;
}

fleet_status fl_key_set_room(fl_key_set *s, int64_t n)
{
    int64_t most = s->n + n;
    fl_key_set wider = {0};
    fleet_status status;
    bool is_new;

    if (s->n_slot >= 2 * (size_t)most && s->capacity >= (size_t)most)
        return FLEET_OK;
    status = fl_key_set_begin(&wider, most + most / 2);
    if (status != FLEET_OK) {
        fl_key_set_done(&wider);
        return status;
    }
    for (int64_t i = 0; i < s->n; i++)
        fl_key_set_add(&wider, s->key[i], &is_new);
    fl_key_set_done(s);
    *s = wider;
    return FLEET_OK;
}

uint32_t fl_key_set_add(fl_key_set *s, uint64_t key, bool *is_new)
{
    size_t mask = s->n_slot - 1, i = fl_key_set_place(s, key);

    while (s->slot[i] && s->key[s->slot[i] - 1] != key)
        i = (i + 1) & mask;
    *is_new = s->slot[i] == 0;
    if (*is_new) {
        s->key[s->n++] = key;
        s->slot[i] = (uint32_t)s->n;
    }
    return s->slot[i] - 1;
}

bool fl_key_set_has(const fl_key_set *s, uint64_t key)
{
    size_t i;

    if (s->n == 0)
        return false;
    i = fl_key_set_place(s, key);
    while (s->slot[i] && s->key[s->slot[i] - 1] != key)
        i = (i + 1) & (s->n_slot - 1);
    return s->slot[i] != 0 && (int64_t)s->slot[i] <= s->n;
}

void fl_key_set_done(fl_key_set *s)
{
    fl_free(s->key);
    fl_free(s->slot);
    *s = (fl_key_set){0};
}

/* --- sums by key ---------------------------------------------------------- */

void fl_row_sums_clear(fl_row_sums *s)
{
    if (s->keys.slot)
        memset(s->keys.slot, 0, s->keys.n_slot * sizeof *s->keys.slot);
    s->keys.n = 0;
}

fleet_status fl_row_sums_room(fl_row_sums *s, int64_t n, const fl_rows *rows)
{
    FL_TRY(fl_key_set_room(&s->keys, n));
    return fl_grow(&s->sum, &s->capacity,
                   (size_t)((s->keys.n + n) * fl_rows_pushed(rows)),
                   sizeof *s->sum);
}

void fl_row_sums_add(fl_row_sums *s, uint64_t key, const float *grad,
                     float factor, const fl_rows *rows)
{
    const fl_simd *simd = fl_simd_best();
    int64_t dim = rows->dim, width = fl_rows_pushed(rows);
    bool is_new;
    float *sum =
        s->sum + (int64_t)fl_key_set_add(&s->keys, key, &is_new) * width;

    if (!is_new)
        fl_add_pushed(rows, sum, sum, grad);
    else if (width > dim)
        memcpy(sum + dim, grad + dim, (size_t)(width - dim) * sizeof *sum);
    if (is_new && factor == 1.0f)
        memcpy(sum, grad, (size_t)dim * sizeof *sum);
    else if (is_new)
        simd->scale(sum, grad, factor, 0.0f, dim);
    else if (factor == 1.0f)
        simd->add(sum, sum, grad, dim);
    else
        simd->add_scaled(sum, grad, factor, 0.0f, dim);
}

void fl_row_sums_done(fl_row_sums *s)
{
    fl_key_set_done(&s->keys);
    fl_free(s->sum);
    *s = (fl_row_sums){0};
}

/* --- a lookup ------------------------------------------------------------- */

static void part_done(fl_lookup_part *p)
{
    fl_wanted_rows_done(&p->wanted);
    fl_key_set_done(&p->keys);
    fl_row_sums_done(&p->merged);
    fl_free(p->head);
    fl_free(p->tail);
    fl_free(p->row);
    fl_free(p->value);
    fl_free(p->fresh);
    fl_free(p->which);
    fl_free(p->grad);
    fl_free(p->target);
    fl_free(p->changed);
    fl_free(p->sum);
    fl_free(p->sorted);
}

int64_t fl_lookup_position(const fl_lookup *k, const fl_lookup_config *c,
                           int64_t sample)
{
    int64_t n = sample * c->n_feature;

    if (!c->ragged)
        return n;
    for (int i = 0; i < c->n_feature; i++)
        if (c->feature[i].ragged)
            n += k->offsets[i][sample] - sample;
    return n;
}

fleet_status fl_lookup_find(const fl_lookup *k, fl_lookup_part *p)
{
    p->epoch = fl_rows_epoch(k->rows);
    return k->rows->methods->find(k->rows, p->keys.key, p->keys.n, p->row);
}

void fl_lookup_done(fl_lookup *k)
{
    for (int i = 0; i < FL_N_PART; i++)
        part_done(&k->part[i]);
    fl_free(k->offsets);
    fl_free(k->key);
    fl_free(k->next);
    fl_free(k->order);
    fl_free(k->row);
    fl_free(k->cell);
    fl_free(k->weight);
    fl_free(k->winner);
    fl_free(k->place);
    fl_free(k->kept);
    fl_free(k->bound);
    memset(k, 0, sizeof *k);
}
