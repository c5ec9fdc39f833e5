/* rows_growth.c - M2: how much longer a training step takes when its table is
 * larger: R4's model at dimension 9 (26 slots, Adagrad, one thread), with
 * tables of 100,000 to 100,000,000 rows, all of which are there from the start.
 * Every step has ids of its own, uniform over the table. The row is the largest
 * table over the one of 1,000,000; the times of all of them stand beside it.
 *
 *   rows_growth [LARGEST]   100000000 rows take 13 GB; a table for which there
 *                           is no memory is left out
 */
#include "rows.h"

enum { STEPS = 40, ROUNDS = 5, ROW_BYTES = 130 };
enum { MOST_SIZES = 4, BASE = 1 };

static const long size[MOST_SIZES] = {100000, 1000000, 10000000, 100000000};

static void draw_ids(bench *b)
{
    int64_t *id = b->id[b->at % b->n_batch];

    for (int i = 0; i < b->o.batch * N_ID; i++)
        id[i] = (int64_t)(next_random(&b->random) % (uint64_t)b->o.rows);
}

/* Milliseconds of a step. */
static double step_ms(bench *b)
{
    double took = 0;

    for (int i = 0; i < STEPS; i++) {
        double began;

        draw_ids(b);
        began = now();
        step(b);
        took += now() - began;
    }
    return took * 1e3 / STEPS;
}

/* In a process of its own: the middle of some rounds. */
static void measure(int say, void *rows)
{
    static bench b = {.o = BENCH_DEFAULTS};
    double ms[ROUNDS];
    char text[40];

    b.o.threads = 1;
    b.o.rows = *(const long *)rows;
    open_bench(&b);
    step(&b); /* the store is there */
    make_all_rows(&b);
    step_ms(&b);
    for (int i = 0; i < ROUNDS; i++)
        ms[i] = step_ms(&b);
    qsort(ms, ROUNDS, sizeof *ms, ascending);
    snprintf(text, sizeof text, "%.3f", ms[ROUNDS / 2]);
    helper_say(say, text);
}

static int fits(long rows)
{
    double memory =
        (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    return (double)rows * ROW_BYTES < memory * 0.9;
}

int main(int argc, char **argv)
{
    long largest =
        argc > 1 && atol(argv[1]) > 0 ? atol(argv[1]) : size[MOST_SIZES - 1];
    double ms[MOST_SIZES];
    int n = 0;

    for (; n < MOST_SIZES && size[n] <= largest && fits(size[n]); n++) {
        helper h = helper_start(measure, (void *)(uintptr_t)&size[n]);

        waitpid(h.pid, NULL, 0);
        ms[n] = atof(h.address);
    }
    must(n > BASE + 1, "the largest table is not above 1000000 rows");
    printf("{\"id\": \"M2\", \"ratio\": %.3f, \"floor\": 1.5, \"goal\": 1.25, "
           "\"ours\": %.2f, \"peer\": %.2f, \"unit\": \"ms a step, at most\", "
           "\"peer_name\": \"a table of 1000000 rows\", \"rounds\": %d, "
           "\"rows\": %ld",
           ms[n - 1] / ms[BASE], ms[n - 1], ms[BASE], ROUNDS, size[n - 1]);
    for (int i = 0; i < n; i++)
        printf(", \"ms_%ld\": %.2f", size[i], ms[i]);
    printf("}\n");
    return 0;
}
