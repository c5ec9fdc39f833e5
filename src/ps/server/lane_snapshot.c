/* lane_snapshot.c - all that a lane is, as records, so that its journal need
 * not be read from its beginning: written while the lane goes on, and brought
 * into a lane that was just made. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_staleness.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/snapshot.h"

enum {
    MOST_FLOATS = 64 << 10,
    MOST_BYTES = 256 << 10,
    CHUNK = 256 /* rows that are made at once */
};

/* --- writing: what is not in the store ------------------------------------ */

static fl_place_state place_of(const fl_stream_state *s)
{
    fl_place_state p = {
        .done = s->done,
        .reduced = s->reduced,
        .stop_step = s->stop_step,
        .command_step = s->command_step,
        .nonce = s->nonce,
        .incarnation = s->incarnation,
        .command_status = (uint32_t)s->command_status,
        .text_size = s->command_text ? (uint32_t)strlen(s->command_text) : 0,
        .has_text = s->command_text != NULL,
        .left = !s->left   ? 0
                : s->heard ? 2
                           : 1,
        .no_log = s->no_log,
        .has_clock = s->has_clock,
        .contributed = s->contributed,
        .clock = s->clock};

    memcpy(p.who, s->who, sizeof p.who);
    return p;
}

static fleet_status put_state(const fl_ps_lane *l, const fl_journal_sink *to,
                              fl_place_state *place, fl_journal_part *part)
{
    size_t n = (size_t)l->o.n_stream, n_part = 3;
    const fl_state_record r = {.version = (uint64_t)l->version,
                               .updates = (uint64_t)l->o.layout->store->updates,
                               .run = l->run,
                               .life = l->aggregate.life,
                               .clip = l->last_clip,
                               .n_stream = (uint32_t)n,
                               .reduced_how = l->reduced_how,
                               .reduced_first = l->reduced_first,
                               .n_reduced = (uint32_t)l->n_reduced};

    part[0] = (fl_journal_part){&r, sizeof r};
    part[1] = (fl_journal_part){place, n * sizeof *place};
    part[2] = (fl_journal_part){l->reduced, r.n_reduced * sizeof *l->reduced};
    for (size_t i = 0; i < n; i++) {
        place[i] = place_of(&l->stream[i]);
        part[n_part++] =
            (fl_journal_part){l->stream[i].command_text, place[i].text_size};
    }
    return to->put(to->arg, FL_LANE_RECORD_STATE, part, n_part);
}

static fleet_status write_state(const fl_ps_lane *l, const fl_journal_sink *to)
{
    size_t n = (size_t)l->o.n_stream;
    fl_place_state *place = fl_alloc_array(n, sizeof *place);
    fl_journal_part *part = fl_alloc_array(n + 3, sizeof *part);
    fleet_status status =
        place && part ? put_state(l, to, place, part) : FLEET_ENOMEM;

    fl_free(place);
    fl_free(part);
    return status;
}

/* In the order in which the passes came. */
static fleet_status write_leases(const fl_lease_queue *q,
                                 const fl_journal_sink *to)
{
    if (q->before)
        FL_TRY(write_leases(q->before, to));
    for (int i = 0; q->list && i < q->n_worker; i++) {
        const fl_lease_list *list = &q->list[i];
        const fl_lease_record r = {.pass = q->pass,
                                   .sums = q->sums,
                                   .stream = (uint32_t)i,
                                   .n = (uint32_t)list->n};

        if (list->n > 0)
            FL_TRY(to->put(
                to->arg, FL_LANE_RECORD_LEASE,
                (fl_journal_part[]){{&r, sizeof r},
                                    {list->at, list->n * sizeof *list->at}},
                2));
    }
    return FLEET_OK;
}

/* Now, and not with the rows: a load or a shrink behind the snapshot changes
 * it. */
static fleet_status write_lives(const fl_store *s, const fl_journal_sink *to)
{
    for (size_t i = 0; i < s->tables.n; i++) {
        const fl_life *life = ((const fl_rows *)s->tables.entry[i].value)->life;
        fl_table_life_record r = {.table = (uint32_t)i};

        if (!life)
            continue;
        r.n_mark = (uint32_t)life->n_mark;
        r.emptied_at = life->emptied_at;
        r.loaded_at = life->loaded_at;
        FL_TRY(to->put(
            to->arg, FL_LANE_RECORD_LIFE,
            (fl_journal_part[]){{&r, sizeof r},
                                {life->mark, r.n_mark * sizeof *life->mark}},
            2));
    }
    return FLEET_OK;
}

