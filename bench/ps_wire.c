/* ps_wire.c - P14: training whose pushes and pulls travel in fewer bytes, over
 * training in floats. One server and one worker for each, of one thread, by tcp,
 * async; the CTR model of R4 (embedding 9, tower 400-400-400, Adagrad) from
 * text. Passes in turn: each type, then fp32.
 *
 *   P14-TYPE        samples per second, in batches of 1,024, where rows are most
 *                   of what is sent
 *   P14-TYPE-bytes  bytes of a batch, to and from the server, at most
 *   P14-TYPE-128    and -128-bytes: in batches of 128, where weights are
 *
 * TYPE: fp16, bf16, int8, and mixed: pushes of int8, pulls of bf16. */
#include "ps_side.h"

enum { ROUNDS = 9, MOST_ID = 32 };

static const struct {
    const char *name;
    int push, pull;
    double most_bytes;
} type[] = {{"fp32", FLEET_WIRE_FP32, FLEET_WIRE_FP32, 1},
            {"fp16", FLEET_WIRE_FP16, FLEET_WIRE_FP16, 0.65},
            {"bf16", FLEET_WIRE_BF16, FLEET_WIRE_BF16, 0.65},
            {"int8", FLEET_WIRE_INT8, FLEET_WIRE_INT8, 0.5},
            {"mixed", FLEET_WIRE_INT8, FLEET_WIRE_BF16, 0.6}};
enum { TYPES = sizeof type / sizeof *type };

typedef struct results {
    pairs rate, bytes;
} results;

static void compare(side *s, results *r)
{
    for (int round = -1; round < ROUNDS; round++)
        for (int i = 1; i < TYPES; i++) {
            pair_begin(&r[i].rate);
            side_train(&s[i]);
            side_train(&s[0]);
            if (round < 0)
                continue; /* the first one makes rows */
            pair_end(&r[i].rate, s[i].rate, s[0].rate);
            r[i].bytes.pair[r[i].bytes.n++] = (pair){s[i].bytes, s[0].bytes, 0};
        }
}

static void print(results *r, const char *batch)
{
    char id[MOST_ID];

    for (int i = 1; i < TYPES; i++) {
        snprintf(id, sizeof id, "P14-%s%s", type[i].name, batch);
        pairs_print(&r[i].rate, id, 0.8, 1.0, "samples/s", "fp32");
        snprintf(id, sizeof id, "P14-%s%s-bytes", type[i].name, batch);
        pairs_print(&r[i].bytes, id, type[i].most_bytes,
                    type[i].most_bytes - 0.05, "bytes a batch, at most",
                    "fp32");
    }
    fflush(stdout);
}

static void run_all(int batch, int batches, const char *name)
{
    side *s = calloc(TYPES, sizeof *s);
    results *r = calloc(TYPES, sizeof *r);
    helper server[TYPES];
    char path[64];

    for (int i = 0; i < TYPES; i++) {
        s[i].job = (ps_job){.n_worker = 1,
                            .a_sync = 1,
                            .batch = batch,
                            .push_type = type[i].push,
                            .pull_type = type[i].pull};
        free_endpoint(s[i].job.endpoint);
        server[i] = helper_start(ps_serve, &s[i].job);
    }
    snprintf(path, sizeof path, "/tmp/fleet-p14.%d", getpid());
    for (int i = 0; i < TYPES; i++)
        side_open(&s[i], path, batches);
    compare(s, r);
    for (int i = 0; i < TYPES; i++) {
        check(fleet_stop_worker(s[i].b.f));
        close_bench(&s[i].b);
        helper_end(&server[i]);
    }
    unlink(path);
    print(r, name);
    free(s);
    free(r);
}

/* In processes of their own, so that each may fork before it has threads. */
int main(void)
{
    setenv("FLEET_TRANSPORT", "tcp", 1);
    for (int small = 0; small < 2; small++) {
        pid_t child = fork();
        int status;

        must(child >= 0, "cannot fork");
        if (child == 0) {
            run_all(small ? 128 : 1024, small ? 64 : 24, small ? "-128" : "");
            return 0;
        }
        must(waitpid(child, &status, 0) == child && status == 0,
             "a part has failed");
    }
}
