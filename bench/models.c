/* models.c - R12, R13: samples per second of a training step of din, dcn_v2,
 * dlrm, bst and sasrec on batches from memory, beside bench/models_peer.py,
 * which computes the same: weights and batches are functions of their names.
 *
 *   models --model din --threads 2 --shortest 50
 *
 * It says in a line of JSON what the losses of the first steps were; for each
 * line that it then reads, a number of seconds, it trains for as long and says
 * how fast. */
#include <math.h>
#include <stdbool.h>

#include "model.h"
#include "pairs.h"

enum { LONGEST = 50, MOST_INPUTS = 40, N_LOSS = 8, MOST_NAME = 16 };

typedef enum slot_kind { LABEL, NUMBERS, ID, HISTORY } slot_kind;

/* A slot, and what its batches hold. */
typedef struct input {
    char name[MOST_NAME];
    slot_kind kind;
    int width; /* of NUMBERS */
    void *data[MOST_BATCHES];
    int64_t *offsets[MOST_BATCHES]; /* of HISTORY */
} input;

typedef struct rival {
    const char *model;
    int threads, batch, shortest, n_batch, n_input, at;
    long rows;
    int64_t dim;
    bool adam;
    input input[MOST_INPUTS];
    fleet *f;
    fleet_model m;
    fleet_executor *e;
} rival;

/* --- numbers from names --------------------------------------------------- */

/* FNV-1a: where the random numbers of a name begin. */
static uint64_t seed_of(const char *name)
{
    uint64_t h = 0xcbf29ce484222325ULL;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3ULL;
    return h;
}

/* Uniform from -most to most. */
static void fill(float *to, int64_t n, const char *name, float most)
{
    uint64_t at = seed_of(name);

    for (int64_t i = 0; i < n; i++)
        to[i] = most * ((float)(next_random(&at) >> 40) * 0x1p-23f - 1.0f);
}

static void *room(int64_t n, size_t size)
{
    void *p = malloc((size_t)n * size);

    if (!p)
        fprintf(stderr, "bench: no memory\n"), exit(1);
    return p;
}

/* --- batches -------------------------------------------------------------- */

/* The length of each history of a batch, the same in all its slots. */
static int64_t *offsets_of(const rival *r, int batch)
{
    int64_t *offset = room(r->batch + 1, sizeof *offset);
    char name[32];
    uint64_t at;

    snprintf(name, sizeof name, "length/%d", batch);
    at = seed_of(name);
    offset[0] = 0;
    for (int i = 0; i < r->batch; i++) {
        uint64_t more = (uint64_t)(LONGEST - r->shortest + 1);

        offset[i + 1] =
            offset[i] + r->shortest + (int64_t)(next_random(&at) % more);
    }
    return offset;
}

static void make_batch(const rival *r, input *in, int batch)
{
    int64_t n = r->batch, *id;
    char name[32];
    uint64_t at;

    snprintf(name, sizeof name, "%s/%d", in->name, batch);
    at = seed_of(name);
    if (in->kind == NUMBERS) {
        float *x = in->data[batch] = room(n * in->width, sizeof *x);

        for (int64_t i = 0; i < n * in->width; i++)
            x[i] = (float)(next_random(&at) >> 40) * 0x1p-24f;
        return;
    }
    if (in->kind == HISTORY) {
        in->offsets[batch] = offsets_of(r, batch);
        n = in->offsets[batch][n];
    }
    id = in->data[batch] = room(n, sizeof *id);
    for (int64_t i = 0; i < n; i++)
        id[i] = in->kind == LABEL
                    ? (int64_t)(next_random(&at) & 1)
                    : (int64_t)(next_random(&at) % (uint64_t)r->rows);
}

static void add_input(rival *r, const char *name, slot_kind kind, int width)
{
    input *in = &r->input[r->n_input++];

    snprintf(in->name, sizeof in->name, "%s", name);
    in->kind = kind;
    in->width = width;
    for (int i = 0; i < r->n_batch; i++)
        make_batch(r, in, i);
}

