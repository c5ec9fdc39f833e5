/* ranks.c - joining, leaving and agreeing of ranks. */
#include "fleet/ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "collective/hierarchy.h"
#include "collective/open.h"
#include "collective/sharded/sharded_table.h"
#include "fleet/job/position.h"
#include "fleet/ranks_commands.h"
#include "net/resolve.h"
#include "ps/worker/worker_io.h"
#include "runtime/exec/uneven_ranks.h"
#include "runtime/plan/remote_hybrid.h"
#include "runtime/plan/job_signature.h"
#include "runtime/plan/lower.h"
#include "runtime/reduce/whole_weights.h"
#include "runtime/store/store_check.h"

/* --- before and after: a group that says what is missing ------------------ */

static fleet_status not_joined(void)
{
    return fl_fail(FLEET_ESTATE, "ranks train together only between "
                                 "fleet_init_worker() and "
                                 "fleet_stop_worker()");
}

static fleet_status no_reduce(fl_comm *p, fl_reduce how, fl_wire_type type,
                              const void *in, void *out, int64_t n,
                              fl_work **work)
{
    (void)p, (void)how, (void)type, (void)in, (void)out, (void)n, (void)work;
    return not_joined();
}

static fleet_status no_gather(fl_comm *p, const void *in, void *out,
                              int64_t bytes, fl_work **work)
{
    (void)p, (void)in, (void)out, (void)bytes, (void)work;
    return not_joined();
}

static void no_abort(fl_comm *p, const char *why)
{
    (void)p, (void)why;
}

/* Updates begin with all_gather and passes end with all_reduce. */
static const fl_comm_class nobody_methods = {.name = "nobody",
                                             .all_reduce = no_reduce,
                                             .all_gather = no_gather,
                                             .abort = no_abort};
static fl_comm nobody = {.methods = &nobody_methods, .size = 1};
static fl_agree no_rounds = {.comm = &nobody};

void fl_ranks_open(fleet *f)
{
    if (fl_has_ranks(f))
        f->store->agree = &no_rounds;
}

/* Where gradients are reduced without a copy. Plans are made anew for it.
 * Gradients of a GPU, and gradients that ranks share out, are each plan's. */
static fleet_status make_gradients(fleet *f)
{
    fl_store *s = f->store;
    const bool in_plans =
        (f->trained && f->trained->place.gpu) || fl_store_shards_gradients(s);
    fleet_status status = FLEET_OK;

    pthread_rwlock_wrlock(&s->lock);
    s->n_joined++;
    for (fl_flat *g = s->flats; g && !in_plans && status == FLEET_OK;
         g = g->next) {
        void *memory;

        status = f->comm->methods->get_memory(
            f->comm, g->n * (int64_t)sizeof(float), &memory);
        g->gradient = memory;
    }
    pthread_rwlock_unlock(&s->lock);
    return status;
}

/* Gradients are in the group's memory, and rows stay where they are. */
static void withdraw_gradients(fleet *f)
{
    fl_store *s = f->store;

    if (f->context.fork_generation != fl_fork_generation())
        return; /* in a child: the lock and the ranks are its parent's */
    pthread_rwlock_wrlock(&s->lock);
    s->n_joined++;
    s->partial = s->partial || (f->sharded && f->comm->size > 1);
    for (fl_flat *g = s->flats; g; g = g->next) {
        f->comm->methods->free_memory(f->comm, g->gradient);
        g->gradient = NULL;
    }
    pthread_rwlock_unlock(&s->lock);
}

static void leave_group(fleet *f)
{
    withdraw_gradients(f);
    f->store->agree = &no_rounds;
    if (f->sharded)
        f->store->remote =
            f->worker_io ? fl_worker_io_remote(f->worker_io) : NULL;
    fl_remote_hybrid_destroy(f->hybrid);
    f->hybrid = NULL;
    fl_sharded_destroy(f->sharded);
    f->sharded = NULL;
    if (f->agree.hierarchy)
        f->agree.hierarchy->methods->destroy(f->agree.hierarchy);
    f->agree.hierarchy = NULL;
    f->comm->methods->destroy(f->comm);
    f->comm = NULL;
}

/* As with servers: the host knows why from the call that failed. If none has
 * failed, the log says it, too. */
static void give_up(fleet *f)
{
    const char *error = fleet_last_error();
    char why[900];

    snprintf(why, sizeof why, "left without fleet_stop_worker(): %.700s",
             *error ? error : "none of its calls has failed");
    if (!*error)
        FL_WARN(&f->context.log, "fleet_destroy: rank %d %s; the job ends",
                f->role.index, why);
    fl_agree_abort(&f->agree, why);
}

