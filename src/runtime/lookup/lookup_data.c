/* lookup_data.c - sets of keys, and the end of what the steps of a lookup hand
 * to each other. */
#include "runtime/lookup/lookup_data.h"

#include <string.h>

#include "base/memory.h"

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

void fl_key_set_done(fl_key_set *s)
{
    fl_free(s->key);
    fl_free(s->slot);
    *s = (fl_key_set){0};
}

/* --- a lookup ------------------------------------------------------------- */

static void part_done(fl_lookup_part *p)
{
    fl_wanted_rows_done(&p->wanted);
    fl_key_set_done(&p->keys);
    fl_key_set_done(&p->merged);
    fl_free(p->head);
    fl_free(p->tail);
    fl_free(p->row);
    fl_free(p->value);
    fl_free(p->fresh);
    fl_free(p->which);
    fl_free(p->grad);
    fl_free(p->target);
    fl_free(p->sum);
    fl_free(p->merged_sum);
    fl_free(p->sorted);
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
    fl_free(k->bound);
    memset(k, 0, sizeof *k);
}
