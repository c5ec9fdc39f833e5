/* importance.c - fleet_feature_importance(): scores of batches in which a slot
 * has the values of other samples. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/inference_internal.h"
#include "fleet/predict/in_order.h"
#include "fleet/predict/scoring.h"

static const char call[] = "fleet_feature_importance";

enum { BATCH = 16384, MOST_SLOTS = 1000 };

typedef struct ranking {
    const fl_scoring *s;
    const fleet_importance_options *o;
    fl_in_order order;
    int *slot; /* each that feeds an input */
    int n_slot;
    fl_tally *tally; /* of the values as they are, then of each slot's */
} ranking;

/* What a thread has. */
typedef struct shuffler {
    ranking *k;
    void **out; /* by output, of a whole batch */
    size_t *size;
    float *score; /* of the first output: as the tallies, one after the other */
    int64_t *from;    /* of which sample a sample has the values */
    fl_slot_data own; /* those values */
    size_t capacity, weight_capacity, offset_capacity;
    fl_slot_data *slot; /* of the batch, and one is `own` */
} shuffler;

/* --- one slot's values, in another order ---------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    return fl_mix(*state += 0x9e3779b97f4a7c15ull);
}

/* R. Durstenfeld 1964; the same for a seed, a slot and a place in the files. */
static void draw_order(shuffler *w, const fl_batch *b, int slot)
{
    const uint64_t seeds[] = {w->k->o->seed, (uint64_t)slot,
                              (uint64_t)b->index};
    uint64_t state = fl_hash(seeds, sizeof seeds, 0);

    for (int64_t i = 0; i < b->rows; i++)
        w->from[i] = i;
    for (int64_t i = b->rows - 1; i > 0; i--) {
        int64_t j = (int64_t)(next_random(&state) % (uint64_t)(i + 1));
        int64_t kept = w->from[i];

        w->from[i] = w->from[j];
        w->from[j] = kept;
    }
}

static size_t value_size(const fleet_slot *s)
{
    return s->dtype == FLEET_INT64 ? sizeof(int64_t) : sizeof(float);
}

/* Of a sample: where its values begin, and how many they are. */
static int64_t values_of(const fl_slot_data *d, int64_t dim, int64_t row,
                         int64_t *begin)
{
    *begin = d->offsets ? d->offsets[row] : row * dim;
    return d->offsets ? d->offsets[row + 1] - *begin : dim;
}

static fleet_status grow_own(shuffler *w, const fl_slot_data *d, int64_t n,
                             int64_t rows, size_t size)
{
    FL_TRY(fl_grow(&w->own.values, &w->capacity, ((size_t)n + 1) * size, 1));
    if (d->weights)
        FL_TRY(fl_grow(&w->own.weights, &w->weight_capacity, (size_t)n + 1,
                       sizeof(float)));
    return d->offsets ? fl_grow(&w->own.offsets, &w->offset_capacity,
                                (size_t)rows + 1, sizeof(int64_t))
                      : FLEET_OK;
}

static fleet_status reorder(shuffler *w, const fl_batch *b, int slot)
{
    const fleet_slot *s = &w->k->s->spec.slots[slot];
    const size_t size = value_size(s);
    const fl_slot_data *d = &b->slot[slot];
    const int64_t n = d->offsets ? d->offsets[b->rows] : b->rows * s->dim;
    int64_t to = 0;

    FL_TRY(grow_own(w, d, n, b->rows, size));
    for (int64_t i = 0; i < b->rows; i++) {
        int64_t begin, count = values_of(d, s->dim, w->from[i], &begin);

        if (count > 0)
            memcpy((char *)w->own.values + (size_t)to * size,
                   (const char *)d->values + (size_t)begin * size,
                   (size_t)count * size);
        if (d->weights && count > 0)
            memcpy(w->own.weights + to, d->weights + begin,
                   (size_t)count * sizeof(float));
        to += count;
        if (d->offsets)
            w->own.offsets[i + 1] = to;
    }
    if (d->offsets)
        w->own.offsets[0] = 0;
    w->slot[slot] = w->own;
    if (!d->offsets)
        w->slot[slot].offsets = NULL;
    if (!d->weights)
        w->slot[slot].weights = NULL;
    return FLEET_OK;
}

