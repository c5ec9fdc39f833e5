/* scoring.c - from what a save says of its lines to a spec for a stream, and
 * from a batch of that to the predictor's inputs. */
#include "fleet/predict/scoring.h"

#include <stdlib.h>
#include <string.h>

#include "data/format/formats.h"
#include "data/layout/check_spec.h"
#include "data/layout/layout.h"
#include "fleet/inference_internal.h"
#include "fleet/predict/predict_text.h"
#include "fleet/train/slot_bounds.h"
#include "fleet/train/slot_fits.h"
#include "runtime/graph/program.h"

typedef struct choice {
    fl_scoring *s;
    const fl_reading *r;
    fleet_label_use use;
    fleet_slot *slots; /* the chosen ones */
    uint64_t *seeds;
    int *var; /* the variable that each feeds, -1: none */
    int n;
} choice;

/* --- which slots are read ------------------------------------------------- */

static const fleet_var *var_of(const choice *c, const fleet_slot *slot)
{
    const fleet_var *v =
        fleet_program_var(c->s->predictor->program, slot->name);

    return v && v->kind == FL_VAR_DATA ? v : NULL;
}

static bool is_read(const choice *c, int i);

/* Is a slot that is read made of it? */
static bool is_source(const choice *c, int i)
{
    for (int k = i + 1; k < c->r->n_slot; k++) {
        const fleet_slot *made = &c->r->slots[k];

        for (int j = 0; j < made->n_from; j++)
            if (strcmp(made->from[j], c->r->slots[i].name) == 0 &&
                is_read(c, k))
                return true;
    }
    return false;
}

/* Of formats that name their slots the ones that matter: what is in other slots
 * may be anything. Of formats without names all, as each has its place in a
 * line, but an absent label. */
static bool is_read(const choice *c, int i)
{
    const bool label = i == c->r->label;

    if (label && c->use == FLEET_LABEL_READ)
        return true;
    if (label && c->use == FLEET_LABEL_ABSENT)
        return fl_format_has_slots(c->r->format);
    return !fl_slots_by_name(c->r->format) ||
           var_of(c, &c->r->slots[i]) != NULL || is_source(c, i);
}

static bool is_position(const char *column)
{
    size_t n = strspn(column, "0123456789");

    return n > 0 && n < 10 && column[n] == 0;
}

/* How many columns of the label stand in front of that place; -1: it is one. */
static int labels_before(const fleet_slot *label, int place)
{
    int n = 0;

    for (int i = 0; i < label->n_column; i++) {
        int at = atoi(label->columns[i]);
        bool again = false;

        for (int j = 0; j < i; j++)
            again = again || atoi(label->columns[j]) == at;
        if (at == place)
            return -1;
        n += at < place && !again;
    }
    return n;
}

/* Columns behind a label that is absent stand further to the left. With a
 * header they are found by their names. */
static fleet_status shift_columns(const choice *c, fleet_slot *slot)
{
    const fleet_slot *label = &c->r->slots[c->r->label];
    const char **column;

    column =
        fl_arena_alloc(&c->s->arena, (size_t)slot->n_column * sizeof *column);
    if (!column)
        return FLEET_ENOMEM;
    for (int i = 0; i < slot->n_column; i++) {
        int place = atoi(slot->columns[i]);
        int before = labels_before(label, place);

        if (before < 0)
            return fl_fail(FLEET_EINVAL,
                           "lines without the label: slot \"%s\" is fed by "
                           "column %d, which is the label's",
                           slot->name, place);
        column[i] = fl_arena_format(&c->s->arena, "%d", place - before);
        if (!column[i])
            return FLEET_ENOMEM;
    }
    slot->columns = column;
    return FLEET_OK;
}

static fleet_status check_names(const fleet_slot *slot)
{
    for (int i = 0; i < slot->n_column; i++)
        if (is_position(slot->columns[i]))
            return fl_fail(FLEET_EINVAL,
                           "lines without the label: slot \"%s\" has a column "
                           "by its position, %s, in a csv with a header: "
                           "expected names",
                           slot->name, slot->columns[i]);
    return FLEET_OK;
}

static fleet_status choose_slot(choice *c, int i)
{
    fleet_slot *slot = &c->slots[c->n];
    const fleet_var *v;

    *slot = c->r->slots[i];
    c->seeds[c->n] = c->r->seeds[i];
    v = var_of(c, slot);
    if (v)
        FL_TRY(fl_slot_fits(slot, v));
    c->var[c->n] = v ? v->id : -1;
    if (c->use == FLEET_LABEL_ABSENT && c->r->format == FLEET_CSV)
        FL_TRY(c->r->header ? check_names(slot) : shift_columns(c, slot));
    if (i == c->r->label && c->use == FLEET_LABEL_READ)
        c->s->label = c->n;
    c->n++;
    return FLEET_OK;
}

