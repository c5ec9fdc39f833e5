/* op_kit.c - see op_kit.h. */
#define SUITE op_kit
#include "op_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/compile.h"

const op_case *const op_families[] = {
    op_cases,         math_cases,        shape_cases,    norm_cases, loss_cases,
    batch_norm_cases, interaction_cases, sequence_cases, conv_cases, NULL};

typedef struct scene {
    const op_case *c;
    int64_t batch;
    fleet *f;
    fleet_program *p;
    fleet_var *in[KIT_MAX_IN], *out, *weight, *loss;
    fleet_executor *e;
    ref_tensor ref[KIT_MAX_IN], ref_out;
    double *coefficient; /* of the outputs in the loss */
    float *fed[KIT_MAX_IN];
    int64_t *ids[KIT_MAX_IN];
    float *fed_weight;
} scene;

/* Numbers that are the same in every run. */
static double noise(int64_t i, int stream)
{
    double x = sin((double)(i * 7919 + stream * 104729 + 1)) * 43758.5453;

    return x - floor(x);
}

/* The nearest number of bfloat16. */
static float narrow(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void *room(int64_t n, size_t size)
{
    return calloc((size_t)n + 1, size);
}

static void set_shape(ref_tensor *t, const int64_t *dims, int n_dim,
                      int64_t batch)
{
    t->n_dim = n_dim;
    t->count = 1;
    for (int i = 0; i < n_dim; i++) {
        t->dim[i] = dims[i] < 0 ? -dims[i] * batch : dims[i];
        t->count *= t->dim[i];
    }
    t->data = room(t->count, sizeof *t->data);
}

static void fill_input(scene *s, int i)
{
    const kit_input *k = &s->c->in[i];
    ref_tensor *t = &s->ref[i];

    set_shape(t, k->dims, k->n_dim, s->batch);
    s->fed[i] = room(t->count, sizeof(float));
    s->ids[i] = room(t->count, sizeof(int64_t));
    for (int64_t j = 0; j < t->count; j++) {
        double x = k->low + (k->high - k->low) * noise(j, i);

        s->ids[i][j] = (int64_t)floor(x);
        s->fed[i][j] = s->c->bf16 ? narrow((float)x) : (float)x;
        t->data[j] = k->is_ids ? floor(x) : (double)s->fed[i][j];
    }
}

static void make_inputs(scene *s)
{
    for (int i = 0; i < s->c->n_in; i++) {
        const kit_input *k = &s->c->in[i];
        char name[16];

        snprintf(name, sizeof name, "in%d", i);
        fill_input(s, i);
        if (k->is_param)
            s->in[i] = fleet_parameter(s->p, k->dims, k->n_dim,
                                       &(fleet_param_attr){.name = name});
        else
            s->in[i] =
                fleet_data(s->p, name, k->is_ids ? FLEET_INT64 : FLEET_FLOAT32,
                           k->dims, k->n_dim);
        if (s->in[i] && !k->is_ids)
            s->in[i]->keep_gradient = true;
    }
}

/* loss = mean(out * coefficient) */
static void make_loss(scene *s)
{
    int64_t dims[FLEET_MAX_DIM];
    int n_dim = fleet_var_shape(s->out, dims);

    set_shape(&s->ref_out, dims, n_dim, s->batch);
    s->coefficient = room(s->ref_out.count, sizeof(double));
    s->fed_weight = room(s->ref_out.count, sizeof(float));
    for (int64_t i = 0; i < s->ref_out.count; i++) {
        s->fed_weight[i] = (float)(noise(i, 99) - 0.5);
        if (s->c->bf16)
            s->fed_weight[i] = narrow(s->fed_weight[i]);
        s->coefficient[i] = (double)s->fed_weight[i];
    }
    s->weight = fleet_data(s->p, "weight", FLEET_FLOAT32, dims, n_dim);
    s->loss = fleet_mean(s->p, fleet_mul(s->p, s->out, s->weight));
}

static void put_params(scene *s)
{
    for (int i = 0; i < s->c->n_in; i++) {
        fl_param *p;

        if (!s->c->in[i].is_param)
            continue;
        p = fl_store_param(s->f->store, s->in[i]->name);
        memcpy(p->flat->weight + p->offset, s->fed[i],
               (size_t)p->n * sizeof(float));
    }
}

static void minimize(scene *s)
{
    fleet_distributed_strategy how = FLEET_DISTRIBUTED_STRATEGY_INIT;

    how.amp = how.amp_configs.use_bf16 = s->c->bf16;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(s->f, fleet_sgd(s->f, 1e-30f), &how),
        s->loss));
}

static void open_scene(scene *s, int threads)
{
    fleet_options o = {.num_threads = threads};

    CHECK_OK(fleet_init(&s->f, &o));
    s->p = fleet_program_create(s->f);
    make_inputs(s);
    s->out = s->c->build(s->p, s->in);
    CHECK_OK(fleet_program_status(s->p));
    make_loss(s);
    if (!s->c->no_gradient)
        minimize(s);
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
    put_params(s);
}

static int feeds_of_case(const scene *s, fleet_feed *feed)
{
    int n = 0;

    for (int i = 0; i < s->c->n_in; i++) {
        const kit_input *k = &s->c->in[i];

        if (!k->is_param)
            feed[n++] =
                (fleet_feed){s->in[i]->name,
                             k->is_ids ? FLEET_INT64 : FLEET_FLOAT32,
                             k->is_ids ? (void *)s->ids[i] : (void *)s->fed[i],
                             s->ref[i].dim,
                             s->ref[i].n_dim,
                             NULL};
    }
    return n;
}

