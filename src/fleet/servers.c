/* servers.c - the calls of a job with servers. */
#include "fleet/heter/stage_connect.h"
#include "fleet/job/param_home.h"
#include "fleet/job/position.h"
#include "fleet/job/trail_mark.h"
#include "fleet/strategy/strategy_amp.h"
#include "fleet/strategy/strategy_report.h"
#include "fleet/ranks.h"
#include "fleet/scheduling.h"
#include "fleet/server_replica.h"
#include "fleet/server_stop.h"
#include "fleet/servers.h"

#include <string.h>
#include <unistd.h>
#include <stdatomic.h>

#include "base/folder.h"
#include "base/memory.h"
#include "fleet/role/env.h"
#include "fleet/save_part.h"
#include "fleet/strategy/strategy_fields.h"
#include "ps/worker/remote_table.h"
#include "runtime/cold/cold_table.h"
#include "runtime/graph/table_options.h"
#include "runtime/plan/remote.h"
#include "runtime/store/table.h"

static bool has_servers(const fleet *f)
{
    return f->role.server_num > 0;
}

static void warn_insecure(fleet *f)
{
    if (has_servers(f) && f->role.insecure)
        FL_WARN(&f->context.log,
                "keys are off (FLEET_INSECURE): whoever reaches a server's "
                "port can read the parameters, change them, and end the job");
}

/* Other modes refuse the field. */
static bool bounds_staleness(const fleet *f, fl_job_mode mode)
{
    return (mode == FL_PS_ASYNC || mode == FL_PS_HALF_ASYNC) &&
           f->strategy.a_sync_configs.max_staleness >= 0;
}

static fl_push_options half_async_of(const fleet *f)
{
    const fleet_a_sync_configs *c = &f->strategy.a_sync_configs;

    return (fl_push_options){.merged = c->max_merge_var_num,
                             .queue = c->send_queue_size,
                             .recv_after = c->min_send_grad_num_before_recv,
                             .recv_beside = c->independent_recv_thread};
}

/* Of modes that have no servers it is not asked, and in geo it is refused. */
static fl_wire_options wire_of(const fleet *f)
{
    static const fl_codec codec[] = {[FLEET_WIRE_FP32] = FL_CODEC_F32,
                                     [FLEET_WIRE_FP16] = FL_CODEC_F16,
                                     [FLEET_WIRE_BF16] = FL_CODEC_BF16,
                                     [FLEET_WIRE_INT8] = FL_CODEC_INT8};
    const fleet_wire_configs *c = &f->strategy.wire_configs;

    return (fl_wire_options){.push = codec[c->push_type],
                             .pull = codec[c->pull_type],
                             .forgets = !c->error_feedback,
                             .packs_keys = c->pack_keys};
}

static fleet_status make_terms(fleet *f)
{
    fl_text_done(&f->terms);
    fl_strategy_terms(f, &f->terms);
    return f->terms.status;
}

fleet_status fl_add_programs(fleet *f)
{
    for (size_t i = 0; i < f->n_program; i++) {
        const fleet_program *p = f->program[i];

        FL_TRY(fleet_program_status(p));
        if (f->trained) /* or how it will be is not known */
            FL_TRY(fl_param_home_check(f, p));
        FL_TRY(fl_store_add(f->store, p));
        if (p->training.loss)
            FL_TRY(fl_store_train(f->store, p->training.optimizer));
    }
    return FLEET_OK;
}

/* --- workers -------------------------------------------------------------- */

