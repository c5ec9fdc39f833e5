/* r11.c - R11: what the first step of a new batch size costs over the steps
 * that follow, CTR 400x3. Median over several sizes. Beside it the same with
 * max_batch, where a short batch needs no plan of its own. */
#include "model.h"

enum { SIZES = 7 };

static float step_of(bench *b, int rows)
{
    int whole = b->o.batch;
    float loss;

    b->o.batch = rows; /* the first rows of a batch */
    loss = step(b);
    b->o.batch = whole;
    return loss;
}

/* Milliseconds of the first step of a size beyond a later one. */
static double extra_ms(bench *b, int rows)
{
    double first, t, least = 1e9;

    t = now();
    step_of(b, rows);
    first = now() - t;
    for (int i = 0; i < 6; i++) {
        t = now();
        step_of(b, rows);
        t = now() - t;
        least = t < least ? t : least;
    }
    return (first - least) * 1e3;
}

static double median_extra(int64_t max_batch)
{
    static bench b;
    double ms[SIZES];

    b = (bench){.o = BENCH_DEFAULTS};
    open_bench(&b);
    if (max_batch) {
        fleet_executor_options o = {.max_batch = max_batch};
        fleet_program *p = b.p;

        fleet_executor_destroy(b.e);
        b.e = fleet_executor_create(p, &o);
    }
    for (int i = 0; i < b.n_batch; i++)
        step(&b);
    for (int i = 0; i < SIZES; i++)
        ms[i] = extra_ms(&b, 1000 - 77 * i);
    qsort(ms, SIZES, sizeof *ms, ascending);
    close_bench(&b);
    return ms[SIZES / 2];
}

int main(void)
{
    double own = median_extra(0), shared = median_extra(1024);

    printf("{\"id\":\"R11\",\"ratio\":%.3f,\"floor\":5,\"goal\":2.5,\"ours\":"
           "%.3f,\"peer\":null,\"unit\":\"ms, at most\",\"peer_name\":"
           "\"absolute\",\"rounds\":%d,\"with_max_batch\":%.3f}\n",
           own, own, SIZES, shared);
    return 0;
}
