/* memory_exchange.c - in each round the samples of a block of each worker's
 * travel. A message is records: the place in the block, the size, from which
 * file and line, and the row by itself. */
#include "data/memory_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/memory_left.h"
#include "data/cache_build.h"

/* --- places --------------------------------------------------------------- */

uint64_t fl_memory_rows(const fl_memory_share *s, uint64_t worker)
{
    const uint64_t round = s->batch * s->n, rest = s->rows % round;
    const uint64_t begin = worker * s->batch;
    const uint64_t more = rest > begin ? rest - begin : 0;

    return s->rows / round * s->batch + (more < s->batch ? more : s->batch);
}

uint64_t fl_memory_place(const fl_memory_share *s, uint64_t worker,
                         uint64_t row)
{
    return (row / s->batch * s->n + worker) * s->batch + row % s->batch;
}

typedef struct travel {
    uint64_t worker, row; /* where to */
    uint64_t at;          /* row of the memory */
} travel;

static int by_place(const void *a, const void *b)
{
    const travel *x = a, *y = b;

    if (x->worker != y->worker)
        return x->worker < y->worker ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

typedef struct exchange {
    const fl_sample_memory *held;
    const fl_memory_share *share;
    const fl_memory_swap *swap;
    fl_memory_limit limit;
    fl_sample_memory *m;
    fl_layout layout;
    uint64_t window; /* rows of a block */
    travel *travel;  /* by place */
    size_t *next;    /* by worker: of travel, what goes next */
    char **out;      /* by worker: a message, with its size and room */
    size_t *size, *capacity;
    int64_t *to, *from;
    const char **in;
    const char **record; /* by place in the block */
    fl_batch_buffer *buffer;
    size_t *used;
} exchange;

static uint64_t sample_of(const exchange *x, const fl_memory_origin *o,
                          uint64_t row)
{
    uint64_t place;

    if (!o->shared)
        return o->first + row;
    place = fl_memory_place(x->share, (uint64_t)x->swap->index, row);
    return o->before ? fl_permutation_at(o->before, place) : place;
}

static void plan_travels(exchange *x, const fl_memory_origin *o,
                         const fl_permutation *after)
{
    const fl_memory_share *s = x->share;
    size_t n = 0;

    for (uint64_t row = 0; row < x->held->rows; row++) {
        const uint64_t place =
            fl_permutation_place(after, sample_of(x, o, row));
        const uint64_t batch = place / s->batch;

        x->travel[row] =
            (travel){.worker = batch % s->n,
                     .row = batch / s->n * s->batch + place % s->batch,
                     .at = row};
    }
    qsort(x->travel, (size_t)x->held->rows, sizeof *x->travel, by_place);
    for (uint64_t w = 0; w < s->n; w++) {
        x->next[w] = n;
        while (n < x->held->rows && x->travel[n].worker == w)
            n++;
    }
}

/* --- messages ------------------------------------------------------------- */

typedef struct record_head {
    uint32_t place, size;
    uint64_t from;
} record_head;

static fleet_status add_record(exchange *x, int to, const travel *t,
                               uint64_t first)
{
    const fl_memory_block *b = fl_sample_memory_find(x->held, t->at);
    const uint64_t row = t->at - b->first;
    record_head head = {.place = (uint32_t)(t->row - first),
                        .from = b->from[row]};

    FL_TRY(fl_cache_row_size(b->packed, row, &x->layout, &head.size));
    FL_TRY(fl_grow(&x->out[to], &x->capacity[to],
                   x->size[to] + sizeof head + head.size, 1));
    memcpy(x->out[to] + x->size[to], &head, sizeof head);
    fl_cache_row_make(b->packed, row, &x->layout,
                      x->out[to] + x->size[to] + sizeof head);
    x->size[to] += sizeof head + head.size;
    return FLEET_OK;
}

static fleet_status write_messages(exchange *x, uint64_t first)
{
    for (int w = 0; w < x->swap->n; w++) {
        size_t *at = &x->next[w];

        x->size[w] = 0;
        for (; *at < x->held->rows && x->travel[*at].worker == (uint64_t)w &&
               x->travel[*at].row < first + x->window;
             ++*at)
            FL_TRY(add_record(x, w, &x->travel[*at], first));
        x->to[w] = (int64_t)x->size[w];
    }
    return FLEET_OK;
}

/* All other workers have to hear of a failure, too. */
static fleet_status give_up(exchange *x, fleet_status status)
{
    fl_error kept;

    fl_error_take(&kept, status);
    for (int w = 0; w < x->swap->n; w++)
        x->to[w] = -1;
    (void)x->swap->round(x->swap->arg, (const char *const *)x->out, x->to,
                         x->in, x->from);
    return fl_error_raise(&kept);
}

/* --- a block -------------------------------------------------------------- */

static fleet_status refuse_message(int worker)
{
    return fl_fail(FLEET_EFORMAT,
                   "dataset: what worker %d has sent is no samples of these "
                   "slots",
                   worker);
}

/* By place; each stands once. */
static fleet_status read_message(exchange *x, int worker, uint64_t rows,
                                 uint64_t *found)
{
    const char *at = x->in[worker];
    int64_t left = x->from[worker];
    record_head head;

    for (; left >= (int64_t)sizeof head; ++*found) {
        memcpy(&head, at, sizeof head);
        left -= (int64_t)sizeof head;
        if (head.place >= rows || x->record[head.place] || left < head.size ||
            !fl_cache_row_holds(at + sizeof head, head.size, &x->layout))
            return refuse_message(worker);
        x->record[head.place] = at;
        at += sizeof head + head.size;
        left -= head.size;
    }
    return left == 0 ? FLEET_OK : refuse_message(worker);
}

static fleet_status read_messages(exchange *x, uint64_t rows)
{
    uint64_t found = 0;

    memset(x->record, 0, (size_t)x->window * sizeof *x->record);
    for (int w = 0; w < x->swap->n; w++)
        FL_TRY(read_message(x, w, rows, &found));
    return found == rows
               ? FLEET_OK
               : fl_fail(FLEET_EFORMAT,
                         "dataset: %llu samples have come of a block of %llu",
                         (unsigned long long)found, (unsigned long long)rows);
}

static fleet_status make_block(exchange *x, uint64_t rows, double share)
{
    uint64_t *from;

    FL_TRY(fl_batch_buffer_begin(x->buffer, &x->layout, (int64_t)rows));
    memset(x->used, 0, (size_t)x->layout.n_field * sizeof *x->used);
    for (uint64_t i = 0; i < rows; i++)
        FL_TRY(fl_cache_row_copy(x->record[i] + sizeof(record_head), &x->layout,
                                 x->buffer, x->used, (size_t)i));
    FL_TRY(fl_cache_block_make(&x->layout, x->buffer));
    FL_TRY(fl_memory_add_from(x->buffer, &from));
    for (uint64_t i = 0; i < rows; i++)
        memcpy(&from[i], x->record[i] + offsetof(record_head, from),
               sizeof from[i]);
    return fl_sample_memory_add(x->m, x->buffer, 0, share, &x->limit);
}

/* --- all ------------------------------------------------------------------ */

static fleet_status run_rounds(exchange *x)
{
    const uint64_t mine = fl_memory_rows(x->share, (uint64_t)x->swap->index);
    const uint64_t most = fl_memory_rows(x->share, 0);
    fleet_status status;

    for (uint64_t first = 0; first < most; first += x->window) {
        const uint64_t left = mine > first ? mine - first : 0;
        const uint64_t rows = left < x->window ? left : x->window;

        status = write_messages(x, first);
        if (status != FLEET_OK)
            return give_up(x, status);
        FL_TRY(x->swap->round(x->swap->arg, (const char *const *)x->out, x->to,
                              x->in, x->from));
        status = read_messages(x, rows);
        if (status == FLEET_OK && rows > 0)
            status = make_block(x, rows, (double)(first + rows) / (double)mine);
        if (status != FLEET_OK)
            return first + x->window < most ? give_up(x, status) : status;
    }
    return FLEET_OK;
}

/* By worker: a round takes it, also one in which this worker gives up. */
static fleet_status make_messages(exchange *x)
{
    const size_t n = (size_t)x->swap->n;

    FL_TRY(FL_NEW(&x->next, n * sizeof *x->next));
    FL_TRY(FL_NEW(&x->out, n * sizeof *x->out));
    FL_TRY(FL_NEW(&x->size, n * sizeof *x->size));
    FL_TRY(FL_NEW(&x->capacity, n * sizeof *x->capacity));
    FL_TRY(FL_NEW(&x->to, n * sizeof *x->to));
    FL_TRY(FL_NEW(&x->from, n * sizeof *x->from));
    return FL_NEW(&x->in, n * sizeof *x->in);
}

/* The limit is that of all that the shuffle takes. */
static fleet_status take_room(exchange *x, size_t size)
{
    const double mb = 1e-6;
    const int64_t left =
        x->limit.most > 0 ? x->limit.most - x->limit.used : fl_memory_left();

    if ((int64_t)size > left)
        return fl_fail(FLEET_ENOMEM,
                       "dataset: a shuffle of %llu samples over workers takes "
                       "%.1f MB besides them, and %.1f MB are left",
                       (unsigned long long)x->held->rows, (double)size * mb,
                       (double)left * mb);
    x->limit.used += (int64_t)size;
    return FLEET_OK;
}

static fleet_status make_room(exchange *x)
{
    const size_t size = (size_t)x->held->rows * sizeof *x->travel;

    FL_TRY(take_room(x, size));
    FL_TRY(FL_NEW(&x->travel, size));
    FL_TRY(FL_NEW(&x->record, (size_t)x->window * sizeof *x->record));
    FL_TRY(FL_NEW(&x->used, (size_t)x->layout.n_field * sizeof *x->used));
    return fl_batch_buffer_create(&x->buffer, &x->layout);
}

static void free_room(exchange *x)
{
    for (int w = 0; x->out && w < x->swap->n; w++)
        fl_free(x->out[w]);
    fl_batch_buffer_destroy(x->buffer, &x->layout, NULL);
    fl_free(x->travel);
    fl_free(x->next);
    fl_free(x->out);
    fl_free(x->size);
    fl_free(x->capacity);
    fl_free(x->to);
    fl_free(x->from);
    fl_free(x->in);
    fl_free(x->record);
    fl_free(x->used);
}

fleet_status fl_memory_exchange(
    const fl_sample_memory *held, const fl_memory_origin *origin,
    const fl_memory_share *share, const fl_permutation *after,
    const fl_stream_spec *spec, const fl_memory_swap *swap,
    const fl_memory_limit *limit, fl_sample_memory *m)
{
    exchange x = {.held = held,
                  .share = share,
                  .swap = swap,
                  .limit = *limit,
                  .m = m,
                  .window = (uint64_t)fl_cache_rows_of(spec)};
    fleet_status status;

    FL_TRY(fl_layout_init(&x.layout, spec));
    status = make_messages(&x);
    if (status == FLEET_OK) {
        status = make_room(&x);
        if (status == FLEET_OK)
            plan_travels(&x, origin, after);
        status = status == FLEET_OK ? run_rounds(&x) : give_up(&x, status);
    }
    free_room(&x);
    fl_layout_done(&x.layout);
    if (status != FLEET_OK)
        fl_sample_memory_done(m);
    return status;
}