void fl_ranks_close(fleet *f)
{
    if (!f->comm)
        return;
    if (f->context.fork_generation == fl_fork_generation())
        give_up(f);
    leave_group(f);
}

/* --- joining -------------------------------------------------------------- */

static fleet_status compare_texts(const char *mine, const char *first,
                                  const char *terms)
{
    size_t line = strcspn(first, "\n");
    fleet_status status;
    char *difference;

    if (strcmp(mine, first) == 0)
        return FLEET_OK;
    if (line != strlen(terms) || strncmp(terms, first, line) != 0)
        return fl_fail(FLEET_EINVAL,
                       "this rank trains in mode %s, rank 0 in %.*s: all ranks "
                       "have one strategy",
                       terms, (int)line, first);
    difference =
        fl_job_signature_difference("this rank", mine, "rank 0", first);
    status = fl_fail(FLEET_EINVAL, "the programs differ from rank 0's: %s",
                     difference ? difference : "in their order");
    fl_free(difference);
    return status;
}

/* Compare texts: the strategy in a line, then what is trained. A rank that
 * differs fails, and fl_ranks_join() then tells all ranks: none waits for
 * it. */
static fleet_status check_same(fleet *f, const char *terms)
{
    char *program = fl_job_signature_text(f->store), *first = NULL;
    fleet_status status;
    fl_text mine = {0};

    FL_GOTO(done, program ? FLEET_OK : FLEET_ENOMEM);
    fl_text_add(&mine, "%s\n%s", terms, program);
    FL_GOTO(done, mine.status);
    FL_GOTO(done,
            fl_comm_broadcast_text(f->comm, fl_text_chars(&mine), 0, &first));
    status = compare_texts(fl_text_chars(&mine), first, terms);
done:
    fl_free(first);
    fl_free(program);
    fl_text_done(&mine);
    return status;
}

/* The first rank's parameters, optimizer states (if they are not shared out),
 * counts, and the loss's scale, loaded ones perhaps. */
static fleet_status take_all(fl_store *s, fl_comm *p)
{
    const bool states = !fl_store_is_sharded(s);

    FL_TRY(fl_store_check_weights(s)); /* of ranks that have left */
    for (const fl_flat *g = s->flats; g; g = g->next) {
        const int64_t size = g->n * (int64_t)sizeof(float);

        FL_TRY(p->methods->broadcast(p, g->weight, size, 0, NULL));
        for (int i = 0; states && i < FL_MAX_STATE; i++)
            if (g->state[i])
                FL_TRY(p->methods->broadcast(p, g->state[i], size, 0, NULL));
    }
    for (size_t i = 0; i < s->states.n; i++) {
        fl_state *state = s->states.entry[i].value;

        FL_TRY(p->methods->broadcast(p, state->data, (int64_t)state->size, 0,
                                     NULL));
    }
    FL_TRY(p->methods->broadcast(p, &s->updates, sizeof s->updates, 0, NULL));
    FL_TRY(p->methods->broadcast(p, &s->scaling, sizeof s->scaling, 0, NULL));
    s->known_skips = s->scaling.skipped; /* `updates` leaves them out */
    return FLEET_OK;
}

static fleet_status take_from_first(fleet *f)
{
    fl_store *s = f->store;
    fleet_status status;

    pthread_rwlock_wrlock(&s->lock);
    status = fl_store_to_host(s);
    if (status == FLEET_OK) {
        status = take_all(s, f->comm);
        fl_store_written(s);
    }
    pthread_rwlock_unlock(&s->lock);
    return status;
}

enum { NAMED = 8 }; /* ranks that an error has at most */

static fleet_status refuse_loads(const fleet *f, const int32_t *loads)
{
    int n = 0, without = 0, size = f->comm->size;
    fleet_status status;
    fl_text who = {0};

    for (int r = 0; r < size; r++) {
        n += loads[r] != 0;
        if (loads[r] == 0 && ++without <= NAMED)
            fl_text_add(&who, "%s%d", without > 1 ? ", " : "", r);
    }
    status =
        fl_fail(FLEET_EINVAL,
                "fleet_init_worker: %d of %d ranks called "
                "fleet_load_model() before it, and not rank%s %s%s: each "
                "loads its own %s",
                n, size, without > 1 ? "s" : "", fl_text_chars(&who),
                without > NAMED ? ", ..." : "",
                fl_store_is_sharded(f->store) ? "part of the states" : "rows");
    fl_text_done(&who);
    return status;
}

/* Rows are this rank's own already, and states that are shared out: where any
 * were loaded, all were. */
