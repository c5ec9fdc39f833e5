/* step.c - samples per second of a training step on batches from memory: the
 * models and options of the Python peers (bench/README.md), one line of JSON
 * per run.
 *
 *   step --model mlp|ctr_dnn|wide_deep|dcn_v2|dlrm --dim 9 --batch 1024
 *        --opt sgd|adagrad --fc 400,400,400 --threads 2 --rows 1000000
 *        --repeats 7 --window 0.4 --bf16 0|1 --device cpu|gpu:0
 *        --no_graphs 0|1
 *
 * As the ranks of a collective job it takes its steps together with the others;
 * the first rank prints the sum of all.
 */
#include "model.h"
#include "pairs.h"

/* All ranks take the same number of steps, the most that one wants to. */
static int agree(bench *b, int n)
{
    double most = n;

    if (fleet_metrics_max(b->f, &most, 1) != FLEET_OK)
        fail("ranks");
    return (int)most;
}

static void measure(bench *b)
{
    double rate[64], foreign = 0;
    int ranks = fleet_worker_num(b->f);
    float loss = 0;
    double t;
    int n;

    for (int i = 0; i < b->n_batch + 8; i++)
        step(b);
    t = now();
    for (int i = 0; i < 8; i++)
        step(b);
    n = agree(b, (int)(b->o.window / ((now() - t) / 8)) + 1);
    for (int r = 0; r < b->o.repeats; r++) {
        pairs p;
        double share;

        agree(b, n);
        pair_begin(&p);
        t = now();
        for (int i = 0; i < n; i++)
            loss = step(b);
        t = now() - t;
        rate[r] = (double)ranks * n * b->o.batch / t;
        share = pair_foreign(&p);
        foreign = share > foreign ? share : foreign;
    }
    qsort(rate, (size_t)b->o.repeats, sizeof *rate, ascending);
    if (!fleet_is_first_worker(b->f))
        return;
    printf("{\"model\":\"%s\",\"device\":\"%s\",\"dim\":%d,\"fc\":\"%s\","
           "\"batch\":%d,\"opt\":"
           "\"%s\",\"bf16\":%d,\"threads\":%d,\"samples_per_s\":%.0f,\"worst\":"
           "%.0f,"
           "\"best\":%.0f,\"step_us\":%.1f,\"loss\":%.5f,\"foreign\":%.2f,"
           "\"fleet\":\"%s\"}\n",
           b->o.model, b->o.device, b->o.dim, b->o.fc, b->o.batch, b->o.opt,
           b->o.bf16, b->o.threads, rate[b->o.repeats / 2], rate[0],
           rate[b->o.repeats - 1],
           1e6 * ranks * b->o.batch / rate[b->o.repeats / 2], (double)loss,
           foreign, fleet_version());
}

static void read_options(options *o, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];

        if (!strcmp(key, "--model"))
            o->model = value;
        else if (!strcmp(key, "--opt"))
            o->opt = value;
        else if (!strcmp(key, "--fc"))
            o->fc = value;
        else if (!strcmp(key, "--device"))
            o->device = value;
        else if (!strcmp(key, "--dim"))
            o->dim = atoi(value);
        else if (!strcmp(key, "--batch"))
            o->batch = atoi(value);
        else if (!strcmp(key, "--threads"))
            o->threads = atoi(value);
        else if (!strcmp(key, "--repeats"))
            o->repeats = atoi(value) < 64 ? atoi(value) : 63;
        else if (!strcmp(key, "--bf16"))
            o->bf16 = atoi(value);
        else if (!strcmp(key, "--no_graphs"))
            o->no_graphs = atoi(value);
        else if (!strcmp(key, "--rows"))
            o->rows = atol(value);
        else if (!strcmp(key, "--window"))
            o->window = atof(value);
        else
            fprintf(stderr, "step: no option %s\n", key), exit(2);
    }
}

int main(int argc, char **argv)
{
    static bench b = {.o = BENCH_DEFAULTS};

    read_options(&b.o, argc, argv);
    open_bench(&b);
    if (fleet_init_worker(b.f) != FLEET_OK)
        fail("ranks");
    measure(&b);
    if (fleet_stop_worker(b.f) != FLEET_OK)
        fail("ranks");
    close_bench(&b);
    return 0;
}
