/* ps_rows.c - P5, P6, P7: rows of a server's table over tcp, against the same
 * table in this process: 26,624 of 1,000,000 rows of 16 numbers, Adagrad, one
 * lane. A worker's exchange is driven as a training step drives it: keys by
 * part, two pulls under way, pushes that are waited for one push later. P7 is
 * one row, over a ping of as many bytes in ZeroMQ and nothing else. */
#include <math.h>

#include "fleet/job/handle.h"
#include "fleet/servers.h"
#include "helper.h"
#include "raw.h"
#include "runtime/plan/remote.h"
#include "runtime/simd/simd.h"
#include "runtime/plan/gradients.h"

enum {
    ROWS = 1000000,
    KEYS = 26624,
    DIM = 16,
    SETS = 16, /* of keys, used in turn */
    ROUNDS = 24,
    PER_ROUND = 60,
    PINGS = 200
};

/* --- both processes ------------------------------------------------------- */

/* A program with one table and little else. */
static fleet *open_fleet(const fleet_role *role)
{
    fleet_options o = {
        .num_threads = 1, .role = role, .log_level = FLEET_LOG_WARNING};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_ctr_options c = {.embedding_dim = DIM,
                           .hidden = (int64_t[]){8},
                           .n_hidden = 1,
                           .n_ids = 1,
                           .ids = (fleet_id_slot[]){{.name = "1"}}};
    fleet_program *p;
    fleet_model m;
    fleet *f;

    s.a_sync = 1;
    check(fleet_init(&f, &o));
    p = fleet_program_create(f);
    fleet_ctr_dnn(p, &c, &m);
    check(fleet_minimize(
        fleet_distributed_optimizer(f, fleet_adagrad(f, 0.01f, NULL), &s),
        m.loss));
    return f;
}

static void serve(int say, void *endpoint)
{
    fleet_role role = {
        .kind = FLEET_SERVER, .server_endpoints = endpoint, .worker_num = 1};
    fleet *f = open_fleet(&role);

    check(fleet_init_server(f, NULL));
    helper_say(say, endpoint);
    check(fleet_run_server(f));
    fleet_destroy(f);
}

/* --- what is asked for ---------------------------------------------------- */

/* Different keys, by part. */
typedef struct keys {
    uint64_t *key;
    int64_t first[FL_N_PART + 1];
} keys;

static int by_part(const void *a, const void *b)
{
    int x = fl_part_of(fl_mix(*(const uint64_t *)a));
    int y = fl_part_of(fl_mix(*(const uint64_t *)b));

    return x - y;
}

/* Keys first, first + 1, ... of a permutation of all. */
static keys make_keys(const uint64_t *all, int64_t first, int64_t n)
{
    keys k = {.key = malloc((size_t)n * sizeof *k.key)};

    for (int64_t i = 0; i < n; i++)
        k.key[i] = all[(first + i) % ROWS];
    qsort(k.key, (size_t)n, sizeof *k.key, by_part);
    for (int64_t i = 0; i < n; i++)
        k.first[fl_part_of(fl_mix(k.key[i])) + 1]++;
    for (int p = 0; p < FL_N_PART; p++)
        k.first[p + 1] += k.first[p];
    return k;
}

static uint64_t *shuffled(void)
{
    uint64_t *all = malloc(ROWS * sizeof *all), state = 1;

    for (uint64_t i = 0; i < ROWS; i++) {
        uint64_t j = next_random(&state) % (i + 1);

        all[i] = all[j];
        all[j] = i + 1;
    }
    return all;
}

typedef struct bench {
    fleet *near, *far; /* the table here, and on the server */
    fl_remote *x;
    keys set[SETS];
    int at;
    const float **row[FL_N_SLOT];
    float **target;
    const float **grad;
    float *values, *out;
} bench;

static fl_rows *rows_of(fleet *f)
{
    return fl_store_rows(f->store, "embedding");
}

/* --- far ------------------------------------------------------------------ */

static void pull(bench *b, const keys *k, int64_t most, int slot)
{
    fl_pull_rows t = {.rows = rows_of(b->far)};

    for (int p = 0; p < FL_N_PART; p++) {
        int64_t first = k->first[p] < most ? k->first[p] : most;
        int64_t end = k->first[p + 1] < most ? k->first[p + 1] : most;

        t.part[p] =
            (fl_pull_part){k->key + first, end - first, b->row[slot] + first};
    }
    check(b->x->methods->pull(b->x, slot, &t, 1, false, false, true));
}