bool fl_lane_may_freeze(const fl_ps_lane *l)
{
    return l->state == FL_LANE_RUNS && l->error.code == FLEET_OK && !l->busy &&
           !l->saving && !l->frozen && !l->replaying &&
           !l->o.layout->store->half_loaded;
}

fleet_status fl_lane_freeze(fl_ps_lane *l, const fl_journal_sink *to)
{
    FL_TRY(write_state(l, to));
    FL_TRY(write_leases(&l->leases, to));
    FL_TRY(write_lives(l->o.layout->store, to));
    FL_TRY(fl_snapshot_begin(l->o.layout->store, l->version, NULL, 0));
    l->frozen = true;
    return FLEET_OK;
}

void fl_lane_thaw(fl_ps_lane *l, int64_t now_ms)
{
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    fl_snapshot_end(l->o.layout->store);
    l->frozen = false;
    if (l->state != FL_LANE_RUNS)
        return;
    fl_lane_advance(l);
    fl_lane_catch_up(l);
}

/* --- writing: the store --------------------------------------------------- */

/* Records of rows in the making. */
typedef struct frozen_rows {
    const fl_journal_sink *to;
    fl_rows_record_head head;
    const fl_rows *rows;
    char *at;
    size_t row_bytes, used, capacity;
    fl_whole_record *whole;
} frozen_rows;

static fleet_status write_floats(const fl_journal_sink *to, fl_dense_record r,
                                 const float *from, uint64_t end,
                                 fl_whole_record *whole)
{
    for (; r.first < end; r.first += r.n, from += r.n) {
        r.n = end - r.first < MOST_FLOATS ? end - r.first : MOST_FLOATS;
        FL_TRY(to->put(
            to->arg, FL_LANE_RECORD_DENSE,
            (fl_journal_part[]){{&r, sizeof r}, {from, r.n * sizeof *from}},
            2));
        whole->floats += r.n;
    }
    return FLEET_OK;
}

static fleet_status write_dense(const fl_store *s, const fl_journal_sink *to,
                                fl_whole_record *whole)
{
    uint32_t group = 0;

    for (const fl_flat *g = s->flats; g; g = g->next, group++) {
        FL_TRY(write_floats(to, (fl_dense_record){.group = group},
                            fl_snapshot_floats(s->snapshot, g, -1),
                            (uint64_t)g->n, whole));
        for (uint32_t i = 0; i < FL_MAX_STATE; i++)
            if (g->state[i])
                FL_TRY(write_floats(
                    to, (fl_dense_record){.group = group, .state = i + 1},
                    fl_snapshot_floats(s->snapshot, g, (int)i),
                    (uint64_t)(g->end - g->first), whole));
    }
    return FLEET_OK;
}

static fleet_status flush_rows(frozen_rows *f)
{
    fleet_status status;

    if (f->head.n == 0)
        return FLEET_OK;
    status = f->to->put(
        f->to->arg, FL_LANE_RECORD_ROWS,
        (fl_journal_part[]){{&f->head, sizeof f->head}, {f->at, f->used}}, 2);
    f->whole->rows += f->head.n;
    f->head.n = 0;
    f->used = 0;
    return status;
}

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    frozen_rows *f = arg;
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    char *to;

    (void)bucket;
    if (f->used + f->row_bytes > MOST_BYTES)
        FL_TRY(flush_rows(f));
    FL_TRY(fl_grow(&f->at, &f->capacity, f->used + f->row_bytes, 1));
    to = f->at + f->used;
    memset(to, 0, f->row_bytes);
    memcpy(to, &key, sizeof key);
    memcpy(to + sizeof key, head, sizeof *head);
    memcpy(to + sizeof key + sizeof *head, row, f->head.floats * sizeof *row);
    f->used += f->row_bytes;
    f->head.n++;
    return FLEET_OK;
}

static size_t bytes_of_row(uint32_t floats)
{
    return fl_journal_aligned(sizeof(uint64_t) + sizeof(fl_row_head) +
                              floats * sizeof(float));
}