fleet_status fl_servers_open(fleet *f)
{
    const fl_role *r = &f->role;
    const fl_worker_io_options o = {
        .context = &f->context,
        .address = r->server,
        .n_server = r->server_num,
        .job = r->job_id,
        .index = fl_role_stream(r),
        .n_worker = fl_role_streams(r),
        .n_heter = r->stages.n_heter,
        .connect_ms = r->deadline_ms[FL_CONNECT_DEADLINE],
        .request_ms = r->deadline_ms[FL_REQUEST_DEADLINE],
        .peer_ms = r->deadline_ms[FL_PEER_DEADLINE],
        .step_ms = r->deadline_ms[FL_STEP_DEADLINE],
        .tcp_only = r->tcp_only,
        .keys = r->keys,
        .keep_limit = r->keep_descriptor_limit};

    f->store->joins = fleet_is_server(f);
    if (!has_servers(f) || fleet_is_server(f))
        return FLEET_OK;
    f->store->make_remote_table = fl_remote_rows_make;
    FL_TRY(fl_worker_io_create(&f->worker_io, &o));
    f->store->remote = fl_worker_io_remote(f->worker_io);
    return FLEET_OK;
}

/* Which tells workers where the copies are. */
static void destroy_server(fleet *f)
{
    fl_server_destroy(f->server);
    fl_server_destroy(f->replica);
    f->server = f->replica = NULL;
    if (f->spare_listener > 0)
        close(f->spare_listener);
    f->spare_listener = 0;
}

void fl_servers_close(fleet *f)
{
    fl_stage_job_close(f);
    fl_worker_io_destroy(f->worker_io);
    f->worker_io = NULL;
    if (f->store)
        f->store->remote = NULL;
    fl_scheduling_close(f);
    destroy_server(f);
    fl_text_done(&f->load);
}

static fleet_status tell_loads(fleet *f)
{
    char *end;

    for (char *at = f->load.chars; *at; at = end + 1) {
        end = strchr(at, '\n');
        *end = 0;
        FL_TRY(fl_worker_io_command(f->worker_io, FL_COMMAND_LOAD, at, NULL));
    }
    return FLEET_OK;
}

/* Loads from before fleet_init_worker(), when no server was connected yet: the
 * first worker tells the servers, for all workers. Returns when all workers
 * have come. */
static fleet_status pass_on_load(fleet *f)
{
    bool first = fleet_is_first_worker(f);
    const fl_position mine = fl_positions_middle(f);
    double loads[] = {f->load.length > 0, f->load.length > 0 && first,
                      first ? (double)mine.pass : 0,
                      first ? (double)mine.batch : 0};
    fleet_status status = f->load.status;

    if (status == FLEET_OK && loads[1] > 0)
        status = tell_loads(f);
    fl_text_done(&f->load);
    FL_TRY(status);
    FL_TRY(fl_worker_io_reduce(f->worker_io, FL_REDUCTION_SUM, loads, 4));
    if (loads[0] > 0 && loads[1] == 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_init_worker: %.0f of %d workers called "
                       "fleet_load_model() before it, but not worker 0, which "
                       "loads for all",
                       loads[0], f->role.worker_num);
    return fl_positions_check(f, &(fl_position){.pass = (int64_t)loads[2],
                                                .batch = (int64_t)loads[3]});
}

/* Workers of geo train copies of rows: what servers do not let become a row, or
 * let go, would stay in them, and so would a vector that a row does not have
 * yet. An accessor counts on the servers; a row that a shrink lets go is its
 * initial value again in copies, as in all pulls. */
static fleet_status refuse_lives(const fleet *f, fl_job_mode mode)
{
    for (size_t i = 0; mode == FL_PS_GEO && i < f->store->tables.n; i++) {
        const fl_rows *r = f->store->tables.entry[i].value;
        fleet_table_options o;
        fl_text has = {0};
        fleet_status status;

        if (!r->life)
            continue;
        o = r->life->o;
        if (o.accessor.embedx_dim == 0)
            o.accessor = (fleet_accessor){0};
        if (!fl_table_has_life(&o))
            continue;
        fl_table_options_print(&o, ", ", &has);
        status = fl_fail(FLEET_EUNSUPPORTED,
                         "table \"%s\" has %s: not in mode %s, whose workers "
                         "train copies of rows",
                         r->name, fl_text_chars(&has), fl_job_mode_name(mode));
        fl_text_done(&has);
        return status;
    }
    return FLEET_OK;
}