/* --- a batch -------------------------------------------------------------- */

static fleet_status score_as(shuffler *w, const fl_batch *b, int at)
{
    const int64_t n = b->rows * fl_scoring_cols(w->k->s, 0);
    fl_batch changed = *b;

    changed.slot = w->slot;
    FL_TRY(fl_scoring_run(w->k->s, &changed, w->out, w->size));
    memcpy(w->score + at * n, w->out[0], (size_t)n * sizeof(float));
    return FLEET_OK;
}

static fleet_status score_shuffled(void *worker, const fl_batch *b)
{
    shuffler *w = worker;
    const ranking *k = w->k;
    const size_t size = (size_t)k->s->spec.n_slot * sizeof *w->slot;

    memcpy(w->slot, b->slot, size);
    FL_TRY(score_as(w, b, 0));
    for (int i = 0; i < k->n_slot; i++) {
        memcpy(w->slot, b->slot, size);
        draw_order(w, b, k->slot[i]);
        FL_TRY(reorder(w, b, k->slot[i]));
        FL_TRY(score_as(w, b, 1 + i));
    }
    return FLEET_OK;
}

static fleet_status compare_shuffled(void *worker, const fl_batch *b)
{
    shuffler *w = worker;
    const int64_t n = b->rows * fl_scoring_cols(w->k->s, 0);

    for (int i = 0; i <= w->k->n_slot; i++)
        FL_TRY(
            fl_scoring_compare(w->k->s, &w->k->tally[i], w->score + i * n, b));
    return FLEET_OK;
}

/* --- the call ------------------------------------------------------------- */

static fleet_status open_shuffler(shuffler *w, ranking *k)
{
    const fl_scoring *s = k->s;
    const int n_output = fleet_predictor_output_num(s->predictor);
    const size_t rows = (size_t)k->order.batch_size;

    w->k = k;
    FL_TRY(FL_NEW(&w->out, (size_t)n_output * sizeof *w->out));
    FL_TRY(FL_NEW(&w->size, (size_t)n_output * sizeof *w->size));
    for (int i = 0; i < n_output; i++) {
        w->size[i] = rows * fl_scoring_row_size(s, i);
        FL_TRY(FL_NEW(&w->out[i], w->size[i]));
    }
    FL_TRY(FL_NEW(&w->score, (size_t)(k->n_slot + 1) * w->size[0]));
    FL_TRY(FL_NEW(&w->from, rows * sizeof *w->from));
    return FL_NEW(&w->slot, (size_t)s->spec.n_slot * sizeof *w->slot);
}

static void close_shuffler(shuffler *w)
{
    const int n = w->k ? fleet_predictor_output_num(w->k->s->predictor) : 0;

    for (int i = 0; w->out && i < n; i++)
        fl_free(w->out[i]);
    fl_free(w->out);
    fl_free(w->size);
    fl_free(w->score);
    fl_free(w->from);
    fl_free(w->own.values);
    fl_free(w->own.weights);
    fl_free(w->own.offsets);
    fl_free(w->slot);
}

static fleet_status run_shufflers(ranking *k)
{
    const size_t n = (size_t)k->order.n_thread;
    void **worker = fl_alloc_array(n, sizeof *worker);
    shuffler *w = fl_alloc_array(n, sizeof *w);
    fleet_status status = w && worker ? FLEET_OK : FLEET_ENOMEM;

    for (size_t i = 0; i < n && status == FLEET_OK; i++) {
        worker[i] = &w[i];
        status = open_shuffler(&w[i], k);
    }
    if (status == FLEET_OK)
        status = fl_in_order_run(&k->order, worker, score_shuffled,
                                 compare_shuffled);
    for (size_t i = 0; w && i < n; i++)
        close_shuffler(&w[i]);
    fl_free(w);
    fl_free(worker);
    return status;
}

