/* table_call.c - reads that go to all that keep a table, and writes that all
 * workers make together. */
#include "fleet/table/table_call.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "fleet/ranks.h"
#include "fleet/ranks_commands.h"
#include "fleet/save/table_part.h"
#include "fleet/servers.h"
#include "runtime/exec/executor.h"

void fl_answers_done(fl_answers *a)
{
    for (int i = 0; a->of && i < a->n; i++)
        fl_free(a->of[i]);
    fl_free(a->of);
    *a = (fl_answers){0};
}

fleet_status fl_call_table(fleet *f, const char *call, const char *table,
                           fl_rows **rows)
{
    FL_TRY(fl_handle_check_worker(f, call));
    if (!table)
        return fl_fail(FLEET_EINVAL, "%s: the table's name is NULL", call);
    FL_TRY(fl_add_programs(f));
    *rows = fl_store_rows(f->store, table);
    return *rows ? FLEET_OK
                 : fl_fail(FLEET_ENOENT, "%s: there is no table \"%s\"", call,
                           table);
}

/* --- one process ---------------------------------------------------------- */

static fleet_status local_part(fleet *f, fl_job_command command,
                               const char *text, char **answer)
{
    FL_TRY(fl_store_check(f->store));
    FL_TRY(fl_store_to_host(f->store));
    FL_TRY(fl_table_part(f->store, NULL, command, text, answer));
    if (command == FL_COMMAND_WRITE)
        fl_store_written(f->store);
    return FLEET_OK;
}

/* --- all of them ---------------------------------------------------------- */

static bool by_ranks(const fleet *f)
{
    return f->comm && f->role.worker_num > 1;
}

static fleet_status run_parts(fleet *f, bool remote, fl_job_command command,
                              const char *text, fl_answers *a)
{
    fleet_status status;

    if (remote && command == FL_COMMAND_READ)
        return fl_worker_io_read(f->worker_io, text, a->of);
    if (remote)
        return fl_worker_io_command(f->worker_io, command, text, a->of);
    FL_TRY(fl_store_synchronize(f->store));
    pthread_rwlock_wrlock(&f->store->lock);
    status = by_ranks(f) ? fl_ranks_command(f, command, text, a->of)
                         : local_part(f, command, text, a->of);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

static int count_parts(const fleet *f, bool remote)
{
    return remote        ? fl_worker_io_lanes(f->worker_io)
           : by_ranks(f) ? f->role.worker_num
                         : 1;
}

static fleet_status run_all(fleet *f, bool remote, fl_job_command command,
                            const char *text, fl_answers *a)
{
    a->n = count_parts(f, remote);
    FL_TRY(FL_NEW(&a->of, ((size_t)a->n + 1) * sizeof *a->of));
    return run_parts(f, remote, command, text, a);
}

fleet_status fl_call_read(fleet *f, const fl_rows *rows, const char *text,
                          fl_answers *a)
{
    return run_all(f, rows->remote, FL_COMMAND_READ, text, a);
}

fleet_status fl_call_write(fleet *f, bool remote, const char *text)
{
    fl_answers a = {0};
    fleet_status status = run_all(f, remote, FL_COMMAND_WRITE, text, &a);

    fl_answers_done(&a);
    return status;
}

/* --- all workers ---------------------------------------------------------- */

static fleet_status sum_over_workers(fleet *f, double *x, int n)
{
    return by_ranks(f)
               ? fl_ranks_reduce(f, FL_ALL_SUM, x, n)
               : fl_worker_io_reduce(f->worker_io, FL_REDUCTION_SUM, x, n);
}

/* A number of a call and what it is of. */
static double call_number(const char *call, const char *of)
{
    enum { BITS = 20 }; /* so that sums over 4,096 workers are exact */
    fl_hasher h;

    fl_hasher_init(&h, 0);
    fl_hasher_add(&h, call, strlen(call) + 1);
    fl_hasher_add(&h, of ? of : "", of ? strlen(of) : 0);
    return (double)(fl_hasher_end(&h) >> (64 - BITS));
}

/* Does any worker's call fail? Its own error is the caller's; the other
 * workers are told that there is one. Do all workers make this call, of this
 * thing? Numbers are all the same if their sum, and that of their squares,
 * is the sum of as many of this one. Ranks wait for each other, and so serve
 * the first one's command meanwhile. */
static fleet_status share(fleet *f, const char *call, const char *of,
                          const fl_error *error)
{
    const double n = f->role.worker_num, mine = call_number(call, of);
    double bad = error->code != FLEET_OK, sum[] = {bad, mine, mine * mine};

    FL_TRY(sum_over_workers(f, sum, 3));
    FL_TRY(fl_error_raise(error));
    if (sum[0] > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: %.0f of %d workers could not: their errors say why",
                       call, sum[0], f->role.worker_num);
    return sum[1] == n * mine && sum[2] == n * mine * mine
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "%s%s%s%s: another worker makes another call at this "
                         "time, or one of another name: all workers make such "
                         "calls together, and nothing was written",
                         call, of ? " of \"" : "", of ? of : "",
                         of ? "\"" : "");
}

/* Dense weights of now come with it. Ranks meet first: while they wait for each
 * other they serve one that has not come, and would not while they wait for
 * the servers. */
static fleet_status meet(fleet *f)
{
    fleet_status status = FLEET_OK;

    if (f->comm)
        FL_TRY(fl_ranks_barrier(f));
    if (!f->worker_io)
        return FLEET_OK;
    pthread_rwlock_wrlock(&f->store->lock);
    status = fl_store_to_host(f->store);
    if (status == FLEET_OK) {
        status = fl_worker_io_barrier(f->worker_io);
        fl_store_written(f->store);
    }
    pthread_rwlock_unlock(&f->store->lock);
    return status == FLEET_OK && f->comm ? fl_ranks_barrier(f) : status;
}

/* No other process has what this one has. */
static fleet_status write_alone(fleet *f, const char *call,
                                fl_call_writer *write, void *arg)
{
    if (fl_has_ranks(f) && f->role.worker_num > 1)
        return fl_fail(FLEET_ESTATE,
                       "%s: ranks write together, between fleet_init_worker() "
                       "and fleet_stop_worker()",
                       call);
    return write(arg);
}

fleet_status fl_call_together(fleet *f, const char *call, const char *of,
                              fleet_status mine, fl_call_writer *write,
                              void *arg)
{
    fl_error error;

    fl_error_take(&error, mine);
    if (!f->worker_io && !by_ranks(f))
        return mine == FLEET_OK ? write_alone(f, call, write, arg) : mine;
    FL_TRY(f->worker_io && !fl_worker_io_is_open(f->worker_io) &&
                   mine != FLEET_OK
               ? mine
               : meet(f));
    FL_TRY(share(f, call, of, &error));
    if (fleet_is_first_worker(f))
        fl_error_take(&error, write(arg));
    FL_TRY(share(f, call, of, &error));
    return meet(f);
}
