/* rare_ids_test.c - ids that come up rarely, under Adam: rows are those of the
 * formulas of SparseAdam, worked out in double, and with row_steps those of a
 * count per row. */
#define SUITE rare_ids
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/optim/rule.h"

enum { FIELDS = 3, IDS = 400, DIM = 4, BATCH = 32, STEPS = 300 };
enum { INPUT = FIELDS * DIM };

static const double RATE = 0.01;

/* --- a seeded generator --------------------------------------------------- */

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Ids of a field are its own; the k-th comes up about 1 / (k + 1) as often. A
 * label depends on each id's parity. */
static void make_batch(uint64_t *state, int64_t ids[BATCH][FIELDS],
                       float *label)
{
    for (int b = 0; b < BATCH; b++) {
        double logit = 0;

        for (int f = 0; f < FIELDS; f++) {
            int64_t k = (int64_t)pow(IDS, draw(state)) - 1;

            ids[b][f] = f * IDS + k;
            logit += k % 2 ? 1.5 : -1.5;
        }
        label[b] = draw(state) < 1 / (1 + exp(-logit)) ? 1.0f : 0.0f;
    }
}

/* --- in double ------------------------------------------------------------ */

/* A weight with Adam's moments, and what its gradient has come to. */
typedef struct cell {
    double w, m, v, g;
} cell;

typedef struct row {
    cell x[DIM];
    int64_t steps;
    bool touched;
} row;

typedef struct reference {
    bool row_steps;
    row rows[FIELDS * IDS];
    cell weight[INPUT], bias;
} reference;

static void adam(cell *c, int64_t t)
{
    c->m += 0.1 * (c->g - c->m);
    c->v += 0.001 * (c->g * c->g - c->v);
    c->w -= RATE * (c->m / (1 - pow(0.9, (double)t))) /
            (sqrt(c->v / (1 - pow(0.999, (double)t))) + 1e-8);
    c->g = 0;
}

static void add_sample(reference *r, const int64_t *id, double label)
{
    double z = r->bias.w, d;

    for (int i = 0; i < INPUT; i++)
        z += r->weight[i].w * r->rows[id[i / DIM]].x[i % DIM].w;
    d = (1 / (1 + exp(-z)) - label) / BATCH;
    r->bias.g += d;
    for (int i = 0; i < INPUT; i++) {
        row *at = &r->rows[id[i / DIM]];

        r->weight[i].g += d * at->x[i % DIM].w;
        at->x[i % DIM].g += d * r->weight[i].w;
        at->touched = true;
    }
}

/* Update number t; rows that the batch did not touch stay. */
static void update(reference *r, int64_t t)
{
    adam(&r->bias, t);
    for (int i = 0; i < INPUT; i++)
        adam(&r->weight[i], t);
    for (int i = 0; i < FIELDS * IDS; i++) {
        row *at = &r->rows[i];

        if (!at->touched)
            continue;
        at->steps++;
        at->touched = false;
        for (int d = 0; d < DIM; d++)
            adam(&at->x[d], r->row_steps ? at->steps : t);
    }
}

/* --- the same in a program ------------------------------------------------ */

typedef struct model {
    fleet *f;
    fleet_var *loss;
    fleet_executor *e;
} model;

static void open(model *m, bool row_steps)
{
    const fleet_adam_options adam_options = {.row_steps = row_steps};
    fleet_var *ids, *x, *label;
    fleet_program *p;

    *m = (model){kit_handle(&(kit_options){.seed = 3}), NULL, NULL};
    p = fleet_program_create(m->f);
    ids = kit_data_ids(p, "ids", FIELDS);
    label = kit_data(p, "label", 1);
    x = fleet_sparse_embedding(p, ids, DIM, NULL);
    x = fleet_fc(p, x, 1, &(fleet_fc_options){.name = "fc"});
    m->loss = fleet_mean(p, fleet_sigmoid_cross_entropy(p, x, label));
    CHECK_OK(fleet_program_status(p));
    CHECK_OK(
        fleet_minimize(fleet_adam(m->f, (float)RATE, &adam_options), m->loss));
    m->e = fleet_executor_create(p, NULL);
    CHECK(m->e != NULL);
}