/* --- models --------------------------------------------------------------- */

static bool is(const rival *r, const char *model)
{
    return strcmp(r->model, model) == 0;
}

static void build_clicks(rival *r, fleet_program *p)
{
    const fleet_ctr_options o = {.embedding_dim = r->dim};
    char name[MOST_NAME];

    add_input(r, "dense_input", NUMBERS, N_DENSE);
    for (int i = 0; i < N_ID; i++) {
        snprintf(name, sizeof name, "%d", i + 1);
        add_input(r, name, ID, 1);
    }
    if (is(r, "dlrm"))
        fleet_dlrm(p, &o, &r->m);
    else
        fleet_dcn_v2(p, &o, &r->m);
}

/* PaddleRec's slots. */
static void build_interests(rival *r, fleet_program *p)
{
    const fleet_ctr_options o = {.embedding_dim = r->dim};

    add_input(r, "hist_item_seq", HISTORY, 1);
    add_input(r, "hist_cat_seq", HISTORY, 1);
    add_input(r, "target_item", ID, 1);
    add_input(r, "target_cat", ID, 1);
    if (is(r, "bst")) {
        add_input(r, "userid", ID, 1);
        fleet_bst(p, &o, &r->m);
    } else
        fleet_din(p, &o, &r->m);
}

static void build_sasrec(rival *r, fleet_program *p)
{
    static const fleet_id_slot ids[] = {
        {"hist_item_seq", -1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_HISTORY},
        {"target_item", 1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_ITEM},
        {"negative", -1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_NEGATIVE}};
    const fleet_ctr_options o = {
        .embedding_dim = r->dim, .ids = ids, .n_ids = 3};

    add_input(r, "hist_item_seq", HISTORY, 1);
    add_input(r, "target_item", ID, 1);
    add_input(r, "negative", HISTORY, 1);
    fleet_sasrec(p, &o, &r->m);
}

typedef struct shape {
    const char *model;
    void (*build)(rival *r, fleet_program *p);
    int64_t dim;
    int batch;
    bool adam;
    long rows;
} shape;

static const shape shapes[] = {
    {"din", build_interests, 16, 1024, false, 100000},
    {"dcn_v2", build_clicks, 16, 1024, false, 1000000},
    {"dlrm", build_clicks, 16, 1024, false, 1000000},
    {"bst", build_interests, 96, 256, true, 100000},
    {"sasrec", build_sasrec, 64, 256, true, 100000},
    {.model = NULL}};

/* --- weights -------------------------------------------------------------- */

static void set_table(const rival *r, const fleet_parameter_info *v)
{
    int64_t dim = v->dims[1];
    uint64_t *key = room(r->rows, sizeof *key);
    float *x = room(r->rows * dim, sizeof *x);

    for (long i = 0; i < r->rows; i++)
        key[i] = (uint64_t)i;
    fill(x, r->rows * dim, v->name, 0.1f);
    if (fleet_table_set(r->f, v->name, key, r->rows, dim, x, NULL) != FLEET_OK)
        fail(v->name);
    free(key);
    free(x);
}

/* Biases and the scales of norms stay as they began: 0 and 1. */
static void set_matrix(const rival *r, const fleet_parameter_info *v)
{
    int64_t n = v->dims[0] * v->dims[1];
    float *x = room(n, sizeof *x);

    fill(x, n, v->name, 1.0f / sqrtf((float)v->dims[0]));
    if (fleet_parameter_set(r->f, v->name, x, n) != FLEET_OK)
        fail(v->name);
    free(x);
}

static void set_weights(const rival *r)
{
    fleet_parameter_info list[64];
    int n = 0;

    if (fleet_parameter_list(r->f, list, 64, &n) != FLEET_OK || n > 64)
        fail("parameters");
    for (int i = 0; i < n; i++)
        if (list[i].is_table)
            set_table(r, &list[i]);
        else if (list[i].n_dim == 2)
            set_matrix(r, &list[i]);
}

