/* init.c - the handle's life, its programs and their variables. */
#include "base/clock.h"
#include "base/memory.h"
#include "fleet/pass/pass_rows.h"
#include "fleet/job/position.h"
#include "fleet/job/stop.h"
#include "fleet/strategy/strategy_log.h"
#include "fleet/strategy/strategy_replicas.h"
#include "fleet/train/save_chain.h"
#include "fleet/ranks.h"
#include "fleet/ranks_commands.h"
#include "fleet/servers.h"
#include "runtime/cold/cold_table.h"
#include "runtime/device/trace.h"
#include "runtime/reduce/whole_weights.h"
#include "runtime/store/table.h"
#include "runtime/store/store_hash.h"

const char *fleet_version(void)
{
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
    return TEXT(FLEET_VERSION_MAJOR) "." TEXT(FLEET_VERSION_MINOR) "." TEXT(
        FLEET_VERSION_PATCH);
}

void fleet_free(void *p)
{
    fl_free(p);
}

static fleet_status open_handle(fleet *f, const fleet_options *o)
{
    if (o->num_threads < 0 || o->num_threads > FL_MAX_THREAD)
        return fl_fail(FLEET_EINVAL, "num_threads: expected 0 to %d, got %d",
                       FL_MAX_THREAD, o->num_threads);
    if (o->log_level < FLEET_LOG_DEFAULT || o->log_level > FLEET_LOG_SILENT)
        return fl_fail(FLEET_EINVAL, "log_level: %d is none",
                       (int)o->log_level);
    FL_TRY(fl_role_open(&f->role, o));
    FL_TRY(fl_context_init(&f->context, o->seed, o->num_threads));
    f->context.trace = fl_trace_open();
    FL_TRY(fl_store_create(&f->context, fl_table_make, &f->store));
    f->store->make_capped = fl_cold_make;
    FL_TRY(fl_strategy_log_read(&f->role, &f->strategy));
    FL_TRY(fl_strategy_replicas_read(&f->role, &f->strategy));
    return fl_servers_open(f);
}

fleet_status fleet_init(fleet **out, const fleet_options *options)
{
    static const fleet_options defaults;
    const fleet_options *o = options ? options : &defaults;
    fleet_status status;
    fleet *f;

    if (!out)
        return fl_fail(FLEET_EINVAL, "fleet_init: nowhere to put the handle");
    *out = NULL;
    FL_TRY(FL_NEW(&f, sizeof *f));
    f->made_ns = fl_now_ns();
    f->stops_met = fl_stop_count();
    f->strategy = fleet_distributed_strategy_default();
    fl_log_init(&f->context.log, o->log, o->log_user, o->log_level);
    status = open_handle(f, o);
    if (status != FLEET_OK) {
        if (!f->role.owns_listener)
            f->role.listen_fd = -1; /* the next call may want it */
        fleet_destroy(f);
        return status;
    }
    *out = f;
    return FLEET_OK;
}

void fleet_destroy(fleet *f)
{
    if (!f)
        return;
    fl_ranks_close(f);
    fl_servers_close(f);
    fl_psgpu_destroy(f->psgpu); /* its thread adds to the trace */
    if (f->context.fork_generation == fl_fork_generation() &&
        fl_trace_write(f->context.trace, fleet_is_server(f),
                       fl_role_stream(&f->role)) != FLEET_OK)
        FL_WARN(&f->context.log, "the trace is not written: %s",
                fleet_last_error());
    while (f->datasets)
        fleet_dataset_destroy(f->datasets);
    while (f->n_program > 0)
        fleet_program_destroy(f->program[f->n_program - 1]);
    while (f->optimizers) {
        fleet_optimizer *next = f->optimizers->next;

        fl_optimizer_destroy(f->optimizers);
        f->optimizers = next;
    }
    fl_statistics_done(&f->loaded);
    fl_positions_done(f->saved_position, f->n_saved_position);
    fl_free(f->mark);
    fl_save_chain_end(f);
    fl_free(f->extra);
    fl_text_done(&f->terms);
    fl_free(f->program);
    fl_store_destroy(f->store);
    fl_context_done(&f->context);
    fl_role_done(&f->role);
    fl_log_done(&f->context.log);
    fl_free(f);
}

/* --- programs ------------------------------------------------------------ */

fleet_program *fleet_program_create(fleet *f)
{
    fleet_program *p;

    if (fl_handle_check(f, "fleet_program_create") != FLEET_OK ||
        fl_grow(&f->program, &f->program_capacity, f->n_program + 1,
                sizeof *f->program) != FLEET_OK)
        return NULL;
    p = fl_program_create(&f->context, f->store);
    if (p) {
        p->owner = f;
        f->program[f->n_program++] = p;
    }
    return p;
}