/* Each once, in the order of the line. */
static fleet_status find_slots(ranking *k)
{
    const fl_scoring *s = k->s;
    const int n_input = fleet_predictor_input_num(s->predictor);

    FL_TRY(FL_NEW(&k->slot, (size_t)s->spec.n_slot * sizeof *k->slot));
    for (int i = 0; i < s->spec.n_slot; i++) {
        bool feeds = false;

        for (int j = 0; j < n_input; j++)
            feeds = feeds || s->slot_of[j] == i;
        if (feeds)
            k->slot[k->n_slot++] = i;
    }
    return k->n_slot <= MOST_SLOTS
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL, "%s: %d slots: expected up to %d", call,
                         k->n_slot, MOST_SLOTS);
}

static fleet_status open_tallies(ranking *k)
{
    FL_TRY(FL_NEW(&k->tally, (size_t)(k->n_slot + 1) * sizeof *k->tally));
    for (int i = 0; i <= k->n_slot; i++)
        FL_TRY(fl_tally_open(&k->tally[i], fl_scoring_cols(k->s, 0)));
    return FLEET_OK;
}

static fleet_status rank_slots(ranking *k, const char *const *paths, int n,
                               fleet_importance *to, fleet_evaluation *found)
{
    const int64_t size = k->o->batch_size > 0 ? k->o->batch_size : BATCH;
    fl_stream_spec spec = k->s->spec;

    spec.pipe_command = k->o->pipe_command;
    FL_TRY(open_tallies(k));
    FL_TRY(fl_in_order_open(&k->order, &spec, paths, n, k->o->threads, size));
    FL_TRY(run_shufflers(k));
    FL_TRY(fl_tally_result(&k->tally[0], (double)NAN, found));
    for (int i = 0; i < k->n_slot; i++) {
        fleet_evaluation e;

        FL_TRY(fl_tally_result(&k->tally[1 + i], (double)NAN, &e));
        to[i] =
            (fleet_importance){.slot = k->s->spec.slots[k->slot[i]].name,
                               .auc_drop = found->auc - e.auc,
                               .logloss_rise = e.logloss - found->logloss,
                               .accuracy_drop = found->accuracy - e.accuracy};
    }
    return FLEET_OK;
}

static fleet_status rank_all(ranking *k, const char *const *paths, int n,
                             fleet_importance *to, int room, int *n_found,
                             fleet_evaluation *found)
{
    FL_TRY(fl_scoring_check_command(k->s, k->o->pipe_command, call));
    FL_TRY(fl_scoring_check_label(k->s, call));
    FL_TRY(find_slots(k));
    *n_found = k->n_slot;
    if (!to)
        return FLEET_OK;
    if (room < k->n_slot)
        return fl_fail(FLEET_EINVAL, "%s: room for %d slots, of %d", call, room,
                       k->n_slot);
    return rank_slots(k, paths, n, to, found);
}

fleet_status fleet_feature_importance(fleet_predictor *p,
                                      const char *const *paths, int n,
                                      const fleet_importance_options *options,
                                      fleet_importance *to, int room,
                                      int *n_found,
                                      fleet_evaluation *evaluation)
{
    static const fleet_importance_options defaults;
    ranking k = {.o = options ? options : &defaults};
    fleet_evaluation found = {0};
    fleet_status status;
    fl_scoring *s;

    if (!p || !n_found || (to && (!paths || n < 1)))
        return fl_fail(FLEET_EINVAL, "%s: NULL argument", call);
    *n_found = 0;
    for (int i = 0; to && i < n; i++)
        if (!paths[i])
            return fl_fail(FLEET_EINVAL, "%s: paths[%d] is NULL", call, i);
    FL_TRY(fl_scoring_check_numbers(k.o->threads, k.o->batch_size, call));
    FL_TRY(fl_scoring_of(p, FLEET_LABEL_READ, call, &s));
    k.s = s;
    status = rank_all(&k, paths, n, to, room, n_found, &found);
    fl_in_order_close(&k.order);
    for (int i = 0; k.tally && i <= k.n_slot; i++)
        fl_tally_close(&k.tally[i]);
    fl_free(k.tally);
    fl_free(k.slot);
    if (evaluation)
        *evaluation = found;
    return status;
}