/* Which rows have changed is asked by key, of rows that may be anywhere. */
static fleet_status refuse_caps(const fleet *f, fl_job_mode mode)
{
    for (size_t i = 0; mode == FL_PS_GEO && i < f->store->tables.n; i++) {
        const fl_rows *r = f->store->tables.entry[i].value;

        if (r->cap_bytes > 0)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "table \"%s\" has memory_cap_bytes: not in mode %s, "
                           "in which servers look up rows that have changed "
                           "without waiting for them",
                           r->name, fl_job_mode_name(mode));
    }
    return FLEET_OK;
}

/* Why a worker of this job, whose servers write logs, cannot be started again;
 * NULL: it can. The server's last words have it. */
static const char *no_restart(const fleet *f)
{
    const fleet_distributed_strategy *s = &f->strategy;
    fl_job_mode mode = fl_handle_mode(f);

    if (mode == FL_PS_GEO)
        return "; in ps-geo a worker cannot be started again: what it has "
               "trained in its copies is in no log";
    if (mode != FL_PS_SYNC && mode != FL_PS_ASYNC)
        return "; in ps-half-async a worker cannot be started again: pushes "
               "that it gathers are in no log";
    if (s->a_sync_configs.max_staleness >= 0)
        return "; with a_sync_configs.max_staleness a worker cannot be started "
               "again: how many steps it is ahead is in no log";
    if (s->wire_configs.push_type != FLEET_WIRE_FP32 &&
        s->wire_configs.error_feedback)
        return "; with wire_configs.error_feedback a worker cannot be started "
               "again: what its pushes have rounded away is in no log";
    if (fl_amp_dtype(s) == FLEET_FLOAT16)
        return "; with float16 a worker cannot be started again: its loss "
               "scale is in no log";
    return NULL;
}

/* Why lanes of this job may not go from one server's process to another, and
 * what to do instead; NULL: they may. */
static const char *no_move(const fleet *f)
{
    return f->strategy.replicas > 1
               ? "with strategy.replicas 2 a lane's copies stay in two "
                 "processes (instead: end one server, and start it again "
                 "elsewhere, with its address)"
               : NULL;
}

static bool writes_log(const fleet *f)
{
    return f->strategy.log != FLEET_DURABLE_NONE;
}

static bool leaves_trail(const fleet *f)
{
    const char *folder = f->strategy.log_configs.folder;

    return writes_log(f) && folder && *folder && !no_restart(f);
}

static fleet_status connect_worker(fleet *f)
{
    fl_job_mode mode = fl_handle_mode(f);
    fl_push_options half = half_async_of(f);
    const fl_trail_options trail = {.folder = f->strategy.log_configs.folder,
                                    .worker = fl_role_stream(&f->role),
                                    .level =
                                        f->strategy.log == FLEET_DURABLE_POWER
                                            ? FL_JOURNAL_SURVIVES_POWER
                                            : FL_JOURNAL_SURVIVES_PROCESS,
                                    .log = &f->context.log};
    const fl_worker_mode how = {
        .sync = fl_mode_is_sync(mode),
        .bounds_staleness = bounds_staleness(f, mode),
        .by_parts = fleet_is_heter_worker(f) && fl_mode_is_sync(mode),
        .exchange_every =
            mode == FL_PS_GEO ? f->strategy.a_sync_configs.k_steps : 0,
        .cache_bytes = (size_t)f->strategy.a_sync_configs.vocab_cache_size,
        .cache_staleness =
            (uint32_t)f->strategy.a_sync_configs.cache_read_staleness,
        .half = mode == FL_PS_HALF_ASYNC ? &half : NULL,
        .restart_ms =
            writes_log(f) ? f->strategy.log_configs.restart_deadline_ms : 0,
        .replicas = fl_has_replicas(f),
        .wire = wire_of(f),
        .log_folder = writes_log(f) ? f->strategy.log_configs.folder : NULL,
        .trail = leaves_trail(f) ? &trail : NULL,
        .trail_host = fl_trail_mark_host(f)};

    FL_TRY(fl_add_programs(f));
    fl_stage_job_mark(f);
    FL_TRY(refuse_lives(f, mode));
    FL_TRY(refuse_caps(f, mode));
    FL_TRY(make_terms(f));
    if (has_servers(f)) { /* which clip, or do not, as their program says now */
        f->trained->training.optimizer->in_use = true;
        FL_TRY(fl_worker_io_open(f->worker_io, f->store, &how,
                                 fl_text_chars(&f->terms)));
        FL_TRY(fleet_is_heter_worker(f) ? FLEET_OK : pass_on_load(f));
        FL_TRY(fl_stage_connect(f));
    }
    if (fl_has_ranks(f))
        return fl_ranks_join(f, fl_text_chars(&f->terms));
    f->store->updates = f->store->remote->updates;
    return FLEET_OK;
}

