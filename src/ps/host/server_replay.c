/* server_replay.c - lanes made again by the functions of a server that has no
 * sockets. */
#include "ps/host/server_replay.h"

#include <poll.h>
#include <string.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "ps/journal/journal_reader.h"
#include "ps/host/server_internal.h"
#include "runtime/plan/job_signature.h"

struct fl_server_replay {
    fl_server *server; /* without sockets */
    fl_log_facts facts;
    fl_lane_runner *lane; /* that is made again; NULL: none yet */
};

/* --- what it says of itself ----------------------------------------------- */

static fleet_status read_count(const fl_at *root, const char *key, int64_t most,
                               int *out)
{
    fl_at at = fl_at_key(root, key);
    int64_t n = 0;

    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_int(&at, 1, most, &n));
    *out = (int)n;
    return FLEET_OK;
}

static fleet_status read_facts(const fl_at *root, fl_log_facts *facts)
{
    static const char sync[] = "ps-sync";
    fl_at at = fl_at_key(root, "mode");
    const char *mode = "";

    FL_TRY(read_count(root, "servers", FL_MOST_SERVER, &facts->n_server));
    FL_TRY(read_count(root, "workers", FL_MOST_STREAM, &facts->n_worker));
    FL_TRY(read_count(root, "lanes", FL_MOST_LANE, &facts->n_lane));
    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_string(&at, &mode));
    facts->sync = strncmp(mode, sync, sizeof sync - 1) == 0;
    return FLEET_OK;
}

/* What the server had begun with. */
static fleet_status read_beginning(fl_server *s, const fl_at *root)
{
    int format;

    FL_TRY(read_count(root, "format", INT32_MAX, &format));
    if (format != FL_SERVER_LOG_FORMAT)
        return fl_fail(FLEET_EUNSUPPORTED, "it is of format %d, expected %d",
                       format, (int)FL_SERVER_LOG_FORMAT);
    return fl_server_read_beginning(s, root);
}

/* s NULL: the facts alone. */
static fleet_status read_text(const fl_journal_folder *home, fl_server *s,
                              fl_log_facts *facts)
{
    fl_json *json = NULL;
    fleet_status status =
        fl_json_parse(home->text, strlen(home->text), "identity", &json);

    if (status == FLEET_OK) {
        fl_at root = fl_at_root(json);

        status = read_facts(&root, facts);
        if (status == FLEET_OK && s)
            status = read_beginning(s, &root);
    }
    fl_json_free(json);
    if (status == FLEET_OK || status == FLEET_ENOMEM)
        return status;
    return fl_fail_in(status == FLEET_EUNSUPPORTED ? status : FLEET_ECORRUPT,
                      "the log %s", home->folder);
}

static fleet_status open_home(fl_journal_folder *home, const char *folder,
                              int index)
{
    char name[24];

    fl_journal_folder_name(index, name);
    return fl_journal_folder_look(home, folder, name);
}

fleet_status fl_log_facts_read(const char *folder, int index,
                               fl_log_facts *facts)
{
    fl_journal_folder home = {.lock = -1};
    fleet_status status = open_home(&home, folder, index);

    if (status == FLEET_OK)
        status = read_text(&home, NULL, facts);
    fl_journal_folder_close(&home);
    return status;
}

/* --- life ----------------------------------------------------------------- */

static fleet_status make_all(fl_server_replay *r)
{
    fl_server *s = r->server;

    FL_TRY(open_home(&s->home, s->o.log.folder, s->o.index));
    FL_TRY(read_text(&s->home, s, &r->facts));
    s->o.n_server = r->facts.n_server;
    s->o.n_worker = r->facts.n_worker;
    s->o.n_lane = r->facts.n_lane;
    s->o.sync = r->facts.sync;
    s->o.log.level = FL_NO_LOG; /* it writes none */
    s->o.make_capped = NULL;    /* its rows are looked at, and not waited for */
    if (s->o.index >= s->o.n_server)
        return fl_fail(FLEET_ECORRUPT, "the log %s is of %d servers",
                       s->home.folder, s->o.n_server);
    FL_TRY(fl_packet_pool_create(&s->pool, 0));
    return fl_server_make_runners(s);
}

