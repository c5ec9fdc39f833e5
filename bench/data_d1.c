/* data_d1.c - D1: MultiSlot text to values, over a loop of strtol(), strtof()
 * and strtoull() on the same bytes in memory, one thread. */
#include "data_bench.h"

enum { BATCH = 512, ROUNDS = 7 };

typedef struct values {
    float label[BATCH], dense[BATCH * BENCH_DENSE];
    int64_t id[BENCH_IDS][BATCH];
} values;

/* The peer: what a plain reader does. It returns where the line ends. */
static char *peer_line(char *p, values *v, int row)
{
    long n = strtol(p, &p, 10);

    for (long i = 0; i < n; i++)
        v->label[row] = strtof(p, &p);
    n = strtol(p, &p, 10);
    for (long i = 0; i < n; i++)
        v->dense[row * BENCH_DENSE + i] = strtof(p, &p);
    for (int c = 0; c < BENCH_IDS; c++) {
        n = strtol(p, &p, 10);
        for (long i = 0; i < n; i++)
            v->id[c][row] = (int64_t)strtoull(p, &p, 10);
    }
    return p + 1;
}

static double run_peer(const bench_text *t, values *v)
{
    double begin = now();
    char *p = t->text;

    for (int row = 0; p < t->end; row = (row + 1) % BATCH)
        p = peer_line(p, v, row);
    return now() - begin;
}

static double run_ours(const bench_text *t, bench_parser *b)
{
    double begin = now();
    const char *p = t->text;

    while (p < t->end)
        p = bench_parse(b, p, t->end, BATCH);
    return now() - begin;
}

static void check(const bench_text *t, bench_parser *b, values *v)
{
    const fl_slot_data *slot = b->box->batch.slot;
    const char *p = t->text;
    char *q = t->text;

    while (p < t->end) {
        p = bench_parse(b, p, t->end, BATCH);
        const size_t n = b->box->lines.n;

        for (size_t i = 0; i < n; i++)
            q = peer_line(q, v, (int)i);
        bench_must(!memcmp(slot[0].values, v->label, n * 4) &&
                       !memcmp(slot[1].values, v->dense, n * 4 * BENCH_DENSE),
                   "the numbers' bits differ");
        for (int c = 0; c < BENCH_IDS; c++)
            bench_must(!memcmp(slot[2 + c].values, v->id[c], n * 8),
                       "the ids differ");
    }
}

int main(void)
{
    static values v;
    bench_text t = bench_multislot();
    bench_parser b;
    double ours[ROUNDS], peer[ROUNDS];

    bench_open(&b, FLEET_MULTISLOT);
    check(&t, &b, &v);
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = run_ours(&t, &b);
        peer[i] = run_peer(&t, &v);
    }
    bench_print("D1", 3, 4.5, "MB/s", "strtol/strtof loop",
                (double)(t.end - t.text) / 1e6, ours, peer, ROUNDS);
    bench_close(&b);
    free(t.memory);
    return 0;
}