fleet_status fleet_init_worker(fleet *f)
{
    fleet_status status;

    if (!fleet_is_heter_worker(f))
        FL_TRY(fl_handle_check_worker(f, "fleet_init_worker"));
    if (!f->trained)
        return fl_fail(FLEET_ESTATE, "fleet_init_worker: call "
                                     "fleet_minimize() before");
    if (!has_servers(f) && !fl_has_ranks(f))
        return FLEET_OK;
    status = connect_worker(f);
    if (status == FLEET_OK)
        FL_INFO(&f->context.log, "%sworker %d of %d: servers %d, mode %s",
                fleet_is_heter_worker(f) ? "heter " : "", f->role.index,
                fleet_is_heter_worker(f) ? f->role.stages.n_heter
                                         : f->role.worker_num,
                f->role.server_num, fl_job_mode_name(fl_handle_mode(f)));
    if (status == FLEET_OK)
        warn_insecure(f);
    return status;
}

/* What fleet_cache_stat() says, in a line. */
static void log_cache(fleet *f)
{
    fl_hot_counts c;
    double all;

    if (!fl_worker_io_cache(f->worker_io, &c))
        return;
    all = c.rows > 0 ? (double)c.rows : 1;
    FL_INFO(&f->context.log,
            "worker %d: cache: %.1f %% of %llu rows used without asking, "
            "%.1f %% not sent because unchanged; %.1f MB saved; %llu rows kept "
            "in %.1f MB, %llu replaced",
            f->role.index, 100 * (double)c.unasked / all,
            (unsigned long long)c.rows, 100 * (double)c.unchanged / all,
            (double)c.saved * 1e-6, (unsigned long long)c.kept,
            (double)c.bytes * 1e-6, (unsigned long long)c.replaced);
}

fleet_status fleet_stop_worker(fleet *f)
{
    FL_TRY(fl_handle_check_worker(f, "fleet_stop_worker"));
    if (fl_has_ranks(f))
        FL_TRY(fl_ranks_leave(f));
    if (!has_servers(f))
        return FLEET_OK;
    FL_TRY(fl_stage_connect_leave(f));
    FL_TRY(fl_worker_io_leave(f->worker_io));
    log_cache(f);
    return FLEET_OK;
}

fleet_status fleet_barrier_worker(fleet *f)
{
    FL_TRY(fl_handle_check_worker(f, "fleet_barrier_worker"));
    if (fl_has_ranks(f))
        FL_TRY(fl_ranks_barrier(f));
    return has_servers(f) ? fl_worker_io_barrier(f->worker_io) : FLEET_OK;
}

/* --- servers -------------------------------------------------------------- */

static fleet_status server_call(const fleet *f, const char *call)
{
    FL_TRY(fl_handle_check(f, call));
    if (!fleet_is_server(f))
        return fl_fail(FLEET_ESTATE, "%s: this process is a worker", call);
    return FLEET_OK;
}