/* The means of chosen slots, among the means of all. */
static fleet_status choose_statistics(choice *c)
{
    fl_statistics *to = &c->s->statistics;
    const fl_statistics *from = &c->r->statistics;
    int at = 0, n = 0;

    if (from->n == 0)
        return FLEET_OK;
    FL_TRY(fl_statistics_create(to, from->n));
    for (int i = 0; i < c->r->n_slot; i++) {
        int columns = fl_count_standardized(&c->r->slots[i], 1);

        if (is_read(c, i)) {
            memcpy(to->mean + n, from->mean + at,
                   (size_t)columns * sizeof(double));
            memcpy(to->deviation + n, from->deviation + at,
                   (size_t)columns * sizeof(double));
            n += columns;
        }
        at += columns;
    }
    to->n = n;
    return FLEET_OK;
}

/* --- what they feed ------------------------------------------------------- */

static fleet_status find_inputs(choice *c)
{
    fl_scoring *s = c->s;
    const int n = fleet_predictor_input_num(s->predictor);

    s->slot_of = fl_arena_alloc(&s->arena, ((size_t)n + 1) * sizeof(int));
    if (!s->slot_of)
        return FLEET_ENOMEM;
    for (int i = 0; i < n; i++) {
        const fleet_var *v = fleet_predictor_input(s->predictor, i);
        const fleet_var *fed = v->weighs ? v->weighs : v;

        s->slot_of[i] = -1;
        for (int k = 0; k < c->n; k++)
            if (c->var[k] == fed->id)
                s->slot_of[i] = k;
        if (s->slot_of[i] < 0)
            return fl_fail(FLEET_ENOENT,
                           "the lines of the model have no slot for its input "
                           "\"%s\"",
                           v->name);
    }
    return FLEET_OK;
}

static fleet_status choose_bounds(choice *c)
{
    fl_slot_bounds *bounds =
        fl_arena_alloc(&c->s->arena, (size_t)c->n * sizeof *bounds);

    if (!bounds)
        return FLEET_ENOMEM;
    c->s->spec.bounds = bounds;
    return fl_slot_bounds_find(c->s->predictor->program, c->var, c->n, bounds);
}

static void fill_spec(const choice *c)
{
    fl_scoring *s = c->s;

    s->spec.format = c->r->format;
    s->spec.slots = c->slots;
    s->spec.seeds = c->seeds;
    s->spec.n_slot = c->n;
    s->spec.batch_size = s->spec.n_thread = 1;
    s->spec.separator = c->r->separator;
    s->spec.comment = c->r->comment;
    s->spec.header = c->r->header;
    s->spec.skip_lines = c->r->skip_lines;
    s->spec.missing = c->r->missing;
    s->spec.statistics = s->statistics.n > 0 ? &s->statistics : NULL;
    s->spec.share_count = 1;
    s->spec.any_file = true;
    s->spec.no_label = c->use == FLEET_LABEL_ABSENT;
    s->spec.log = &s->predictor->context.log;
}

static fleet_status make_scoring(fl_scoring *s, fleet_label_use use)
{
    choice c = {.s = s, .r = &s->predictor->reading, .use = use};
    const size_t n = (size_t)c.r->n_slot;
    int at;

    s->label = -1;
    c.slots = fl_arena_alloc(&s->arena, n * sizeof *c.slots);
    c.seeds = fl_arena_alloc(&s->arena, n * sizeof *c.seeds);
    c.var = fl_arena_alloc(&s->arena, n * sizeof *c.var);
    if (!c.slots || !c.seeds || !c.var)
        return FLEET_ENOMEM;
    for (int i = 0; i < c.r->n_slot; i++)
        if (is_read(&c, i))
            FL_TRY(choose_slot(&c, i));
    FL_TRY(find_inputs(&c));
    FL_TRY(choose_statistics(&c));
    FL_TRY(choose_bounds(&c));
    fill_spec(&c);
    FL_TRY(fl_spec_check_slots(&s->spec, &at));
    return fl_spec_check_statistics(&s->spec);
}

static void close_scoring(fl_scoring *s)
{
    if (!s)
        return;
    fl_text_runs_destroy(s->idle);
    fl_statistics_done(&s->statistics);
    fl_arena_done(&s->arena);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}

static fleet_status open_scoring(fleet_predictor *p, fleet_label_use use,
                                 fl_scoring **scoring)
{
    fl_scoring *s;
    fleet_status status;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->predictor = p;
    pthread_mutex_init(&s->lock, NULL);
    status = make_scoring(s, use);
    if (status != FLEET_OK)
        close_scoring(s);
    else
        *scoring = s;
    return status;
}

static fleet_status check_use(const fleet_predictor *p, fleet_label_use use,
                              const char *call)
{
    if (use < FLEET_LABEL_UNREAD || use > FLEET_LABEL_READ)
        return fl_fail(FLEET_EINVAL, "%s: use %d of the label does not exist",
                       call, (int)use);
    if (p->reading.n_slot == 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: the model does not know how lines are read: "
                       "expected one that fleet-train has saved, or "
                       "fleet_save_inference_model_with() with a dataset",
                       call);
    if (use != FLEET_LABEL_UNREAD && p->reading.label < 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: the model does not know which slot is the label",
                       call);
    return FLEET_OK;
}

