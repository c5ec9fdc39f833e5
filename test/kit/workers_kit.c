/* workers_kit.c - see workers_kit.h. */
#define SUITE workers_kit
#include "workers_kit.h"
#include "test.h"

#include "runtime/exec/prefetch.h"

#include <stdlib.h>
#include <string.h>

void crew_open(crew *c, int n, bool sync, kit_kind kind, const kit_options *o)
{
    c->n = n;
    for (int i = 0; i < n; i++) {
        kit_build(&c->m[i], kind, o);
        if (i == 0)
            fake_server_open(&c->server, c->m[0].p, n, sync);
        fake_worker_open(&c->w[i], &c->server, c->m[i].f, i);
        c->m[i].e = fleet_executor_create(
            c->m[i].p, &(fleet_executor_options){.max_batch = o->max_batch});
        CHECK(c->m[i].e != NULL);
    }
}

void crew_close(crew *c)
{
    for (int i = 0; i < c->n; i++) {
        fleet_executor_destroy(c->m[i].e);
        c->m[i].e = NULL;
        fake_worker_close(&c->w[i]);
    }
    fake_server_close(&c->server);
    for (int i = c->n; i-- > 0;)
        kit_close(&c->m[i]);
}

void work_open(work *k, const kit_model *m, int n, int64_t last)
{
    CHECK(n <= WORK_MOST);
    k->n = n;
    for (int i = 0; i < n; i++)
        k->b[i] = kit_batch_for(m, i + 1 < n ? WORK_ROWS : last, i);
}

void work_close(work *k)
{
    for (int i = 0; i < k->n; i++)
        kit_batch_free(k->b[i]);
}

/* A batch as executors know it. */
static void to_input(const fleet_executor *e, const kit_batch *b,
                     fl_input *input)
{
    memset(input, 0, e->program->n_var * sizeof *input);
    for (int i = 0; i < b->n; i++) {
        const fleet_var *v = fleet_program_var(e->program, b->feed[i].name);

        input[v->id] = (fl_input){b->feed[i].data, b->feed[i].offsets};
    }
}

void crew_announce(fleet_executor *e, const kit_batch *b)
{
    fl_input *input = malloc(e->program->n_var * sizeof *input);

    to_input(e, b, input);
    fl_executor_prefetch(e, input, b->rows);
    free(input);
}

fleet_status crew_iterate(fleet_executor *e, const kit_batch *b)
{
    to_input(e, b, e->input);
    return fl_executor_iterate(e, b->rows);
}

fleet_status crew_train(fleet_executor *e, const work *k, int i, int step)
{
    if (step && i + step < k->n)
        crew_announce(e, k->b[i + step]);
    return crew_iterate(e, k->b[i]);
}

uint64_t crew_alone(kit_kind kind, const kit_options *o, int n, int64_t last)
{
    uint64_t hash;
    kit_model m;
    work k;

    kit_open(&m, kind, o);
    work_open(&k, &m, n, last);
    for (int i = 0; i < n; i++)
        CHECK_OK(kit_run(m.e, k.b[i]));
    CHECK_OK(fleet_executor_flush(m.e));
    hash = kit_hash(m.f);
    work_close(&k);
    kit_close(&m);
    return hash;
}