static void run_scene(scene *s, float *out)
{
    fleet_feed feed[KIT_MAX_IN + 1];
    fleet_fetch fetch = {.var = s->out,
                         .data = out,
                         .size = (size_t)s->ref_out.count * sizeof *out};
    int n = feeds_of_case(s, feed);

    feed[n++] = (fleet_feed){"weight",       FLEET_FLOAT32,    s->fed_weight,
                             s->ref_out.dim, s->ref_out.n_dim, NULL};
    CHECK_OK(fleet_executor_run(s->e, feed, n, &fetch, 1));
}

/* --- the comparisons ----------------------------------------------------- */

static void run_reference(scene *s)
{
    const ref_tensor *in[KIT_MAX_IN];

    for (int i = 0; i < s->c->n_in; i++)
        in[i] = &s->ref[i];
    memset(s->ref_out.data, 0, (size_t)s->ref_out.count * sizeof(double));
    s->c->ref(in, &s->ref_out);
}

static double reference_loss(scene *s)
{
    double sum = 0;

    run_reference(s);
    for (int64_t i = 0; i < s->ref_out.count; i++)
        sum += s->ref_out.data[i] * s->coefficient[i];
    return sum / (double)s->ref_out.count;
}

static void compare(const scene *s, const char *what, const float *got,
                    const double *want, int64_t n)
{
    double tolerance = s->c->tolerance > 0 ? s->c->tolerance : 2e-5;
    double most = 1e-6;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * most))
            test_fail(__FILE__, __LINE__,
                      "%s (%s), batch %lld: %s[%lld] is %.9g, not %.9g",
                      s->c->op, s->c->title, (long long)s->batch, what,
                      (long long)i, (double)got[i], want[i]);
}

static void check_gradient(scene *s, int i)
{
    const double h = 1e-5;
    ref_tensor *t = &s->ref[i];
    double *want = room(t->count, sizeof *want);
    const fl_plan *plan = s->e->last->plan;
    int at = plan->gradient_of[s->in[i]->id];

    if (at < 0)
        test_fail(__FILE__, __LINE__, "%s (%s): no gradient of in%d", s->c->op,
                  s->c->title, i);
    for (int64_t j = 0; j < t->count; j++) {
        double kept = t->data[j], up, down;

        t->data[j] = kept + h;
        up = reference_loss(s);
        t->data[j] = kept - h;
        down = reference_loss(s);
        t->data[j] = kept;
        want[j] = (up - down) / (2 * h);
    }
    compare(s, s->in[i]->name, fl_compiled_pointer(s->e->last, at), want,
            t->count);
    free(want);
}

static void close_scene(scene *s)
{
    for (int i = 0; i < s->c->n_in; i++) {
        free(s->ref[i].data);
        free(s->fed[i]);
        free(s->ids[i]);
    }
    free(s->ref_out.data);
    free(s->coefficient);
    free(s->fed_weight);
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

void check_case(const op_case *c, int64_t batch, int threads)
{
    scene s = {.c = c, .batch = batch};
    float *out;

    open_scene(&s, threads);
    out = room(s.ref_out.count, sizeof *out);
    run_scene(&s, out);
    run_reference(&s);
    compare(&s, "out", out, s.ref_out.data, s.ref_out.count);
    for (int i = 0; !c->no_gradient && i < c->n_in; i++)
        if (!c->in[i].is_ids)
            check_gradient(&s, i);
    free(out);
    close_scene(&s);
}

void check_cases(const op_case *c, int64_t batch, int threads)
{
    for (; c->op; c++)
        check_case(c, batch, threads);
}

void visit_case(const op_case *c, int64_t batch,
                void (*visit)(void *arg, fleet_executor *e), void *arg)
{
    scene s = {.c = c, .batch = batch};
    float *out;

    open_scene(&s, 1);
    out = room(s.ref_out.count, sizeof *out);
    run_scene(&s, out);
    visit(arg, s.e);
    free(out);
    close_scene(&s);
}

void view_case(const op_case *c, int64_t batch,
               void (*view)(void *arg, const case_view *v), void *arg)
{
    scene s = {.c = c, .batch = batch};
    fleet_feed feed[KIT_MAX_IN];
    float *out;

    open_scene(&s, 1);
    out = room(s.ref_out.count, sizeof *out);
    run_scene(&s, out);
    view(arg, &(case_view){.f = s.f,
                           .in = s.in,
                           .out = s.out,
                           .feed = feed,
                           .n_feed = feeds_of_case(&s, feed)});
    free(out);
    close_scene(&s);
}

void check_refusals(const op_refusal *r, size_t n,
                    void (*more)(fleet_program *p, fleet_var **in))
{
    for (size_t i = 0; i < n; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *in[KIT_MAX_IN] = {kit_data(p, "x", 4)};

        if (more)
            more(p, in);
        if (r[i].build(p, in))
            test_fail(__FILE__, __LINE__, "not refused: %s", r[i].words);
        CHECK_FAILS(fleet_last_status(), r[i].status, r[i].words);
        CHECK_FAILS(fleet_program_status(p), r[i].status, r[i].words);
        fleet_destroy(f);
    }
}