static fleet_status write_table(const fl_rows *rows, uint32_t table,
                                const fl_journal_sink *to)
{
    const fl_filler *f = &rows->filler;
    const fl_table_record r = {.table = table,
                               .kind = (uint32_t)f->kind,
                               .a = f->a,
                               .b = f->b,
                               .seed = f->seed,
                               .stream = f->stream,
                               .vector_at = f->vector_at};

    return to->put(to->arg, FL_LANE_RECORD_TABLE,
                   &(fl_journal_part){&r, sizeof r}, 1);
}

static fleet_status write_tables(const fl_store *s, const fl_journal_sink *to,
                                 fl_whole_record *whole)
{
    frozen_rows f = {.to = to, .whole = whole};
    fleet_status status = FLEET_OK;

    for (size_t i = 0; i < s->tables.n && status == FLEET_OK; i++) {
        f.rows = s->tables.entry[i].value;
        f.head = (fl_rows_record_head){
            .table = (uint32_t)i, .floats = (uint32_t)fl_rows_record(f.rows)};
        f.row_bytes = bytes_of_row(f.head.floats);
        status = write_table(f.rows, f.head.table, to);
        if (status == FLEET_OK)
            status = fl_snapshot_each(s->snapshot, f.rows, add_row, &f);
        if (status == FLEET_OK)
            status = flush_rows(&f);
    }
    fl_free(f.at);
    return status;
}

fleet_status fl_lane_write_frozen(const fl_ps_lane *l,
                                  const fl_journal_sink *to)
{
    const fl_store *s = l->o.layout->store;
    fl_whole_record whole = {0};

    FL_TRY(write_dense(s, to, &whole));
    FL_TRY(write_tables(s, to, &whole));
    FL_TRY(to->put(to->arg, FL_LANE_RECORD_WHOLE,
                   &(fl_journal_part){&whole, sizeof whole}, 1));
    return to->commit(to->arg);
}

/* --- reading -------------------------------------------------------------- */

static fleet_status does_not_fit(const char *what)
{
    return fl_fail(FLEET_ECORRUPT, "%s of a snapshot do not fit", what);
}

static fleet_status restore_place(fl_stream_state *s, const fl_place_state *p,
                                  const char *text)
{
    s->done = p->done;
    s->reduced = p->reduced;
    s->stop_step = p->stop_step;
    s->command_step = p->command_step;
    s->nonce = p->nonce;
    s->incarnation = p->incarnation;
    s->command_status = (fleet_status)p->command_status;
    s->left = p->left > 0;
    s->heard = p->left > 1;
    s->no_log = p->no_log;
    s->has_clock = p->has_clock;
    s->contributed = p->contributed;
    s->clock = p->clock;
    snprintf(s->who, sizeof s->who, "%.*s", (int)sizeof p->who - 1, p->who);
    fl_free(s->command_text);
    s->command_text = p->has_text ? fl_strndup(text, p->text_size) : NULL;
    return p->has_text && !s->command_text ? FLEET_ENOMEM : FLEET_OK;
}

static fleet_status restore_reduced(fl_ps_lane *l, const fl_state_record *r,
                                    const char *numbers)
{
    fl_free(l->reduced);
    l->reduced = fl_alloc_array((size_t)r->n_reduced + 1, sizeof *l->reduced);
    l->n_reduced = l->reduced ? (int)r->n_reduced : 0;
    l->reduced_how = r->reduced_how;
    l->reduced_first = r->reduced_first;
    if (!l->reduced)
        return FLEET_ENOMEM;
    memcpy(l->reduced, numbers, r->n_reduced * sizeof *l->reduced);
    return FLEET_OK;
}