/* --- steps ---------------------------------------------------------------- */

static void open_rival(rival *r)
{
    const fleet_options o = {.num_threads = r->threads,
                             .log_level = FLEET_LOG_WARNING};
    const shape *s = shapes;
    fleet_program *p;
    fleet_optimizer *rule;

    while (s->model && !is(r, s->model))
        s++;
    if (!s->model)
        fprintf(stderr, "models: no model %s\n", r->model), exit(2);
    r->batch = s->batch, r->rows = s->rows, r->dim = s->dim;
    r->n_batch = 16384 / r->batch;
    if (fleet_init(&r->f, &o) != FLEET_OK)
        fail("init");
    p = fleet_program_create(r->f);
    add_input(r, "label", LABEL, 1);
    s->build(r, p);
    rule = s->adam ? fleet_adam(r->f, 0.001f, NULL)
                   : fleet_adagrad(r->f, 0.01f, NULL);
    if (fleet_minimize(fleet_distributed_optimizer(r->f, rule, NULL),
                       r->m.loss) != FLEET_OK)
        fail("model");
    if (getenv("FLEET_BENCH_PLAN")) {
        char *text = fleet_program_dump(p, FLEET_DUMP_PLAN, r->batch);

        fputs(text ? text : fleet_last_error(), stderr);
        fleet_free(text);
    }
    r->e = fleet_executor_create(p, NULL);
    if (!r->e)
        fail("executor");
    set_weights(r);
}

static float train_step(rival *r)
{
    int at = r->at++ % r->n_batch;
    float loss = 0;
    int64_t dims[MOST_INPUTS][2];
    fleet_feed feed[MOST_INPUTS];
    fleet_fetch fetch = {.var = r->m.loss, .data = &loss, .size = sizeof loss};

    for (int i = 0; i < r->n_input; i++) {
        const input *in = &r->input[i];

        dims[i][0] = r->batch;
        dims[i][1] = in->width;
        feed[i] = (fleet_feed){.name = in->name,
                               .dtype = in->kind == NUMBERS ? FLEET_FLOAT32
                                                            : FLEET_INT64,
                               .data = in->data[at],
                               .dims = dims[i],
                               .n_dim = in->kind == HISTORY ? 1 : 2,
                               .offsets = in->offsets[at]};
    }
    if (fleet_executor_run(r->e, feed, r->n_input, &fetch, 1) != FLEET_OK)
        fail("step");
    return loss;
}

static void say_losses(rival *r)
{
    printf("{\"model\": \"%s\", \"batch\": %d, \"losses\": [", r->model,
           r->batch);
    for (int i = 0; i < N_LOSS; i++)
        printf("%s%.7f", i ? ", " : "", (double)train_step(r));
    printf("]}\n");
    fflush(stdout);
}

static void train_for(rival *r, double seconds)
{
    double begin = now(), passed;
    int n = 0;
    pairs p;

    memset(&p, 0, sizeof p);
    pair_begin(&p);
    do {
        train_step(r);
        passed = now() - begin;
        n++;
    } while (passed < seconds);
    printf("{\"samples_per_s\": %.1f, \"samples_per_cpu_s\": %.1f, "
           "\"foreign\": %.2f}\n",
           (double)n * r->batch / passed,
           (double)n * r->batch / (process_seconds() - p.process),
           pair_foreign(&p));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static rival r = {.model = "din", .threads = 2, .shortest = LONGEST};
    double seconds;

    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--model"))
            r.model = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            r.threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--shortest"))
            r.shortest = atoi(argv[i + 1]);
        else
            fprintf(stderr, "models: no option %s\n", argv[i]), exit(2);
    open_rival(&r);
    say_losses(&r);
    while (scanf("%lf", &seconds) == 1)
        train_for(&r, seconds);
    fleet_executor_destroy(r.e);
    fleet_destroy(r.f);
    return 0;
}
