/* r8.c - R8: what the executor itself costs: a graph of 100 operators on 1x8
 * values, forward, microseconds per operator. */
#include "model.h"

enum { OPS = 100, ROUNDS = 7, RUNS = 20000 };

static fleet_executor *make_graph(fleet *f, fleet_var **last)
{
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 8}, 2);

    for (int i = 0; i < OPS; i++) {
        switch (i % 5) {
        case 0:
            x = fleet_fc(p, x, 8, NULL);
            break;
        case 1:
            x = fleet_add(p, x, x);
            break;
        case 2:
            x = fleet_scale(p, x, 0.5f, 0.1f);
            break;
        case 3:
            x = fleet_mul(p, x, x);
            break;
        default:
            x = fleet_sigmoid(p, x);
        }
    }
    *last = x;
    return fleet_executor_create(p, NULL);
}

int main(void)
{
    float in[8] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f}, out[8];
    fleet_feed feed = {"x", FLEET_FLOAT32, in, (int64_t[]){1, 8}, 2, NULL};
    double us[ROUNDS];
    fleet_executor *e;
    fleet_var *last = NULL;
    fleet *f;

    if (fleet_init(&f, &(fleet_options){.num_threads = 2}) != FLEET_OK ||
        !(e = make_graph(f, &last)))
        fail("graph");
    fleet_fetch fetch = {.var = last, .data = out, .size = sizeof out};
    for (int r = 0; r < ROUNDS; r++) {
        double t = now();

        for (int i = 0; i < RUNS; i++)
            if (fleet_executor_run(e, &feed, 1, &fetch, 1) != FLEET_OK)
                fail("run");
        us[r] = (now() - t) / RUNS / OPS * 1e6;
    }
    qsort(us, ROUNDS, sizeof *us, ascending);
    printf("{\"id\":\"R8\",\"ratio\":%.3f,\"floor\":1.0,\"goal\":0.4,\"ours\":"
           "%.3f,\"peer\":null,\"unit\":\"us per op, at most\",\"peer_name\":"
           "\"absolute\",\"rounds\":%d}\n",
           us[ROUNDS / 2], us[ROUNDS / 2], ROUNDS);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return 0;
}
