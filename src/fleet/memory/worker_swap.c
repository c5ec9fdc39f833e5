/* worker_swap.c - a round by all_to_all_v, or by a mesh. */
#include "fleet/memory/worker_swap.h"

#include <string.h>

#include "base/memory.h"
#include "fleet/ranks.h"
#include "ps/mesh/mesh.h"
#include "ps/worker/worker_io.h"

/* --- ranks ---------------------------------------------------------------- */

static int64_t sum_of(const int64_t *size, int n)
{
    int64_t sum = 0;

    for (int r = 0; r < n; r++)
        sum += size[r];
    return sum;
}

/* Sizes go first; one below 0 is of a rank that gives up. */
static fleet_status swap_sizes(fl_worker_swap *s, const int64_t *to,
                               int64_t *from)
{
    const int n = s->rounds.n;
    const fl_comm_class *comm = s->f->comm->methods;
    int64_t *eight = s->size;

    for (int r = 0; r < n; r++)
        eight[r] = sizeof *from;
    FL_TRY(comm->all_to_all_v(s->f->comm, to, eight, from, eight, NULL));
    for (int r = 0; r < n; r++)
        if (from[r] < 0 && r != s->rounds.index)
            return fl_fail(FLEET_EPEER, "worker %d gives up, as it has failed",
                           r);
    return to[0] < 0 ? FLEET_EPEER : FLEET_OK;
}

static fleet_status gather_messages(fl_worker_swap *s, const char *const *out,
                                    const int64_t *to)
{
    size_t at = 0;

    FL_TRY(
        fl_grow(&s->out, &s->out_room, (size_t)sum_of(to, s->rounds.n) + 1, 1));
    for (int r = 0; r < s->rounds.n; r++) {
        if (to[r] > 0)
            memcpy(s->out + at, out[r], (size_t)to[r]);
        at += (size_t)to[r];
    }
    return FLEET_OK;
}

static fleet_status swap_by_ranks(void *arg, const char *const *out,
                                  const int64_t *to, const char **in,
                                  int64_t *from)
{
    fl_worker_swap *s = arg;
    size_t at = 0;

    FL_TRY(swap_sizes(s, to, from));
    FL_TRY(gather_messages(s, out, to));
    FL_TRY(
        fl_grow(&s->in, &s->in_room, (size_t)sum_of(from, s->rounds.n) + 1, 1));
    FL_TRY(s->f->comm->methods->all_to_all_v(s->f->comm, s->out, to, s->in,
                                             from, NULL));
    for (int r = 0; r < s->rounds.n; r++) {
        in[r] = s->in + at;
        at += (size_t)from[r];
    }
    return FLEET_OK;
}

/* --- beside servers ------------------------------------------------------- */

static fleet_status sum_over_workers(void *arg, double *x, int n)
{
    return fleet_metrics_sum(arg, x, n);
}

static fleet_status job_status(void *arg)
{
    fleet *f = arg;

    return fl_worker_io_status(f->worker_io);
}

static fleet_status open_mesh(fl_worker_swap *s)
{
    const fl_role *r = &s->f->role;
    const fl_mesh_options o = {.index = r->index,
                               .n = r->worker_num,
                               .server = r->server[0],
                               .keys = r->keys,
                               .insecure = r->insecure,
                               .deadline_ms = r->deadline_ms[FL_STEP_DEADLINE],
                               .arg = s->f,
                               .sum = sum_over_workers,
                               .status = job_status};

    FL_TRY(fl_mesh_open(&s->mesh, &o));
    s->rounds.arg = s->mesh;
    s->rounds.round = fl_mesh_round;
    return FLEET_OK;
}

fleet_status fl_worker_swap_open(fl_worker_swap *s, fleet *f)
{
    *s = (fl_worker_swap){
        .f = f, .rounds = {.index = f->role.index, .n = f->role.worker_num}};
    if (!fl_has_ranks(f))
        return open_mesh(s);
    FL_TRY(FL_NEW(&s->size, (size_t)s->rounds.n * sizeof *s->size));
    s->rounds.arg = s;
    s->rounds.round = swap_by_ranks;
    return FLEET_OK;
}

void fl_worker_swap_close(fl_worker_swap *s)
{
    fl_mesh_close(s->mesh);
    fl_free(s->out);
    fl_free(s->in);
    fl_free(s->size);
    *s = (fl_worker_swap){.f = NULL};
}