/* Workers that have rows of before take them for what was loaded. */
static fleet_status restore_state(fl_ps_lane *l, const fl_journal_record *r)
{
    const fl_state_record *s = (const void *)r->data;
    const fl_place_state *place = (const void *)(r->data + sizeof *s);
    size_t n = (size_t)l->o.n_stream, at = sizeof *s + n * sizeof *place;
    size_t end;

    if (r->size < at || s->n_stream != n ||
        s->n_reduced > (r->size - at) / sizeof *l->reduced)
        return does_not_fit("streams");
    end = at + s->n_reduced * sizeof *l->reduced;
    FL_TRY(restore_reduced(l, s, r->data + at));
    for (size_t i = 0; i < n; i++) {
        if (place[i].text_size > r->size - end)
            return does_not_fit("texts");
        FL_TRY(restore_place(&l->stream[i], &place[i], r->data + end));
        fl_lane_file_stream(l, (uint32_t)i);
        end += place[i].text_size;
    }
    fl_staleness_restore(l);
    fl_lease_done(&l->leases); /* records behind this one have them */
    l->version = (int64_t)s->version;
    l->o.layout->store->updates = (int64_t)s->updates;
    l->last_clip = s->clip;
    l->aggregate.life = s->life + 1;
    l->run = s->run;
    if (s->run)
        fl_server_enter_run(l->o.identity, s->run);
    l->restored_floats = l->restored_rows = l->restored_lives = 0;
    return FLEET_OK;
}

static fleet_status restore_life(fl_ps_lane *l, const fl_journal_record *r)
{
    const fl_table_life_record *from = (const void *)r->data;
    const fl_map *tables = &l->o.layout->store->tables;
    fl_life *life;

    if (r->size < sizeof *from || from->table >= tables->n ||
        from->n_mark > FL_LIFE_MARKS ||
        r->size != sizeof *from + from->n_mark * sizeof *life->mark)
        return does_not_fit("lives");
    life = ((fl_rows *)tables->entry[from->table].value)->life;
    if (!life)
        return does_not_fit("lives");
    life->emptied_at = from->emptied_at;
    life->loaded_at = from->loaded_at;
    life->n_mark = (int)from->n_mark;
    memcpy(life->mark, r->data + sizeof *from,
           from->n_mark * sizeof *life->mark);
    l->restored_lives++;
    return FLEET_OK;
}

static fleet_status restore_dense(fl_ps_lane *l, const fl_journal_record *r)
{
    const fl_dense_record *d = (const void *)r->data;
    const fl_flat *g = l->o.layout->store->flats;
    uint64_t n;
    float *to;

    if (r->size < sizeof *d || d->state > FL_MAX_STATE)
        return does_not_fit("weights");
    for (uint32_t i = 0; g && i < d->group; i++)
        g = g->next;
    to = !g ? NULL : d->state == 0 ? g->weight : g->state[d->state - 1];
    n = !g ? 0 : (uint64_t)(d->state == 0 ? g->n : g->end - g->first);
    if (!to || d->first > n || d->n > n - d->first ||
        r->size != sizeof *d + d->n * sizeof *to)
        return does_not_fit("weights");
    memcpy(to + d->first, r->data + sizeof *d, d->n * sizeof *to);
    fl_aggregate_live_forget(&l->aggregate);
    l->restored_floats += d->n;
    return FLEET_OK;
}

static fleet_status restore_table(fl_ps_lane *l, const fl_journal_record *r)
{
    const fl_table_record *t = (const void *)r->data;
    const fl_map *tables = &l->o.layout->store->tables;
    fl_rows *rows;

    if (r->size != sizeof *t || t->table >= tables->n ||
        t->kind > FLEET_INIT_TRUNCATED_NORMAL)
        return does_not_fit("tables");
    rows = tables->entry[t->table].value;
    rows->filler = (fl_filler){.kind = (fleet_initializer_kind)t->kind,
                               .a = t->a,
                               .b = t->b,
                               .seed = t->seed,
                               .stream = t->stream,
                               .vector_at = t->vector_at};
    return FLEET_OK;
}

/* New rows, which are about to be written: what they begin with, random
 * numbers maybe, need not be drawn. */
static fleet_status make_blank(fl_rows *rows, const uint64_t *key, size_t n,
                               float **row)
{
    const fl_filler filler = rows->filler;
    fleet_status status;

    rows->filler.kind = FLEET_INIT_CONSTANT;
    rows->filler.a = 0;
    status = rows->methods->make(rows, key, (int64_t)n, row);
    rows->filler = filler;
    return status;
}

