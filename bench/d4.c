/* d4.c - D4: training from text files in the page cache over the same steps fed
 * from memory, CTR d9 (MultiSlot, 26 ids and 13 numbers) and an MLP (32
 * numbers), one reader thread. One line each. */
#include "model.h"
#include "pairs.h"

enum { ROUNDS = 24, PASSES = 1 };

static void write_sample(FILE *f, const bench *b, int i, int j)
{
    int n = b->o.batch, width = is_mlp(b) ? MLP_IN : N_DENSE;

    fprintf(f, "1 %d %d", (int)b->label[i][j], width);
    for (int k = 0; k < width; k++)
        fprintf(f, " %.6f", (double)b->dense[i][j * width + k]);
    for (int s = 0; s < N_ID && !is_mlp(b); s++)
        fprintf(f, " 1 %lld", (long long)b->id[i][s * n + j]);
    fputc('\n', f);
}

static void write_text(const bench *b, const char *path)
{
    FILE *f = fopen(path, "w");

    for (int i = 0; f && i < b->n_batch; i++)
        for (int j = 0; j < b->o.batch; j++)
            write_sample(f, b, i, j);
    if (!f || fclose(f) != 0)
        perror(path), exit(1);
}

static fleet_dataset *open_text(bench *b, const char *path)
{
    fleet_slot slot[N_ID + 2] = {{.name = "label", .dtype = FLEET_INT64},
                                 {.name = is_mlp(b) ? "image" : "dense_input",
                                  .dim = is_mlp(b) ? MLP_IN : N_DENSE}};
    fleet_dataset_options o = {.batch_size = b->o.batch,
                               .thread_num = 1,
                               .slots = slot,
                               .n_slot = is_mlp(b) ? 2 : N_ID + 2};
    fleet_dataset *d;

    for (int s = 0; s < N_ID; s++)
        slot[2 + s] = (fleet_slot){.name = b->name[s], .dtype = FLEET_INT64};
    d = fleet_queue_dataset(b->f, &o);
    if (!d || fleet_dataset_set_filelist(d, &path, 1) != FLEET_OK)
        fail("dataset");
    return d;
}

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
    d = open_text(&b, path);
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