fleet_status fl_scoring_of(fleet_predictor *p, fleet_label_use use,
                           const char *call, fl_scoring **scoring)
{
    fleet_status status = FLEET_OK;

    FL_TRY(check_use(p, use, call));
    FL_TRY(fl_context_check(&p->context));
    pthread_mutex_lock(&p->lock);
    p->close_scoring = close_scoring;
    if (!p->scoring[use])
        status = open_scoring(p, use, &p->scoring[use]);
    *scoring = p->scoring[use];
    pthread_mutex_unlock(&p->lock);
    return status == FLEET_OK ? FLEET_OK : fl_fail_in(status, "%s", call);
}

fleet_status fl_scoring_check_numbers(int threads, int64_t batch_size,
                                      const char *call)
{
    enum { MOST_BATCH = 1 << 20 };

    if (threads < 0 || threads > FL_MAX_THREAD)
        return fl_fail(FLEET_EINVAL, "%s: threads: expected 0 to %d, got %d",
                       call, FL_MAX_THREAD, threads);
    if (batch_size < 0 || batch_size > MOST_BATCH)
        return fl_fail(FLEET_EINVAL,
                       "%s: batch_size: expected 0 to %d, got %lld", call,
                       MOST_BATCH, (long long)batch_size);
    return FLEET_OK;
}

fleet_status fl_scoring_check_command(const fl_scoring *s, const char *command,
                                      const char *call)
{
    if (!s->predictor->reading.is_piped || (command && *command))
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s: the model was trained through a pipe_command: expected "
                   "one, or \"cat\" where the files need none",
                   call);
}

fleet_status fl_scoring_check_label(const fl_scoring *s, const char *call)
{
    const fleet_var *v = fleet_predictor_output(s->predictor, 0);
    const fleet_slot *label = &s->spec.slots[s->label];

    if (v->dtype != FLEET_FLOAT32)
        return fl_fail(FLEET_EDTYPE,
                       "%s: output \"%s\" is %s: a label is compared with "
                       "float32",
                       call, v->name, fleet_dtype_name(v->dtype));
    return label->dim == 1
               ? FLEET_OK
               : fl_fail(FLEET_ESHAPE,
                         "%s: the label \"%s\" has %lld values: expected 1",
                         call, label->name, (long long)label->dim);
}

/* --- a batch -------------------------------------------------------------- */

int64_t fl_scoring_cols(const fl_scoring *s, int output)
{
    return fl_shape_cols(&fleet_predictor_output(s->predictor, output)->shape);
}

size_t fl_scoring_row_size(const fl_scoring *s, int output)
{
    return (size_t)fl_scoring_cols(s, output) *
           fleet_dtype_size(
               fleet_predictor_output(s->predictor, output)->dtype);
}

typedef struct input {
    fleet_feed feed;
    int64_t dims[FLEET_MAX_DIM];
} input;

static void fill_input(const fl_scoring *s, const fl_batch *b, int i, input *in)
{
    const fleet_var *v = fleet_predictor_input(s->predictor, i);
    const fl_slot_data *data = &b->slot[s->slot_of[i]];

    memcpy(in->dims, v->shape.dim, sizeof in->dims);
    in->dims[0] = b->rows;
    in->feed = (fleet_feed){.name = v->name,
                            .dtype = v->dtype,
                            .data = v->weighs ? data->weights : data->values,
                            .n_dim = v->ragged ? 1 : v->shape.n_dim,
                            .offsets = v->ragged ? data->offsets : NULL};
}

fleet_status fl_scoring_run(const fl_scoring *s, const fl_batch *b,
                            void *const *out, const size_t *size)
{
    enum { FEW = 64 };
    const int n = fleet_predictor_input_num(s->predictor);
    fleet_feed few[FEW], *feed = few;
    fleet_status status;
    input *in;

    FL_TRY(FL_NEW(&in, ((size_t)n + 1) * sizeof *in));
    if (n > FEW)
        feed = fl_alloc_array((size_t)n, sizeof *feed);
    for (int i = 0; feed && i < n; i++) {
        fill_input(s, b, i, &in[i]);
        feed[i] = in[i].feed;
        feed[i].dims = in[i].dims;
    }
    status = feed
                 ? fleet_predictor_run(s->predictor, feed, n, out, size,
                                       fleet_predictor_output_num(s->predictor))
                 : FLEET_ENOMEM;
    if (feed != few)
        fl_free(feed);
    fl_free(in);
    return status;
}

fleet_status fl_scoring_compare(const fl_scoring *s, fl_tally *j,
                                const float *p, const fl_batch *b)
{
    return fl_tally_add(j, p, s->spec.slots[s->label].dtype,
                        b->slot[s->label].values, b->rows);
}