static fleet_status make_from(fl_rows *rows, const uint64_t *key, size_t n,
                              const char *data, size_t bytes)
{
    float *row[CHUNK];

    FL_TRY(make_blank(rows, key, n, row));
    fl_live_hash_out(rows, key, row, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        const char *at = data + i * bytes + sizeof *key;

        memcpy(fl_row_of(row[i]), at, sizeof(fl_row_head));
        memcpy(row[i], at + sizeof(fl_row_head),
               (size_t)fl_rows_record(rows) * sizeof(float));
    }
    fl_live_hash_in(rows, key, row, (int64_t)n);
    return FLEET_OK;
}

/* The rows of some keys that the table did not have. One with a cap has to have
 * room for them: older rows go into its file. */
static fleet_status restore_some(fl_rows *rows, const char *data, size_t n,
                                 size_t bytes)
{
    fl_wanted_rows wanted = {0};
    uint64_t key[CHUNK];
    fleet_status status;

    for (size_t i = 0; i < n; i++)
        memcpy(&key[i], data + i * bytes, sizeof *key);
    status = fl_rows_bring(&wanted, rows, key, (int64_t)n);
    if (status == FLEET_OK)
        status = make_from(rows, key, n, data, bytes);
    fl_wanted_rows_done(&wanted);
    return status;
}

/* Neighbours in a snapshot are of one part of the table, whose memory may be
 * less than a chunk of them takes. */
static fleet_status restore_all(fl_rows *rows, const char *data, size_t n,
                                size_t bytes)
{
    size_t most = CHUNK;

    for (size_t i = 0; i < n;) {
        size_t some = n - i < most ? n - i : most;
        fleet_status status = restore_some(rows, data + i * bytes, some, bytes);

        if (status == FLEET_ENOMEM && rows->methods->want && some > 1) {
            most = some / 2;
            continue;
        }
        FL_TRY(status);
        i += some;
    }
    return FLEET_OK;
}

static fleet_status restore_rows(fl_ps_lane *l, const fl_journal_record *r)
{
    const fl_rows_record_head *h = (const void *)r->data;
    const fl_map *tables = &l->o.layout->store->tables;
    size_t bytes;
    fl_rows *rows;

    if (r->size < sizeof *h || h->table >= tables->n)
        return does_not_fit("rows");
    rows = tables->entry[h->table].value;
    bytes = bytes_of_row(h->floats);
    if (h->floats != (uint32_t)fl_rows_record(rows) ||
        (r->size - sizeof *h) / bytes != h->n || (r->size - sizeof *h) % bytes)
        return does_not_fit("rows");
    FL_TRY(restore_all(rows, r->data + sizeof *h, h->n, bytes));
    l->restored_rows += h->n;
    return FLEET_OK;
}

static uint64_t count_lives(const fl_store *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->tables.n; i++)
        n += ((const fl_rows *)s->tables.entry[i].value)->life != NULL;
    return n;
}

/* In geo: a worker that asks for what has changed since before the snapshot has
 * to ask by keys. */
static void forget_changes(fl_ps_lane *l)
{
    const fl_partition *p = l->o.layout;

    for (int i = 0; l->aggregate.changes && i < p->n_table; i++)
        fl_change_log_forget(&l->aggregate.changes[i], p->table[i],
                             (uint64_t)p->store->updates);
}

static fleet_status check_whole(fl_ps_lane *l, const fl_journal_record *r)
{
    const fl_whole_record *w = (const void *)r->data;

    if (r->size != sizeof *w || w->floats != l->restored_floats ||
        w->rows != l->restored_rows)
        return fl_fail(FLEET_ECORRUPT,
                       "a snapshot of which %" PRIu64 " floats and %" PRIu64
                       " rows were found",
                       l->restored_floats, l->restored_rows);
    if (l->restored_lives != count_lives(l->o.layout->store))
        return does_not_fit("lives");
    forget_changes(l);
    return FLEET_OK;
}

fleet_status fl_lane_restore(fl_ps_lane *l, const fl_journal_record *r)
{
    switch ((fl_lane_record_kind)r->kind) {
    case FL_LANE_RECORD_STATE:
        return restore_state(l, r);
    case FL_LANE_RECORD_LIFE:
        return restore_life(l, r);
    case FL_LANE_RECORD_DENSE:
        return restore_dense(l, r);
    case FL_LANE_RECORD_TABLE:
        return restore_table(l, r);
    case FL_LANE_RECORD_ROWS:
        return restore_rows(l, r);
    default:
        return check_whole(l, r);
    }
}
