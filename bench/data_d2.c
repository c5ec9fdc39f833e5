/* data_d2.c - D2: Criteo's lines to values, over a loop of strsep() and
 * strtod() on the same bytes in memory, one thread.
 *
 * The peer of the ratio makes the same ids, with XXH64. D2-hex is a peer that
 * takes them to be hexadecimal numbers, as a plain reader would; D2-missing has
 * empty cells, as real logs do. Both are for information.
 */
#define _GNU_SOURCE
#include "data_bench.h"

#include "base/hash.h"

enum { BATCH = 512, ROUNDS = 7 };

typedef struct values {
    int64_t label[BATCH];
    float dense[BATCH * BENCH_DENSE];
    uint64_t id[BENCH_IDS][BATCH];
} values;

static void peer_line(char *line, values *v, int row, int hex)
{
    char *cell = strsep(&line, "\t");

    v->label[row] = strtoll(cell, NULL, 10);
    for (int i = 0; i < BENCH_DENSE; i++) {
        float *out = &v->dense[row * BENCH_DENSE + i];

        cell = strsep(&line, "\t");
        *out = *cell ? (float)((strtod(cell, NULL) - fl_criteo_low[i]) /
                               fl_criteo_range[i])
                     : 0.0f;
    }
    for (int i = 0; i < BENCH_IDS; i++) {
        cell = strsep(&line, "\t");
        v->id[i][row] = hex ? strtoull(cell, NULL, 16)
                            : fl_hash(cell, strlen(cell), (uint64_t)(2 + i));
    }
}

/* strsep() writes into its text, so the peer has a copy of it. */
static double run_peer(const bench_text *t, const bench_text *copy, values *v,
                       int hex)
{
    char *rest = copy->text, *line;
    double begin;
    int row = 0;

    memcpy(copy->text, t->text, (size_t)(t->end - t->text));
    begin = now();
    while ((line = strsep(&rest, "\n")) != NULL && *line) {
        peer_line(line, v, row, hex);
        row = (row + 1) % BATCH;
    }
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

static void check(const bench_text *t, const bench_text *copy, bench_parser *b,
                  values *v)
{
    const fl_slot_data *slot = b->box->batch.slot;
    const char *p = t->text;
    char *rest = copy->text;

    memcpy(copy->text, t->text, (size_t)(t->end - t->text));
    while (p < t->end) {
        p = bench_parse(b, p, t->end, BATCH);
        const size_t n = b->box->lines.n;

        for (size_t i = 0; i < n; i++)
            peer_line(strsep(&rest, "\n"), v, (int)i, 0);
        bench_must(!memcmp(slot[0].values, v->label, n * 8) &&
                       !memcmp(slot[1].values, v->dense, n * 4 * BENCH_DENSE),
                   "the numbers' bits differ");
        for (int c = 0; c < BENCH_IDS; c++)
            bench_must(!memcmp(slot[2 + c].values, v->id[c], n * 8),
                       "the ids differ");
    }
}

static void measure(const char *id, unsigned missing, int hex)
{
    static values v;
    bench_text t = bench_criteo(missing);
    bench_text copy = bench_new_text((size_t)(t.end - t.text));
    bench_parser b;
    double ours[ROUNDS], peer[ROUNDS];

    bench_open(&b, FLEET_CRITEO);
    check(&t, &copy, &b, &v);
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = run_ours(&t, &b);
        peer[i] = run_peer(&t, &copy, &v, hex);
    }
    bench_print(id, 8, 14, "MB/s",
                hex ? "strsep/strtod/strtoull loop"
                    : "strsep/strtod/XXH64 loop",
                (double)(t.end - t.text) / 1e6, ours, peer, ROUNDS);
    bench_close(&b);
    free(t.memory);
    free(copy.memory);
}

int main(void)
{
    measure("D2", 0, 0);
    measure("D2-hex", 0, 1);
    measure("D2-missing", 50, 0);
    return 0;
}