static const float *row_of(const model *m, uint64_t key)
{
    fl_rows *rows = fl_store_rows(m->f->store, "embedding");
    float *found;

    CHECK_OK(rows->methods->find(rows, &key, 1, &found));
    return found;
}

static const float *param_of(const model *m, const char *name)
{
    const fl_param *p = fl_store_param(m->f->store, name);

    return p->flat->weight + p->offset;
}

/* The same first values; rows do not exist yet. */
static void start(reference *r, const model *m, bool row_steps)
{
    const fl_rows *rows = fl_store_rows(m->f->store, "embedding");

    memset(r, 0, sizeof *r);
    r->row_steps = row_steps;
    for (int i = 0; i < INPUT; i++)
        r->weight[i].w = (double)param_of(m, "fc.w")[i];
    for (int i = 0; i < FIELDS * IDS; i++) {
        float first[DIM];

        fl_filler_row(&rows->filler, (uint64_t)i, first, DIM);
        for (int d = 0; d < DIM; d++)
            r->rows[i].x[d].w = (double)first[d];
    }
}

/* The largest difference of a row's weight; and of how many rows, of up to how
 * many updates. */
static double largest_difference(const reference *r, const model *m,
                                 int64_t rare, int *n)
{
    double most = 0;

    *n = 0;
    for (int i = 0; i < FIELDS * IDS; i++) {
        const row *want = &r->rows[i];
        const float *got = row_of(m, (uint64_t)i);

        CHECK((got != NULL) == (want->steps > 0));
        if (!got || want->steps > rare)
            continue;
        (*n)++;
        for (int d = 0; d < DIM; d++)
            most = fmax(most, fabs((double)got[d] - want->x[d].w));
    }
    return most;
}

static void train(const model *m, reference *a, reference *b)
{
    int64_t ids[BATCH][FIELDS];
    const int64_t dims[][2] = {{BATCH, FIELDS}, {BATCH, 1}};
    uint64_t state = 7;
    float label[BATCH];
    const fleet_feed feed[] = {
        {"ids", FLEET_INT64, ids, dims[0], 2, NULL},
        {"label", FLEET_FLOAT32, label, dims[1], 2, NULL}};

    for (int t = 1; t <= STEPS; t++) {
        make_batch(&state, ids, label);
        CHECK_OK(fleet_executor_run(m->e, feed, 2, NULL, 0));
        for (int i = 0; i < BATCH; i++) {
            add_sample(a, ids[i], (double)label[i]);
            add_sample(b, ids[i], (double)label[i]);
        }
        update(a, t);
        update(b, t);
    }
}

/* As the reference of the same kind, and not as that of the other one. */
static void check(bool row_steps)
{
    static reference same, other;
    int n, rare;
    model m;

    open(&m, row_steps);
    start(&same, &m, row_steps);
    start(&other, &m, !row_steps);
    train(&m, &same, &other);
    CHECK(largest_difference(&same, &m, STEPS, &n) < 1e-3);
    CHECK(largest_difference(&same, &m, 3, &rare) < 1e-3);
    CHECK(rare > 100 && n > rare + 100);
    CHECK(largest_difference(&other, &m, 3, &rare) > 0.01);
    for (int i = 0; i < INPUT; i++)
        CHECK_NEAR((double)param_of(&m, "fc.w")[i], same.weight[i].w, 1e-3);
    fleet_executor_destroy(m.e);
    fleet_destroy(m.f);
}

TEST(rows_follow_the_number_of_the_update)
{
    check(false);
}

TEST(rows_with_steps_of_their_own_follow_those)
{
    check(true);
}