static fleet_status check_loads(const fleet *f)
{
    const int32_t mine = f->loads;
    fleet_status status;
    int32_t *loads;
    int n = 0;

    if (fl_store_own_tables(f->store) == 0 && !fl_store_is_sharded(f->store))
        return FLEET_OK;
    FL_TRY(FL_NEW(&loads, (size_t)f->comm->size * sizeof *loads));
    status =
        f->comm->methods->all_gather(f->comm, &mine, loads, sizeof mine, NULL);
    for (int r = 0; status == FLEET_OK && r < f->comm->size; r++)
        n += loads[r] != 0;
    if (status == FLEET_OK && n > 0 && n < f->comm->size)
        status = refuse_loads(f, loads);
    fl_free(loads);
    return status;
}

/* Tables that no server keeps. */
static fleet_status share_out(fleet *f)
{
    fl_remote *ranks;

    if (fl_store_own_tables(f->store) == 0)
        return FLEET_OK;
    FL_TRY(fl_sharded_create(&f->sharded, f->store, &f->agree));
    ranks = fl_sharded_remote(f->sharded);
    if (f->worker_io)
        FL_TRY(fl_remote_hybrid_create(
            &f->hybrid, fl_worker_io_remote(f->worker_io), ranks));
    f->store->remote = f->hybrid ? fl_remote_hybrid_remote(f->hybrid) : ranks;
    f->store->partial = false;
    return FLEET_OK;
}

static fleet_status check_positions(const fleet *f)
{
    fl_position first = fl_positions_middle(f);

    FL_TRY(f->comm->methods->broadcast(f->comm, &first, sizeof first, 0, NULL));
    return fl_positions_check(f, &first);
}

static fleet_status start_together(fleet *f, const char *terms)
{
    FL_TRY(check_same(f, terms));
    FL_TRY(check_loads(f));
    FL_TRY(check_positions(f));
    FL_TRY(take_from_first(f));
    FL_TRY(make_gradients(f));
    if (f->trained && f->trained->training.all_reduce.group > 1)
        FL_TRY(fl_comm_hierarchy(f->comm, f->trained->training.all_reduce.group,
                                 &f->agree.hierarchy));
    FL_TRY(share_out(f));
    f->store->agree = &f->agree;
    return f->comm->methods->barrier(f->comm);
}

/* Without keys rank 0 is met from this machine alone, unless the user says
 * otherwise. */
static fleet_status check_reach(const fl_role *r)
{
    if (r->index > 0 || r->keys || r->insecure)
        return FLEET_OK;
    return fl_address_check_keyless("rank 0", r->first_rank, r->listen_fd);
}

/* The keys of the ranks, which are workers; `to` is for done_keys(). */
static fleet_status read_rank_keys(const fl_role *r, fl_rank_keys *to)
{
    const fl_keys *k = r->keys;

    FL_TRY(FL_NEW(&to->of, (size_t)r->worker_num * sizeof *to->of));
    fl_keys_bytes(k->secret, to->secret);
    for (int i = 0; i < r->worker_num; i++) {
        if (i >= k->n[FL_ROLE_WORKER] || !*k->known[FL_ROLE_WORKER][i])
            return fl_fail(FLEET_ENOENT,
                           "the folder of keys has none of worker %d, of %d", i,
                           r->worker_num);
        fl_keys_bytes(k->known[FL_ROLE_WORKER][i], to->of[i]);
    }
    return FLEET_OK;
}

static void done_keys(fl_rank_keys *k)
{
    explicit_bzero(k->secret, sizeof k->secret);
    fl_free(k->of);
}

static void warn_insecure_ranks(fleet *f)
{
    if (f->role.insecure && f->role.server_num == 0)
        FL_WARN(&f->context.log,
                "keys are off (FLEET_INSECURE): whoever reaches rank 0's port "
                "can take a rank's place, and end the job");
}

/* No launcher brings ranks on GPUs together: they have to know where rank 0 can
 * be met. */
