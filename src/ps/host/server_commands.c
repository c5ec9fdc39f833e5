/* server_commands.c - what takes a lane long: saves, loads, sums over tables,
 * reads and writes of rows. A thread of its own does it, so that the lane's
 * goes on to look at its socket. */
#define _GNU_SOURCE
#include "ps/host/server_internal.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/store_hash.h"

enum { SAVE_NICE = 10 }; /* of the thread of a save beside training */

/* Rows that no update has made are not saved. A save beside training has the
 * store as it was, and not for itself. */
static fleet_status check_rows(const fl_lane_runner *r)
{
    for (int i = 0; i < r->layout.n_table; i++)
        FL_TRY(fl_lane_name_server(r->lane,
                                   fl_live_hash_check(r->layout.table[i])));
    return FLEET_OK;
}

static fleet_status run_command(fl_lane_runner *r)
{
    const fl_server_options *o = &r->server->o;

    if (r->command.kind == FL_COMMAND_HASH) {
        const fl_rows *rows = r->layout.table[r->command.table];

        FL_TRY(fl_lane_name_server(r->lane, fl_live_hash_check(rows)));
        r->command_rows = (uint64_t)rows->methods->count(rows);
        return fl_store_hash_rows(rows, &r->command_sum);
    }
    if (!r->command.text)
        return fl_fail(FLEET_EFORMAT, "a command without its text");
    if (r->command.kind == FL_COMMAND_SAVE && !r->command.beside_training)
        FL_TRY(check_rows(r));
    return o->command(o->command_arg, r->store, &r->own, o->index, r->number,
                      r->command.kind, r->command.text, &r->command_text);
}

static void *command_main(void *arg)
{
    fl_lane_runner *r = arg;

    if (r->command.beside_training) /* training comes first, if it may */
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), SAVE_NICE);
    fl_file_count(&r->progress);
    fl_spare_allow(r->server->descriptors.spare);
    r->command_status = run_command(r);
    fl_spare_allow(NULL);
    fl_file_count(NULL);
    if (r->command_status != FLEET_OK) {
        fl_free(r->command_text);
        r->command_text = fl_strdup(fleet_last_error());
    }
    atomic_store(&r->command_done, true);
    fl_wakeup_ring(&r->wakeup);
    return NULL;
}

static const char *const command_name[] = {[FL_COMMAND_SAVE] = "a save",
                                           [FL_COMMAND_LOAD] = "a load",
                                           [FL_COMMAND_HASH] = "a params_hash",
                                           [FL_COMMAND_READ] = "a read",
                                           [FL_COMMAND_WRITE] = "a write"};

static fleet_status start_thread(fl_lane_runner *r)
{
    fleet_status status;

    r->command_text = NULL;
    r->command_sum = r->command_rows = 0;
    atomic_store(&r->command_done, false);
    status = fl_thread_start(&r->command_thread, command_main, r,
                             command_name[r->command.kind]);
    r->has_command = status == FLEET_OK;
    return status;
}

fleet_status fl_runner_begin_command(void *arg, const fl_lane_command *command)
{
    fl_lane_runner *r = arg;
    fleet_status status;

    if (command->beside_training)
        FL_TRY(fl_snapshot_begin(r->store, fl_lane_version(r->lane),
                                 command->done, r->server->o.n_worker));
    r->command = *command;
    status = start_thread(r);
    if (status != FLEET_OK)
        fl_snapshot_end(r->store);
    return status;
}

fleet_status fl_runner_begin_load(fl_lane_runner *r)
{
    fl_lane_begin_load(r->lane, fl_now_ms());
    r->command =
        (fl_lane_command){.kind = FL_COMMAND_LOAD, .text = r->server->load};
    return start_thread(r);
}

uint64_t fl_runner_progress(void *arg)
{
    fl_lane_runner *r = arg;

    return atomic_load(&r->progress.bytes) +
           (r->cuts ? fl_journal_bytes(r->snapshot) : 0) +
           (r->copy ? fl_lane_counted(r->lane).replicated : 0);
}

/* Each lane reads the save, and its journal, for itself. */
bool fl_runner_is_loading(void *arg, uint64_t *bytes, uint64_t *total)
{
    const fl_server *s = ((fl_lane_runner *)arg)->server;
    bool any = false, known = true;

    *bytes = *total = 0;
    for (int i = 0; (s->load || s->comes_back) && i < s->n_runner; i++) {
        fl_lane_runner *r = &s->runner[i];
        uint64_t of = atomic_load(&r->progress.total);

        any = any || atomic_load(&r->loads) || atomic_load(&r->replays);
        known = known && (of > 0 || !atomic_load(&r->loads));
        *bytes += atomic_load(&r->progress.bytes) + atomic_load(&r->read);
        *total += of + r->total;
    }
    if (!known)
        *total = 0;
    return any;
}

/* When the lane knows, it may begin the next one. */
void fl_runner_end_command(fl_lane_runner *r)
{
    fleet_status status;
    char *text;

    if (r->has_command && fl_lane_error(r->lane)->code != FLEET_OK)
        atomic_store(&r->progress.stop, true);
    if (!r->has_command || !atomic_load(&r->command_done))
        return;
    pthread_join(r->command_thread, NULL);
    r->has_command = false;
    fl_snapshot_end(r->store);
    status = r->command_status;
    r->wants_cut = /* or the save must stay as long as the log */
        r->wants_cut ||
        (status == FLEET_OK && r->command.kind == FL_COMMAND_LOAD);
    text = r->command_text;
    r->command_text = NULL;
    fl_lane_command_done(r->lane, status, text, r->command_sum, r->command_rows,
                         fl_now_ms());
    fl_free(text);
    if (status == FLEET_OK) /* the first is the load */
        atomic_store(&r->loads, false);
}
