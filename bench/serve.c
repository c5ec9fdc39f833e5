/* serve.c - S1: a predictor on one row, microseconds, and onnxruntime on the
 * model that it has exported, each on one thread, in turn. bench/onnx_peer.py
 * runs the peer. */
#define _GNU_SOURCE
#include <unistd.h>

#include "model.h"

enum { ROUNDS = 5, RUNS = 4000, TRAINED = 8, MOST_PATH = 300 };

static char folder[] = "/tmp/fleet-serve-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][MOST_PATH];
    static int next;
    char *to = path[next++ % 4];

    snprintf(to, MOST_PATH, "%s/%s", folder, name);
    return to;
}

/* The rows of a batch, one after the other, as the peer reads them: 13 floats,
 * then 26 ids. */
static void write_rows(const bench *b)
{
    FILE *f = fopen(in_folder("rows"), "wb");

    for (int i = 0; f && i < b->o.batch; i++) {
        fwrite(b->dense[0] + i * N_DENSE, sizeof(float), N_DENSE, f);
        for (int s = 0; s < N_ID; s++)
            fwrite(b->id[0] + s * b->o.batch + i, sizeof(int64_t), 1, f);
    }
    if (!f || fclose(f) != 0)
        fail("rows");
}

static fleet_predictor *save_and_load(bench *b)
{
    fleet_var *feed[N_ID + 1] = {fleet_program_var(b->p, "dense_input")};
    fleet_predictor *p;

    for (int s = 0; s < N_ID; s++)
        feed[1 + s] = fleet_program_var(b->p, b->name[s]);
    if (fleet_save_inference_model(b->f, in_folder("saved"), feed, N_ID + 1,
                                   &b->m.prediction, 1) != FLEET_OK)
        fail("save");
    p = fleet_load_inference_model(in_folder("saved"));
    if (!p ||
        fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ZEROS, 0) != FLEET_OK ||
        fleet_export_onnx(p, in_folder("model.onnx"), NULL) != FLEET_OK)
        fail("export");
    return p;
}

static void run_row(const bench *b, fleet_predictor *p, int row, float *out)
{
    static const int64_t one[] = {1, 1}, dense[] = {1, N_DENSE};
    fleet_feed feed[N_ID + 1] = {{"dense_input", FLEET_FLOAT32,
                                  b->dense[0] + row * N_DENSE, dense, 2, NULL}};

    for (int s = 0; s < N_ID; s++)
        feed[1 + s] = (fleet_feed){
            b->name[s], FLEET_INT64, b->id[0] + s * b->o.batch + row,
            one,        2,           NULL};
    if (fleet_predictor_run(p, feed, N_ID + 1, (void *[]){out},
                            (size_t[]){2 * sizeof *out}, 1) != FLEET_OK)
        fail("run");
}

static double our_time(const bench *b, fleet_predictor *p, double *sum)
{
    float out[2];
    double t = now();

    for (int i = 0; i < RUNS; i++) {
        run_row(b, p, i % b->o.batch, out);
        if (i < b->o.batch)
            *sum += (double)out[1];
    }
    return (now() - t) / RUNS * 1e6;
}

/* Microseconds of a run and the sum of the scores; a reason in `why` if there
 * is none. */
static int peer_time(const bench *b, double *us, double *sum, char why[200])
{
    char command[3 * MOST_PATH];
    FILE *f;
    int n = 0;

    snprintf(command, sizeof command,
             "/usr/bin/python3 \"%s/bench/onnx_peer.py\" %s %d %d 2>&1",
             getenv("FLEET_SOURCE") ? getenv("FLEET_SOURCE") : ".", folder,
             b->o.batch, RUNS);
    f = popen(command, "r");
    if (f) {
        n = fgets(why, 200, f) ? sscanf(why, "us %lf sum %lf", us, sum) : 0;
        why[strcspn(why, "\"\\\n")] = 0;
        pclose(f);
    }
    return n == 2;
}

static void print_row(const char *tower, double *ours, double *peers,
                      double *ratio)
{
    qsort(ours, ROUNDS, sizeof *ours, ascending);
    qsort(peers, ROUNDS, sizeof *peers, ascending);
    qsort(ratio, ROUNDS, sizeof *ratio, ascending);
    printf("{\"id\":\"S1-%s\",\"ratio\":%.3f,\"floor\":1.5,\"goal\":2.0,"
           "\"ours\":%.2f,\"peer\":%.2f,\"unit\":\"us, how many times "
           "faster\",\"peer_name\":\"onnxruntime 1.32, one thread\","
           "\"rounds\":%d}\n",
           tower, ratio[ROUNDS / 2], ours[ROUNDS / 2], peers[ROUNDS / 2],
           ROUNDS);
}

static void measure(const char *tower, const char *fc)
{
    bench b = {.o = BENCH_DEFAULTS};
    double ours[ROUNDS], peers[ROUNDS], ratio[ROUNDS];
    fleet_predictor *p;
    char why[200] = "";

    b.o.fc = fc;
    b.o.batch = 256;
    b.o.threads = 1;
    open_bench(&b);
    for (int i = 0; i < TRAINED; i++)
        step(&b);
    write_rows(&b);
    p = save_and_load(&b);
    for (int i = 0; i < ROUNDS; i++) {
        double mine = 0, theirs = 0;

        ours[i] = our_time(&b, p, &mine);
        if (!peer_time(&b, &peers[i], &theirs, why)) {
            printf("{\"id\":\"S1-%s\",\"ratio\":null,\"floor\":1.5,\"goal\":"
                   "2.0,\"peer_name\":\"onnxruntime\",\"absent\":\"%s\"}\n",
                   tower, why);
            break;
        }
        if (!(mine - theirs < 1e-3 && theirs - mine < 1e-3))
            fail("the peer has other scores");
        ratio[i] = peers[i] / ours[i];
        if (i == ROUNDS - 1)
            print_row(tower, ours, peers, ratio);
    }
    fleet_predictor_destroy(p);
    close_bench(&b);
}

static int wanted(int argc, char **argv, const char *id)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(id, argv[i], strlen(argv[i])) == 0)
            return 1;
    return argc < 2;
}

int main(int argc, char **argv)
{
    char command[MOST_PATH];

    if (!mkdtemp(folder))
        fail("a folder");
    if (wanted(argc, argv, "S1-400"))
        measure("400", "400,400,400");
    if (wanted(argc, argv, "S1-128"))
        measure("128", "128,64");
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0;
}