static void push(bench *b, const keys *k, int64_t n)
{
    fl_push_rows t = {.rows = rows_of(b->far)};
    fl_push all = {.table = &t,
                   .n_table = 1,
                   .n_batch = 1,
                   .settings = {.learning_rate = 0.01f},
                   .clip = 1};

    for (int p = 0; p < FL_N_PART; p++) {
        int64_t first = k->first[p] < n ? k->first[p] : n;
        int64_t end = k->first[p + 1] < n ? k->first[p + 1] : n;

        t.part[p] =
            (fl_push_part){end - first, k->key + first, NULL, b->grad + first};
    }
    check(b->x->methods->push(b->x, &all));
}

static double far_pulls(bench *b)
{
    double began = now();

    pull(b, &b->set[b->at % SETS], KEYS, 0);
    for (int i = 0; i < PER_ROUND; i++) {
        b->at++;
        if (i + 1 < PER_ROUND)
            pull(b, &b->set[b->at % SETS], KEYS, (i + 1) % FL_N_SLOT);
        check(b->x->methods->wait_pull(b->x, i % FL_N_SLOT));
    }
    return (double)PER_ROUND * KEYS / (now() - began);
}

static double far_pushes(bench *b)
{
    double began = now();

    for (int i = 0; i < PER_ROUND; i++)
        push(b, &b->set[b->at++ % SETS], KEYS);
    check(b->x->methods->refresh(b->x)); /* waits for the last one */
    return (double)PER_ROUND * KEYS / (now() - began);
}

/* --- near: as a local step finds, gathers and updates --------------------- */

static void find(bench *b, const keys *k)
{
    fl_rows *r = rows_of(b->near);

    for (int p = 0; p < FL_N_PART; p++)
        check(r->methods->make(r, k->key + k->first[p],
                               k->first[p + 1] - k->first[p],
                               b->target + k->first[p]));
}

static double near_pulls(bench *b)
{
    double began = now();
    fl_gather_args a = {.out = (float *[]){b->out},
                        .ld = (int64_t[]){DIM},
                        .row = (const float *const *)b->target,
                        .n = KEYS,
                        .n_feature = 1,
                        .dim = DIM};

    for (int i = 0; i < PER_ROUND; i++) {
        find(b, &b->set[b->at++ % SETS]);
        fl_simd_best()->gather(&a);
    }
    return (double)PER_ROUND * KEYS / (now() - began);
}

static double near_pushes(bench *b)
{
    const fleet_optimizer *o = b->near->store->optimizer;
    double began = now();
    fl_update u = {0};

    fl_optimizer_update(o, 0, 1, &u);
    u.clip = 1;
    for (int i = 0; i < PER_ROUND; i++) {
        const keys *k = &b->set[b->at++ % SETS];

        find(b, k);
        fl_optimizer_rows(o)(&u, b->target, b->grad, KEYS, DIM);
    }
    return (double)PER_ROUND * KEYS / (now() - began);
}

/* --- one row -------------------------------------------------------------- */

static double ping_ours(bench *b)
{
    keys one = {.key = b->set[0].key};
    double took[PINGS];

    for (int p = 1; p <= FL_N_PART; p++)
        one.first[p] = 1;
    for (int i = 0; i < PINGS; i++) {
        double began = now();

        pull(b, &one, 1, 0);
        check(b->x->methods->wait_pull(b->x, 0));
        took[i] = now() - began;
    }
    qsort(took, PINGS, sizeof *took, ascending);
    return took[PINGS / 2];
}

static double ping_raw(raw_end *e)
{
    double took[PINGS];

    for (int i = 0; i < PINGS; i++) {
        double began = now();

        raw_send(e);
        raw_receive(e);
        took[i] = now() - began;
    }
    qsort(took, PINGS, sizeof *took, ascending);
    return took[PINGS / 2];
}

/* --- all of it ------------------------------------------------------------ */