static fleet_status log_of(const fleet *f, fl_server_log_options *log)
{
    static const fl_server_log_level level[] = {
        [FLEET_DURABLE_NONE] = FL_NO_LOG,
        [FLEET_DURABLE_PROCESS] = FL_LOG_SURVIVES_PROCESS,
        [FLEET_DURABLE_POWER] = FL_LOG_SURVIVES_POWER};
    const fleet_distributed_strategy *s = &f->strategy;

    *log = (fl_server_log_options){.level = level[s->log],
                                   .folder = s->log_configs.folder,
                                   .file_bytes =
                                       (size_t)s->log_configs.file_bytes};
    if (log->level == FL_NO_LOG)
        return FLEET_OK;
    if (!log->folder || !*log->folder)
        return fl_fail(FLEET_EINVAL,
                       "strategy.log is %s, but server %d has no folder for "
                       "its log: expected log_configs.folder, or "
                       "FLEET_LOG_FOLDER",
                       fl_durability_names[s->log], f->role.index);
    return FLEET_OK;
}

/* A worker whose job has a log may be without its folder. */
fleet_status fl_servers_check_log(const fleet *f)
{
    const char *folder = f->strategy.log_configs.folder;
    fl_server_log_options log;
    fleet_status status;

    if (!has_servers(f) || !writes_log(f))
        return FLEET_OK;
    if (fleet_is_server(f))
        FL_TRY(log_of(f, &log));
    if (!folder || !*folder)
        return FLEET_OK;
    status = fl_folder_check(folder, "a log");
    return status == FLEET_OK ? status : fl_fail_in(status, "strategy.log");
}

fl_server_options fl_servers_options(fleet *f)
{
    const fl_role *r = &f->role;
    fl_job_mode mode = fl_handle_mode(f);

    return (fl_server_options){
        .context = &f->context,
        .make_rows = fl_table_make,
        .make_capped = fl_cold_make,
        .program = f->program,
        .n_program = (int)f->n_program,
        .optimizer = f->trained->training.optimizer,
        .layerwise = f->trained->training.layerwise,
        .address = fleet_is_server(f) ? r->server[r->index] : "",
        .listen_fd = r->listen_fd,
        .keep_limit = r->keep_descriptor_limit,
        .index = r->index,
        .n_server = r->server_num,
        .n_worker = fl_role_streams(r),
        .n_heter = r->stages.n_heter,
        .n_lane = r->joins ? 1 : r->lanes,
        .joins = r->joins,
        .keys = r->keys,
        .insecure = r->insecure,
        .lane_port = r->lane_port,
        .sync = fl_mode_is_sync(mode),
        .bounds_staleness = bounds_staleness(f, mode),
        .max_staleness = f->strategy.a_sync_configs.max_staleness,
        .live_hash = f->strategy.live_hash,
        .sums = mode == FL_PS_GEO,
        .scaled = fl_amp_dtype(&f->strategy) == FLEET_FLOAT16,
        .ranks = fl_mode_has_ranks(mode),
        .mode = fl_text_chars(&f->terms),
        .job = r->job_id,
        .connect_ms = r->deadline_ms[FL_CONNECT_DEADLINE],
        .peer_ms = r->deadline_ms[FL_PEER_DEADLINE],
        .step_ms = r->deadline_ms[FL_STEP_DEADLINE],
        .command = fl_save_part_of_lane,
        .command_arg = f,
        .tcp_only = r->tcp_only,
        .restart_ms = writes_log(f) && !no_restart(f)
                          ? f->strategy.log_configs.restart_deadline_ms
                          : 0,
        .no_restart = writes_log(f) ? no_restart(f) : NULL,
        .no_move = no_move(f)};
}

