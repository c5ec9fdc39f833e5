/* trainers.c - R15: two trainer threads, samples/s of passes in turn over the
 * same text in the page cache: R4's model at dimension 9 and wide&deep, in
 * batches of 1,024 and of 128. R15-order: gradients are added in order;
 * R15-hogwild: each thread updates. Each over one trainer thread on one compute
 * thread (-1), and over one whose batches two compute threads share (-2). */
#include "model.h"
#include "pairs.h"
#include "text.h"

enum { ROUNDS = 9, TEXT_BATCH = 1024 };
enum { ORDER, HOGWILD, ONE, SHARED, N_SIDE };

typedef struct side {
    bench b;
    fleet_dataset *d;
    fleet_train_options how;
} side;

static void open_side(side *s, const char *model, int batch, const char *path,
                      int writes)
{
    s->b.o.model = model;
    s->b.o.batch = TEXT_BATCH;
    s->b.o.rows = 100000;
    open_bench(&s->b);
    if (writes)
        write_text(&s->b, path);
    s->b.o.batch = batch;
    s->d = open_text(&s->b, &path, 1);
}

static double rate_of(side *s)
{
    fleet_train_result r;

    if (fleet_train_from_dataset(s->b.e, s->d, &s->how, &r) != FLEET_OK)
        fail("pass");
    return (double)r.samples / r.seconds;
}

static void print_pair(const pairs *p, const char *what, const char *model,
                       int batch, int compute)
{
    char name[80];

    snprintf(name, sizeof name, "R15-%s-%s-%d-%d", what, model, batch, compute);
    pairs_print((pairs *)(uintptr_t)p, name, compute == 1 ? 1.5 : 0.9,
                compute == 1 ? 1.8 : 1.0, "samples/s",
                compute == 1 ? "one trainer thread, one compute thread"
                             : "one trainer thread, two compute threads");
    fflush(stdout);
}

/* All sides in turn; each pair has its own peer of the same turn. */
static void take_turns(side *s, const char *model, int batch)
{
    static pairs all[4];

    memset(all, 0, sizeof all);
    for (int r = 0; r < ROUNDS; r++) {
        double rate[N_SIDE];

        for (int i = 0; i < 4; i++)
            pair_begin(&all[i]);
        for (int i = 0; i < N_SIDE; i++)
            rate[i] = rate_of(&s[i]);
        for (int i = 0; i < 4; i++)
            pair_end(&all[i], rate[i / 2], rate[ONE + i % 2]);
    }
    for (int i = 0; i < 4; i++)
        print_pair(&all[i], i / 2 == ORDER ? "order" : "hogwild", model, batch,
                   1 + i % 2);
}

static void measure(const char *model, int batch)
{
    static side s[N_SIDE];
    char path[] = "/tmp/fleet-r12.XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0 || close(fd) != 0)
        perror(path), exit(1);
    for (int i = 0; i < N_SIDE; i++) {
        s[i] = (side){.b = {.o = BENCH_DEFAULTS}};
        s[i].b.o.threads = i == ONE ? 1 : 2;
        s[i].how.thread = i < ONE ? 2 : 1;
        s[i].how.hogwild = i == HOGWILD;
        open_side(&s[i], model, batch, path, i == 0);
        rate_of(&s[i]);
    }
    take_turns(s, model, batch);
    unlink(path);
    for (int i = 0; i < N_SIDE; i++)
        close_bench(&s[i].b);
}

int main(void)
{
    measure("ctr_dnn", 1024);
    measure("ctr_dnn", 128);
    measure("wide_deep", 1024);
    measure("wide_deep", 128);
    return 0;
}