static void make_arrays(bench *b)
{
    uint64_t state = 2;

    for (int i = 0; i < FL_N_SLOT; i++)
        b->row[i] = calloc(KEYS, sizeof *b->row[i]);
    b->target = calloc(KEYS, sizeof *b->target);
    b->grad = calloc(KEYS, sizeof *b->grad);
    b->out = calloc(KEYS * DIM, sizeof *b->out);
    b->values = calloc(KEYS * DIM, sizeof *b->values);
    for (int i = 0; i < KEYS * DIM; i++)
        b->values[i] = (float)(next_random(&state) >> 40) * 0x1p-30f;
    for (int i = 0; i < KEYS; i++)
        b->grad[i] = b->values + (size_t)i * DIM;
}

/* Every row is there, in both tables, before anything is measured. */
static void fill(bench *b, const uint64_t *all)
{
    for (int64_t i = 0; i < ROWS; i += KEYS) {
        keys k = make_keys(all, i, ROWS - i < KEYS ? ROWS - i : KEYS);

        find(b, &k);
        push(b, &k, k.first[FL_N_PART]);
        free(k.key);
    }
    check(b->x->methods->refresh(b->x));
    for (int i = 0; i < SETS; i++)
        b->set[i] = make_keys(all, (int64_t)i * KEYS * 2, KEYS);
}

static void open_bench(bench *b, const char *endpoint)
{
    fleet_role role = {.server_endpoints = endpoint, .worker_num = 1};
    uint64_t *all = shuffled();

    setenv("FLEET_TRANSPORT", "tcp", 1);
    make_arrays(b);
    b->near = open_fleet(&(fleet_role){.worker_num = 1});
    b->far = open_fleet(&role);
    check(fleet_init_worker(b->far));
    b->x = b->far->store->remote;
    check(fl_add_programs(b->near));
    fill(b, all);
    free(all);
}

static void measure(bench *b, const char *id, double (*far)(bench *),
                    double (*near)(bench *), double floor_, double goal)
{
    pairs all = {.n = 0};

    for (int i = 0; i < ROUNDS; i++) {
        double ours;

        pair_begin(&all);
        ours = far(b) * 1e-6;
        pair_end(&all, ours, near(b) * 1e-6);
    }
    pairs_print(&all, id, floor_, goal, "million rows/s",
                "the same table in this process, one thread");
}

/* The ratio is of times: at most. */
static void measure_ping(bench *b, raw_end *e)
{
    raw_rounds all = {0};

    for (int i = 0; i < ROUNDS; i++) {
        double ours;

        raw_round_begin(&all);
        ours = ping_ours(b) * 1e6;
        raw_round_end(&all, ours, ping_raw(&e[RAW_PLAIN]) * 1e6,
                      ping_raw(&e[RAW_TUNED]) * 1e6);
    }
    raw_rounds_print(&all, true, "P7", 1.3, 1.1, "microseconds, at most");
}

int main(int argc, char **argv)
{
    /* head, section and key there; head, section and row back */
    size_t answer = 64 + 24 + 32 + DIM * sizeof(float);
    size_t request = 64 + 32 + sizeof(uint64_t);
    static char endpoint[64];
    static bench b;
    raw_end e[RAW_KINDS] = {0};
    helper server, peer[RAW_KINDS];

    free_endpoint(endpoint);
    server = helper_start(serve, endpoint);
    for (int k = 0; k < RAW_KINDS; k++)
        peer[k] = helper_start(raw_serve, &(raw_spec){answer, k});
    open_bench(&b, endpoint);
    if (is_wanted(argc, argv, "P5"))
        measure(&b, "P5", far_pulls, near_pulls, 0.45, 0.65);
    if (is_wanted(argc, argv, "P6"))
        measure(&b, "P6", far_pushes, near_pushes, 0.5, 0.8);
    for (int k = 0; k < RAW_KINDS; k++)
        raw_connect(&e[k], peer[k].address, request, k);
    if (is_wanted(argc, argv, "P7"))
        measure_ping(&b, e);
    for (int k = 0; k < RAW_KINDS; k++) {
        raw_close(&e[k]);
        helper_end(&peer[k]);
    }
    check(fleet_stop_worker(b.far));
    fleet_destroy(b.far);
    fleet_destroy(b.near);
    helper_end(&server);
    return 0;
}