/* It has nothing until lanes come, with all that they have loaded. */
static fleet_status create_joined(fleet *f)
{
    fl_server_options o = fl_servers_options(f);

    if (o.no_move)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "FLEET_JOIN: no server can join this job, as its lanes "
                       "stay where they are: %s",
                       o.no_move);
    FL_TRY(log_of(f, &o.log));
    return fl_server_create(&f->server, &o);
}

/* load: a load_how.c text; NULL: nothing. */
static fleet_status create_server(fleet *f, const char *load)
{
    fl_server_options o = fl_servers_options(f);

    if (f->role.joins)
        return create_joined(f);
    o.load = load;
    FL_TRY(log_of(f, &o.log));
    if (writes_log(f) && f->role.scheduler && !fl_variable("PADDLE_PORT"))
        FL_WARN(&f->context.log,
                "server %d: strategy.log, and no PADDLE_PORT: started again "
                "while the job runs it has its port back, but if the whole job "
                "is started again ports are drawn anew, and its log is of "
                "another address: set PADDLE_PORT to go on by the log then",
                f->role.index);
    if (fl_has_replicas(f)) {
        FL_TRY(fl_server_replica_create(f, &o));
        o.replica = f->replica;
    }
    f->role.owns_listener = false; /* it goes with what serves */
    return fl_server_create(&f->server, &o);
}

fleet_status fleet_init_server(fleet *f, const char *path)
{
    return fl_init_server(f, path, &(fl_load_how){0});
}

fleet_status fl_init_server(fleet *f, const char *path, const fl_load_how *how)
{
    char *load = NULL;
    fleet_status status;

    FL_TRY(server_call(f, "fleet_init_server"));
    if (f->role.schedules)
        return fl_scheduling_open(f);
    if (!f->trained)
        return fl_fail(FLEET_ESTATE, "fleet_init_server: call "
                                     "fleet_minimize() before");
    if (f->server)
        return fl_fail(FLEET_ESTATE, "fleet_init_server: was called already");
    for (size_t i = 0; i < f->n_program; i++) {
        FL_TRY(fleet_program_status(f->program[i]));
        FL_TRY(fl_param_home_check(f, f->program[i]));
    }
    FL_TRY(make_terms(f));
    if (path)
        FL_TRY(fl_load_how_print(how, path, &load));
    status = create_server(f, load);
    fl_free(load);
    FL_TRY(status);
    f->trained->training.optimizer->serves = true;
    return FLEET_OK;
}

/* --- running it ----------------------------------------------------------- */

static fleet_status serve_until_left(fleet *f)
{
    fl_server_pair both = {.server = {f->server, f->replica}};
    fleet_status status;

    FL_TRY(fl_server_pair_begin(&both, !f->role.no_sigterm_handler));
    FL_INFO(&f->context.log,
            "server %d of %d at %s: lanes %d, workers %d, mode %s",
            f->role.index, f->role.server_num,
            fl_address_text(f->role.server[f->role.index]), f->role.lanes,
            f->role.worker_num, fl_job_mode_name(fl_handle_mode(f)));
    warn_insecure(f);
    status = f->replica ? fl_server_replica_serve(f, &both)
                        : fl_server_run(f->server);
    fl_server_pair_end(&both);
    return status;
}

fleet_status fleet_run_server(fleet *f)
{
    fleet_status status;
    fl_error error;

    FL_TRY(server_call(f, "fleet_run_server"));
    if (atomic_exchange(&f->serving, true))
        return fl_fail(FLEET_ESTATE, "fleet_run_server: it runs already");
    status = f->server ? FLEET_OK : fleet_init_server(f, NULL);
    if (status == FLEET_OK)
        status = f->role.schedules ? fl_scheduling_run(f) : serve_until_left(f);
    fl_error_take(&error, status);
    fl_scheduling_close(f);
    destroy_server(f);
    if (f->trained)
        f->trained->training.optimizer->serves = false;
    atomic_store(&f->serving, false);
    return fl_error_raise(&error);
}