static fleet_status meet_on_gpus(fleet *f, const fl_gpu *gpu,
                                 fl_comm_options *o)
{
    fl_role *r = &f->role;
    fl_rank_keys keys = {.of = NULL};
    fleet_status status = FLEET_OK;
    fl_address meet;

    if (!*r->first_rank)
        return fl_fail(FLEET_ENOENT,
                       "worker %d of %d trains on a GPU, but nothing says "
                       "where rank 0 can be met: expected PADDLE_MASTER or "
                       "PADDLE_TRAINER_ENDPOINTS, as fleetrun --devices sets "
                       "them, or role.master",
                       r->index, r->worker_num);
    FL_TRY(fl_address_resolve(r->first_rank, meet));
    memcpy(r->first_rank, meet, sizeof meet); /* as long as the group lives */
    FL_TRY(check_reach(r));
    warn_insecure_ranks(f);
    o->rank = r->index;
    o->size = r->worker_num;
    o->address = r->first_rank;
    o->connect_ms = r->deadline_ms[FL_CONNECT_DEADLINE];
    o->job = r->job_id;
    o->device = gpu->d->ordinal;
    if (r->keys) {
        status = read_rank_keys(r, &keys);
        o->keys = &keys;
    }
    if (status == FLEET_OK && r->index == 0 && r->listen_fd > 0) {
        o->listener = r->listen_fd;
        r->listen_fd = -1; /* it is the group's from now on */
    }
    if (status == FLEET_OK)
        status = fl_comm_open("nccl", o, &f->comm);
    done_keys(&keys);
    return status;
}

static fleet_status check_mpi(const fleet *f)
{
    const fl_role *r = &f->role;
    const fl_comm *p = f->comm;

    if (p->size == r->worker_num && p->rank == r->index)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "the environment makes this worker %d of %d, but MPI rank "
                   "%d of %d: start all ranks with one mpirun, or fleetrun "
                   "--nproc_per_node%s",
                   r->index, r->worker_num, p->rank, p->size,
                   *r->first_rank && p->size == 1
                       ? "; ranks of fleetrun --devices need no mpirun where "
                         "the program is placed on a GPU"
                       : "");
}

/* A trained program on a GPU has its gradients in GPU memory. */
static fleet_status open_group(fleet *f)
{
    const fl_role *r = &f->role;
    const fl_gpu *gpu = f->trained ? f->trained->place.gpu : NULL;
    fl_comm_options o = {.ordered = f->strategy.deterministic,
                         .deadline_ms = r->deadline_ms[FL_STEP_DEADLINE],
                         .log = &f->context.log};

    if (gpu && r->worker_num > 1)
        return meet_on_gpus(f, gpu, &o);
    return fl_comm_open(r->worker_num > 1 ? "mpi" : "self", &o, &f->comm);
}

/* What a GPU cannot do is said before the other ranks wait for this one. */
static fleet_status check_plan(const fleet *f)
{
    const fleet_program *p = f->trained;
    fl_plan *plan;

    if (!p || !p->place.gpu)
        return FLEET_OK;
    FL_TRY(fl_plan_build(p, f->store, 1, true, NULL, &p->place, &plan));
    fl_plan_destroy(plan);
    return FLEET_OK;
}

fleet_status fl_ranks_join(fleet *f, const char *terms)
{
    fleet_status status;

    if (f->comm)
        return fl_fail(FLEET_ESTATE, "fleet_init_worker: was called already");
    FL_TRY(check_plan(f));
    FL_TRY(open_group(f));
    f->agree = (fl_agree){
        .comm = f->comm, .store = f->store, .serve = fl_ranks_serve, .arg = f};
    status = check_mpi(f);
    if (status == FLEET_OK)
        status = start_together(f, terms);
    if (status != FLEET_OK) {
        fl_agree_abort(&f->agree, fleet_last_error());
        leave_group(f);
        return status;
    }
    return FLEET_OK;
}

/* --- together ------------------------------------------------------------- */

fleet_status fl_ranks_barrier(fleet *f)
{
    return f->comm ? fl_store_join(f->store, NULL, NULL) : not_joined();
}

typedef struct reduction {
    fl_comm *comm;
    fl_reduce how;
    double *x;
    int n;
} reduction;

static fleet_status reduce_now(void *arg)
{
    const reduction *r = arg;

    return r->comm->methods->all_reduce(r->comm, r->how, FL_WIRE_F64, r->x,
                                        r->x, r->n, NULL);
}

fleet_status fl_ranks_reduce(fleet *f, fl_reduce how, double *x, int n)
{
    reduction r = {f->comm, how, x, n};

    return f->comm ? fl_store_join(f->store, reduce_now, &r) : not_joined();
}

/* All ranks leave alike, with their own parts alone, whatever each of them has
 * asked for last. */
static fleet_status keep_part(fl_store *s)
{
    fleet_status status;

    pthread_rwlock_wrlock(&s->lock);
    status = fl_part_weights(s);
    pthread_rwlock_unlock(&s->lock);
    return status;
}

fleet_status fl_ranks_leave(fleet *f)
{
    FL_TRY(fl_ranks_barrier(f));
    FL_TRY(keep_part(f->store));
    leave_group(f);
    return FLEET_OK;
}
