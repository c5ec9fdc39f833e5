/* d4.c - D4: training from text files in the page cache over the same steps fed
 * from memory, CTR d9 (MultiSlot, 26 ids and 13 numbers) and an MLP (32
 * numbers), one reader thread. One line each. */
#include "model.h"
#include "pairs.h"
#include "text.h"

enum { ROUNDS = 24, PASSES = 1 };

/* Samples per second of a few passes. */
static double from_text(bench *b, fleet_dataset *d)
{
    double t = now();

    for (int i = 0; i < PASSES; i++)
        if (fleet_train_from_dataset(b->e, d, NULL, NULL) != FLEET_OK)
            fail("pass");
    return (double)PASSES * b->n_batch * b->o.batch / (now() - t);
}

static double from_memory(bench *b)
{
    double t = now();

    for (int i = 0; i < PASSES * b->n_batch; i++)
        step(b);
    return (double)PASSES * b->n_batch * b->o.batch / (now() - t);
}

static void measure(const char *model, int batch, int copies, double floor_,
                    double goal)
{
    static bench b;
    char path[] = "/tmp/fleet-d4.XXXXXX";
    pairs all = {.n = 0};
    int fd;
    fleet_dataset *d;

    b = (bench){.o = BENCH_DEFAULTS};
    b.o.model = model;
    b.o.batch = batch * copies; /* enough text for a pass that can be timed */
    fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0)
        perror(path), exit(1);
    open_bench(&b);
    write_text(&b, path);
    b.o.batch = batch;
    d = open_text(&b, &(const char *){path}, 1);
    b.n_batch *= copies;
    from_text(&b, d);
    b.n_batch /= copies;
    from_memory(&b);
    for (int r = 0; r < ROUNDS; r++) {
        double ours;

        pair_begin(&all);
        b.n_batch *= copies;
        ours = from_text(&b, d);
        b.n_batch /= copies;
        pair_end(&all, ours, from_memory(&b));
    }
    unlink(path);
    pairs_print(&all, is_mlp(&b) ? "D4-mlp" : "D4-ctr", floor_, goal,
                "samples/s", "the same steps from memory");
    close_bench(&b);
}

int main(void)
{
    measure("ctr_dnn", 1024, 1, 0.93, 0.97);
    measure("mlp", 128, 64, 0.7, 0.85);
    return 0;
}
