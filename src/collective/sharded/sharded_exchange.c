/* sharded_exchange.c - what ranks send one another: keys, and the rows that
 * belong to them, by rank and then by table. */
#include "collective/sharded/sharded_internal.h"

#include <string.h>

#include "base/memory.h"

static int owner_of_bucket(const fl_sharded_tables *s, int bucket)
{
    return bucket * s->n_rank / FL_N_BUCKET;
}

static int owner_of_key(const fl_sharded_tables *s, uint64_t key)
{
    return owner_of_bucket(s, fl_bucket_of(fl_mix(key)));
}

/* With 1, 2, 4 or 8 ranks each part is one rank's; with another number of ranks
 * most parts are. */
fl_sharded_run fl_sharded_next_run(const fl_sharded_tables *s, int part,
                                   const uint64_t *key, const uint32_t *which,
                                   int64_t begin, int64_t n)
{
    int first = part * (FL_N_BUCKET / FL_N_PART);
    int owner = owner_of_bucket(s, first), at;
    fl_sharded_run run = {.owner = owner, .begin = begin, .end = n};

    if (owner == owner_of_bucket(s, first + FL_N_BUCKET / FL_N_PART - 1) ||
        begin == n)
        return run;
    run.owner = owner_of_key(s, key[which ? which[begin] : begin]);
    for (run.end = begin + 1; run.end < n; run.end++) {
        at = owner_of_key(s, key[which ? which[run.end] : run.end]);
        if (at != run.owner)
            break;
    }
    return run;
}

int fl_sharded_number(const fl_sharded_tables *s, const fl_rows *rows)
{
    for (int t = 0; t < s->n_table; t++)
        if (s->table[t] == rows)
            return t;
    return -1; /* the store had all tables when this was made */
}

int64_t fl_sharded_key_size(const fl_sharded_tables *s, int table)
{
    (void)s;
    (void)table;
    return (int64_t)sizeof(uint64_t);
}

int64_t fl_sharded_row_size(const fl_sharded_tables *s, int table)
{
    return s->table[table]->dim * (int64_t)sizeof(float);
}

int64_t fl_sharded_grad_size(const fl_sharded_tables *s, int table)
{
    return fl_rows_pushed(s->table[table]) * (int64_t)sizeof(float);
}

fleet_status fl_sharded_reserve(const fl_sharded_tables *s,
                                fl_sharded_buffer *p, const int64_t *count,
                                fl_sharded_item_size *size_of)
{
    int own = fl_sharded_rank(s);
    int64_t all = 0;

    for (int i = 0; i < s->n_rank; i++) {
        int r = i + 1 == s->n_rank ? own : i + (i >= own);
        int64_t begin = all;

        for (int t = 0; t < s->n_table; t++) {
            p->at[r * s->n_table + t] = all;
            all += count[r * s->n_table + t] * size_of(s, t);
        }
        p->bytes[r] = r == own ? 0 : all - begin;
    }
    return fl_grow(&p->data, &p->capacity, (size_t)all + 1, 1);
}

void *fl_sharded_item(const fl_sharded_tables *s, const fl_sharded_buffer *p,
                      int rank, int table, int64_t i,
                      fl_sharded_item_size *size_of)
{
    return p->data + p->at[rank * s->n_table + table] + i * size_of(s, table);
}

fleet_status fl_sharded_exchange_counts(fl_sharded_tables *s)
{
    fl_comm *p = s->agree->comm;
    int64_t each = s->n_table * (int64_t)sizeof *s->to;
    int64_t *bytes = s->to_keys.bytes;

    for (int r = 0; r < s->n_rank; r++)
        bytes[r] = each;
    return p->methods->all_to_all_v(p, s->to, bytes, s->from, bytes, NULL);
}

fleet_status fl_sharded_exchange(fl_sharded_tables *s,
                                 const fl_sharded_buffer *to,
                                 const fl_sharded_buffer *from)
{
    fl_comm *p = s->agree->comm;

    return p->methods->all_to_all_v(p, to->data, to->bytes, from->data,
                                    from->bytes, NULL);
}

const uint64_t *fl_sharded_keys_of(const fl_sharded_tables *s, int rank,
                                   int table)
{
    const fl_sharded_buffer *p =
        rank == fl_sharded_rank(s) ? &s->to_keys : &s->from_keys;

    return fl_sharded_item(s, p, rank, table, 0, fl_sharded_key_size);
}

fleet_status fl_sharded_exchange_keys(fl_sharded_tables *s)
{
    FL_TRY(fl_sharded_reserve(s, &s->from_keys, s->from, fl_sharded_key_size));
    return fl_sharded_exchange(s, &s->to_keys, &s->from_keys);
}

void fl_sharded_reset_done(fl_sharded_tables *s)
{
    memset(s->done, 0, (size_t)(s->n_rank * s->n_table) * sizeof *s->done);
}