void fleet_program_destroy(fleet_program *p)
{
    fleet *f = p ? p->owner : NULL;

    for (size_t i = 0; f && i < f->n_program; i++)
        if (f->program[i] == p) {
            f->program[i] = f->program[--f->n_program];
            break;
        }
    if (f && f->trained == p)
        f->trained = NULL;
    fl_program_free(p);
}

fleet_var *fleet_data(fleet_program *p, const char *name, fleet_dtype dtype,
                      const int64_t *dims, int n_dim)
{
    fleet_status status;
    fl_shape shape;

    if (!p || !fl_program_ok(p))
        return NULL;
    if (dtype != FLEET_FLOAT32 && dtype != FLEET_INT64)
        status =
            fl_fail(FLEET_EDTYPE, "data \"%s\": %s; expected float32 or int64",
                    name ? name : "(null)", fleet_dtype_name(dtype));
    else
        status = fl_shape_check(name ? name : "(null)", dims, n_dim);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    shape = fl_shape_make(dims, n_dim);
    return fl_program_data(p, name, dtype, &shape, false);
}

fleet_var *fleet_data_ragged(fleet_program *p, const char *name)
{
    fl_shape shape = fl_shape_2(-1, 1);

    return p ? fl_program_data(p, name, FLEET_INT64, &shape, true) : NULL;
}

fleet_var *fleet_data_ragged_floats(fleet_program *p, const char *name)
{
    fl_shape shape = fl_shape_2(-1, 1);

    return p ? fl_program_data(p, name, FLEET_FLOAT32, &shape, true) : NULL;
}

fleet_var *fleet_data_weighted(fleet_program *p, const char *name)
{
    fleet_var *ids = fleet_data_ragged(p, name), *weights;
    const char *of;

    if (!ids)
        return NULL;
    of = fl_arena_format(&p->arena, "%s.weights", name);
    if (!of)
        return fl_program_failed(p, FLEET_ENOMEM);
    weights = fleet_data_ragged_floats(p, of);
    if (!weights)
        return NULL;
    fl_program_weigh(ids, weights);
    return ids;
}

fleet_var *fleet_parameter(fleet_program *p, const int64_t *dims, int n_dim,
                           const fleet_param_attr *attr)
{
    fleet_initializer xavier = {FLEET_INIT_XAVIER_UNIFORM, 0, 0};
    fleet_status status = FLEET_OK;
    fl_shape shape;

    if (!p || !fl_program_ok(p))
        return NULL;
    if (!attr || !attr->name)
        status = fl_fail(FLEET_EINVAL, "fleet_parameter: a name is required");
    if (status == FLEET_OK)
        status = fl_shape_check(attr->name, dims, n_dim);
    if (status == FLEET_OK && dims[0] < 0)
        status =
            fl_fail(FLEET_ESHAPE, "parameter \"%s\": it cannot have a batch",
                    attr->name);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    shape = fl_shape_make(dims, n_dim);
    return fl_program_param(p, "", "", &shape, attr, xavier);
}

/* --- the job -------------------------------------------------------------- */

fleet_status fleet_util_file_shard(const fleet *f, int64_t n, int64_t *first,
                                   int64_t *count)
{
    int64_t each, more;

    FL_TRY(fl_handle_check(f, "fleet_util_file_shard"));
    if (n < 0 || !first || !count)
        return fl_fail(FLEET_EINVAL, "fleet_util_file_shard: %lld files",
                       (long long)n);
    *first = *count = 0;
    if (!fleet_is_worker(f))
        return FLEET_OK;
    each = n / f->role.worker_num;
    more = n % f->role.worker_num; /* that many first workers have one more */
    *first =
        f->role.index * each + (f->role.index < more ? f->role.index : more);
    *count = each + (f->role.index < more);
    return FLEET_OK;
}

/* Under the store's lock; the link has one of its own. */
static fleet_status hash_rows(void *arg, const fl_rows *r, uint64_t *sum)
{
    fleet *f = arg;
    uint64_t rows;

    if (r->remote)
        return fl_worker_io_hash(f->worker_io, r->name, sum, &rows);
    return f->sharded ? fl_ranks_hash(f, r, sum) : fl_store_hash_rows(r, sum);
}

fleet_status fleet_params_hash(fleet *f, uint64_t *hash)
{
    fleet_status status;

    FL_TRY(fl_handle_check_worker(f, "fleet_params_hash"));
    if (!hash)
        return fl_fail(FLEET_EINVAL, "fleet_params_hash: nowhere to put it");
    FL_TRY(fl_whole_weights_lock(f->store, false));
    status = fl_store_hash(f->store, hash_rows, f, hash);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}