fleet_status fl_server_replay_open(fl_server_replay **replay,
                                   const fl_server_options *o)
{
    fleet_status status;
    fl_error error;

    FL_TRY(FL_NEW(replay, sizeof **replay));
    status = fl_server_begin(&(*replay)->server, o);
    if (status == FLEET_OK)
        status = make_all(*replay);
    fl_error_take(&error, status);
    if (status != FLEET_OK) {
        fl_server_replay_close(*replay);
        *replay = NULL;
    }
    return fl_error_raise(&error);
}

void fl_server_replay_close(fl_server_replay *r)
{
    if (!r)
        return;
    fl_server_destroy(r->server);
    fl_free(r);
}

const fl_log_facts *fl_server_replay_facts(const fl_server_replay *r)
{
    return &r->facts;
}

/* --- a lane --------------------------------------------------------------- */

/* It is done on a thread, as a server does it. */
static fleet_status finish_command(const fl_server_replay *r)
{
    fl_lane_runner *lane = r->lane;
    struct pollfd p = {.fd = lane->wakeup.fd, .events = POLLIN};

    while (lane->has_command) {
        if (!atomic_load(&lane->command_done))
            (void)poll(&p, 1, -1);
        fl_wakeup_clear(&lane->wakeup);
        fl_runner_end_command(lane);
    }
    return fl_error_raise(fl_lane_error(lane->lane));
}

static void forget_lane(fl_server_replay *r)
{
    fl_lane_runner *lane = r->lane;

    r->lane = NULL;
    if (!lane)
        return;
    fl_runner_done(lane);
    *lane = (fl_lane_runner){
        .server = r->server, .number = lane->number, .wakeup = {.fd = -1}};
}

static fleet_status make_lane(fl_server_replay *r)
{
    fl_server *s = r->server;

    FL_TRY(fl_server_make_store(s, r->lane));
    if (!s->program)
        s->program = fl_job_signature_text(r->lane->store);
    if (!s->program)
        return FLEET_ENOMEM;
    FL_TRY(fl_server_check_program(s));
    FL_TRY(fl_wakeup_create(&r->lane->wakeup));
    FL_TRY(fl_server_make_lane(s, r->lane));
    return fl_runner_open_log(r->lane);
}

fleet_status fl_server_replay_begin(fl_server_replay *r, int lane,
                                    fl_replay_lane *at)
{
    const fl_server *s = r->server;

    forget_lane(r);
    r->lane = &s->runner[lane];
    FL_TRY(make_lane(r));
    *at = (fl_replay_lane){.server = s->o.index,
                           .lane = lane,
                           .store = r->lane->store,
                           .layout = &r->lane->layout,
                           .own = &r->lane->own};
    fl_lane_begin_replay(r->lane->lane, 0);
    if (!s->load || r->lane->behind)
        return FLEET_OK;
    FL_TRY(fl_lane_replay_load(r->lane->lane, s->load));
    return finish_command(r);
}

fleet_status fl_server_replay_next(fl_server_replay *r,
                                   fl_journal_record *record, bool *more)
{
    fl_lane_runner *lane = r->lane;

    *more = false;
    while (lane->reader) {
        FL_TRY(fl_journal_next(lane->reader, record, more));
        if (*more)
            lane->last_kind = record->kind;
        if (*more || !lane->behind)
            return FLEET_OK;
        FL_TRY(fl_runner_log_behind(lane));
    }
    return FLEET_OK;
}

fleet_status fl_server_replay_apply(fl_server_replay *r,
                                    const fl_journal_record *record)
{
    FL_TRY(fl_lane_replay(r->lane->lane, record, 0));
    return finish_command(r);
}

int64_t fl_server_replay_version(const fl_server_replay *r)
{
    return fl_lane_version(r->lane->lane);
}

uint32_t fl_server_replay_run(const fl_server_replay *r)
{
    return atomic_load(&r->server->identity.run);
}
