/* server_log.c - a server's journals: what it says of itself in their folder,
 * and how a process that finds the folder of one that has died takes its
 * place. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "ps/aggregate/lane_record.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/log_end.h"
#include "ps/host/server_internal.h"
#include "runtime/simd/simd.h"
#include "runtime/plan/job_signature.h"

/* Until a lane that is made again looks at its socket. */
enum { REPLAY_MS = 5 };

/* --- the text ------------------------------------------------------------- */

static uint64_t program_hash(const fl_server *s)
{
    return fl_hash(s->program, strlen(s->program), 0);
}

/* What has to be the same in the process that comes back. */
static fleet_status put_job(const fl_server *s, fl_json *json)
{
    const fl_server_options *o = &s->o;

    FL_TRY(fl_json_put(json, "format", fl_json_int(FL_SERVER_LOG_FORMAT)));
    FL_TRY(fl_json_put(json, "job", fl_json_string(o->job)));
    FL_TRY(fl_json_put(json, "server", fl_json_int(o->index)));
    FL_TRY(fl_json_put(json, "servers", fl_json_int(o->n_server)));
    FL_TRY(fl_json_put(json, "workers", fl_json_int(o->n_worker)));
    FL_TRY(fl_json_put(json, "lanes", fl_json_int(o->n_lane)));
    FL_TRY(fl_json_put(json, "address", fl_json_string(o->address)));
    FL_TRY(fl_json_put(json, "mode", fl_json_string(o->mode)));
    FL_TRY(fl_json_put(json, "isa", fl_json_string(fl_simd_best()->isa)));
    return fl_json_put(json, "program", fl_json_hex(program_hash(s)));
}

/* What it takes over. */
static fleet_status put_process(const fl_server *s, fl_json *json)
{
    fl_json *ports;

    FL_TRY(fl_json_put(json, "nonce", fl_json_int(s->identity.nonce)));
    FL_TRY(fl_json_put(
        json, "run",
        fl_json_int(s->o.index == 0 ? atomic_load(&s->identity.run) : 0)));
    FL_TRY(fl_json_put(json, "mark", fl_json_int(s->mark)));
    FL_TRY(fl_json_put(json, "sockets", fl_json_string(s->folder.path)));
    if (s->load)
        FL_TRY(fl_json_put(json, "load", fl_json_string(s->load)));
    FL_TRY(fl_json_put_array(json, "ports", &ports));
    for (int i = 0; i < s->o.n_lane; i++)
        FL_TRY(fl_json_append(ports, fl_json_int(s->port[i])));
    return FLEET_OK;
}

static fleet_status print_text(fl_server *s)
{
    fl_json *json = fl_json_object();
    fleet_status status = put_job(s, json);

    if (status == FLEET_OK)
        status = put_process(s, json);
    s->home.text = status == FLEET_OK ? fl_json_print(json, false) : NULL;
    fl_json_free(json);
    return s->home.text ? FLEET_OK : FLEET_ENOMEM;
}

/* --- whose the folder is -------------------------------------------------- */

static fleet_status is_another(const fl_server *s, const char *what,
                               const char *theirs, const char *ours)
{
    return fl_fail(FLEET_EEXIST,
                   "the log %s is of %s %s, which has not ended, and this "
                   "server of %s: expected the same, or another folder "
                   "(log_configs.folder, FLEET_LOG_FOLDER). If that job is "
                   "over, say so: fleet-replay --end %s; then this one begins "
                   "anew",
                   s->home.folder, what, theirs, ours, s->o.log.folder);
}

static fleet_status check_text(const fl_server *s, const fl_at *root,
                               const char *key, const char *ours)
{
    fl_at at = fl_at_key(root, key);
    const char *theirs = "";

    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_string(&at, &theirs));
    return strcmp(theirs, ours) == 0 ? FLEET_OK
                                     : is_another(s, key, theirs, ours);
}

static fleet_status check_number(const fl_server *s, const fl_at *root,
                                 const char *key, int64_t ours)
{
    fl_at at = fl_at_key(root, key);
    char mine[24], other[24];
    int64_t theirs = -1;

    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_int(&at, 0, INT32_MAX, &theirs));
    snprintf(mine, sizeof mine, "%" PRId64, ours);
    snprintf(other, sizeof other, "%" PRId64, theirs);
    return theirs == ours ? FLEET_OK : is_another(s, key, other, mine);
}

static fleet_status check_job(const fl_server *s, const fl_at *root)
{
    const fl_server_options *o = &s->o;

    FL_TRY(check_number(s, root, "format", FL_SERVER_LOG_FORMAT));
    FL_TRY(check_text(s, root, "job", o->job));
    FL_TRY(check_number(s, root, "server", o->index));
    FL_TRY(check_number(s, root, "servers", o->n_server));
    FL_TRY(check_number(s, root, "workers", o->n_worker));
    FL_TRY(check_number(s, root, "lanes", o->n_lane));
    FL_TRY(check_text(s, root, "address", o->address));
    return check_text(s, root, "mode", o->mode);
}

/* Rounding is that of the vectors' width. */
static fleet_status warn_of_isa(const fl_server *s, const fl_at *root)
{
    fl_at at = fl_at_key(root, "isa");
    const char *isa = "";

    FL_TRY(fl_at_string(&at, &isa));
    if (strcmp(isa, fl_simd_best()->isa) != 0)
        FL_WARN(&s->o.context->log,
                "server %d: the log %s was written with %.20s, this process "
                "computes with %s: bits may differ from those before",
                s->o.index, s->home.folder, isa, fl_simd_best()->isa);
    return FLEET_OK;
}

static fleet_status read_number(const fl_at *root, const char *key,
                                uint32_t *out)
{
    fl_at at = fl_at_key(root, key);
    int64_t x = 0;

    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_int(&at, 0, UINT32_MAX, &x));
    *out = (uint32_t)x;
    return FLEET_OK;
}

static fleet_status read_ports(fl_server *s, const fl_at *root)
{
    fl_at list = fl_at_key(root, "ports");
    int i = 0;

    FL_TRY(fl_at_array(&list));
    for (fl_at e = fl_at_first(&list); e.json && i < s->o.n_lane;
         fl_at_next(&list, &e), i++) {
        int64_t port = 0;

        FL_TRY(fl_at_int(&e, 0, 65535, &port));
        s->port[i] = (int)port;
    }
    return FLEET_OK;
}

/* What it begins with is what the process before had begun with, whatever is
 * the newest save by now. */
fleet_status fl_server_read_beginning(fl_server *s, const fl_at *root)
{
    fl_at at = fl_at_key(root, "load"), program = fl_at_key(root, "program");
    const char *load = NULL;
    uint32_t run = 0;

    FL_TRY(read_number(root, "run", &run));
    atomic_store(&s->identity.run, run);
    FL_TRY(fl_at_hex(&program, &s->program_before));
    FL_TRY(fl_at_string(&at, &load));
    fl_free(s->load);
    s->load = load ? fl_strdup(load) : NULL;
    return load && !s->load ? FLEET_ENOMEM : FLEET_OK;
}

static fleet_status read_process(fl_server *s, const fl_at *root)
{
    fl_at at = fl_at_key(root, "sockets");
    const char *sockets = "";
    uint32_t nonce = 0;

    FL_TRY(check_job(s, root));
    FL_TRY(warn_of_isa(s, root));
    FL_TRY(read_number(root, "nonce", &nonce));
    atomic_store(&s->identity.nonce, nonce);
    FL_TRY(read_number(root, "mark", &s->mark));
    FL_TRY(read_ports(s, root));
    FL_TRY(fl_server_read_beginning(s, root));
    FL_TRY(fl_at_string(&at, &sockets));
    return *sockets ? fl_ipc_folder_again(&s->folder, sockets) : FLEET_OK;
}

/* No training is lost. It has ended before it is cleared: one may crash. */
static fleet_status begin_anew(fl_server *s)
{
    FL_TRY(fl_journal_folder_end(&s->home));
    FL_INFO(&s->o.context->log,
            "server %d: the log %s is of an earlier job, which has trained "
            "nothing: it begins anew",
            s->o.index, s->home.folder);
    fl_free(s->home.text);
    s->home.text = NULL;
    s->comes_back = false;
    atomic_store(&s->identity.run, 0);
    if (!s->o.follows)
        fl_server_draw_identity(s);
    return fl_server_set_load(s);
}

static fleet_status take_over(fl_server *s)
{
    fl_json *json = NULL;
    fleet_status status =
        fl_json_parse(s->home.text, strlen(s->home.text), "identity", &json);

    if (status == FLEET_OK) {
        fl_at root = fl_at_root(json);

        status = read_process(s, &root);
    }
    fl_json_free(json);
    if (status == FLEET_EEXIST && fl_server_log_is_unused(s))
        return begin_anew(s);
    if (status == FLEET_OK || status == FLEET_ENOMEM)
        return status;
    return fl_fail_in(status == FLEET_ECONFIG ? FLEET_ECORRUPT : status,
                      "server %d, %s", s->o.index, s->home.folder);
}

fleet_status fl_server_log_open(fl_server *s)
{
    const fl_server_log_options *log = &s->o.log;
    char name[24], what[32];

    if (log->level == FL_NO_LOG)
        return FLEET_OK;
    if (s->o.host)
        return fl_guest_log_open(s);
    fl_journal_folder_name(s->o.index, name);
    snprintf(what, sizeof what, "server %d", s->o.index);
    FL_TRY(fl_journal_folder_open(&s->home, log->folder, name, what));
    s->comes_back = s->home.text != NULL;
    return s->comes_back ? take_over(s) : FLEET_OK;
}

/* --- writing -------------------------------------------------------------- */

bool fl_server_log_flushes(const fl_server *s)
{
    return s->o.log.level == FL_LOG_SURVIVES_POWER;
}

fleet_status fl_server_log_write(const fl_server *s, const char *folder,
                                 uint32_t file, uint64_t lsn,
                                 fl_journal_writer **writer)
{
    const fl_journal_options o = {.folder = folder,
                                  .text = s->home.text,
                                  .first_file = file,
                                  .first_lsn = lsn,
                                  .roll_bytes = s->o.log.file_bytes,
                                  .level = fl_server_log_flushes(s)
                                               ? FL_JOURNAL_SURVIVES_POWER
                                               : FL_JOURNAL_SURVIVES_PROCESS};

    return fl_journal_writer_create(writer, &o);
}

static fleet_status begin_journal(fl_lane_runner *r, fl_journal_end at)
{
    const fl_server *s = r->server;
    char *folder = fl_journal_folder_lane(&s->home, r->number);
    fleet_status status =
        folder ? fl_server_log_write(s, folder, at.file, at.lsn, &r->journal)
               : FLEET_ENOMEM;

    fl_free(folder);
    return status;
}

static fleet_status put(void *arg, uint16_t kind, const fl_journal_part *part,
                        size_t n)
{
    const fl_lane_runner *r = arg;

    return r->journal
               ? fl_journal_put(r->journal, kind, part, n)
               : fl_fail(FLEET_ESTATE, "its log is another process's by now");
}

static fleet_status commit(void *arg)
{
    const fl_lane_runner *r = arg;

    return r->journal ? fl_journal_commit(r->journal) : FLEET_OK;
}

fl_journal_sink fl_runner_journal(fl_lane_runner *r)
{
    return r->server->o.log.level == FL_NO_LOG
               ? (fl_journal_sink){0}
               : (fl_journal_sink){r, put, commit};
}

/* The same program: the lanes would not be the same. */
fleet_status fl_server_check_program(const fl_server *s)
{
    const bool back = s->comes_back;

    return s->program_before == program_hash(s)
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "server %d %s another program than the one that has "
                         "written the log %s%s%s",
                         s->o.index, back ? "comes back with" : "is read by",
                         s->home.folder,
                         back ? ": if that job is over, say so: fleet-replay "
                                "--end "
                              : "",
                         back ? s->o.log.folder : "");
}

/* Its first file is made before the identity: so one that is missing was
 * lost. */
static fleet_status begin_first(fl_lane_runner *r)
{
    uint32_t file;

    FL_TRY(begin_journal(r, (fl_journal_end){.lsn = 1, .file = 1}));
    return fl_journal_roll(r->journal, &file);
}

fleet_status fl_server_log_begin(fl_server *s)
{
    if (s->o.log.level == FL_NO_LOG)
        return FLEET_OK;
    if (s->o.host)
        return fl_server_check_program(s);
    if (s->comes_back) {
        fleet_status status = fl_server_check_program(s);

        if (status == FLEET_OK || !fl_server_log_is_unused(s))
            return status;
        FL_TRY(begin_anew(s));
    }
    FL_TRY(print_text(s));
    FL_TRY(fl_journal_folder_clear(&s->home, s->o.n_lane));
    for (int i = 0; i < s->o.n_lane; i++)
        FL_TRY(begin_first(&s->runner[i]));
    return fl_journal_folder_begin(&s->home, s->home.text);
}

/* The job is over: servers that have died do not come back, and lanes that have
 * gone from this one are made again by none. */
static void end_for_all(const fl_server *s)
{
    fl_server_forget_homes(s);
    fl_log_end_dead(s->o.log.folder, s->o.job, atomic_load(&s->identity.run),
                    &s->o.context->log);
}

/* One that could not come back has not ended: what is the matter may be
 * mended. */
void fl_server_log_end(fl_server *s)
{
    bool fails = s->failed.code != FLEET_OK || atomic_load(&s->stop);

    if (s->o.log.level == FL_NO_LOG || s->o.host || s->failed_to_load)
        return;
    if (fl_journal_folder_end(&s->home) != FLEET_OK)
        FL_WARN(&s->o.context->log,
                "server %d: that it has ended is not in its log: %s",
                s->o.index, fleet_last_error());
    else if (fails)
        end_for_all(s);
}

void fl_runner_log_done(fl_lane_runner *r)
{
    fl_journal_reader_close(r->reader);
    fl_journal_reader_close(r->behind);
    fl_journal_writer_destroy(r->journal);
    fl_journal_writer_destroy(r->snapshot);
}

/* --- reading -------------------------------------------------------------- */

/* From that file on. */
static fleet_status open_one(const fl_server *s, const char *folder,
                             uint32_t first, fl_journal_reader **reader)
{
    fleet_status status = fl_journal_reader_open_at(reader, folder, first);
    const char *text = *reader ? fl_journal_reader_text(*reader) : "";

    if (status == FLEET_ENOENT) /* each has its first file from its start on */
        status = fl_fail(FLEET_ECORRUPT,
                         "the log %s has no files: expected journal-%08u and "
                         "those behind it",
                         folder, (unsigned)first);
    if (status == FLEET_OK && *text && strcmp(text, s->home.text) != 0)
        status = fl_fail(FLEET_ECORRUPT,
                         "the log %s is of another process than %s says",
                         folder, s->home.folder);
    return status;
}

/* The newest snapshot, and what was done behind it. */
static fleet_status open_both(fl_lane_runner *r, const char *folder)
{
    uint32_t first;
    char *snapshot;
    fleet_status status;

    FL_TRY(fl_journal_newest(folder, &first));
    FL_TRY(open_one(r->server, folder, first > 0 ? first : 1, &r->reader));
    if (first == 0)
        return FLEET_OK;
    r->behind = r->reader;
    r->reader = NULL;
    snapshot = fl_journal_snapshot(folder, first);
    status =
        snapshot ? open_one(r->server, snapshot, 1, &r->reader) : FLEET_ENOMEM;
    fl_free(snapshot);
    return status;
}

static uint64_t bytes_of(const fl_journal_reader *reader)
{
    uint64_t bytes, total = 0;

    if (reader)
        fl_journal_reader_progress(reader, &bytes, &total);
    return total;
}

fleet_status fl_runner_open_log(fl_lane_runner *r)
{
    char *folder = fl_journal_folder_lane(&r->server->home, r->number);
    fleet_status status = folder ? open_both(r, folder) : FLEET_ENOMEM;

    fl_free(folder);
    FL_TRY(status);
    r->total = bytes_of(r->reader) + bytes_of(r->behind);
    r->cut_bytes = r->behind ? (int64_t)bytes_of(r->reader) : 0;
    r->cut_at = -(int64_t)bytes_of(r->behind ? r->behind : r->reader);
    return FLEET_OK;
}

static void give_up(fl_lane_runner *r, fleet_status status)
{
    r->gave_up = true; /* its lane says so to workers */
    fl_lane_end_replay(r->lane, status, fleet_last_error(), fl_now_ms());
}

static fleet_status begin_replay(fl_lane_runner *r)
{
    FL_TRY(fl_lane_name_server(r->lane, fl_runner_open_log(r)));
    if (r->server->load && !r->behind)
        return fl_lane_replay_load(r->lane, r->server->load);
    atomic_store(&r->loads, false);
    return FLEET_OK;
}

void fl_runner_begin_replay(fl_lane_runner *r)
{
    fleet_status status;

    atomic_store(&r->replays, true);
    fl_lane_begin_replay(r->lane, fl_now_ms());
    status = begin_replay(r);
    if (status != FLEET_OK)
        give_up(r, status);
}

void fl_runner_begin_gone(fl_lane_runner *r)
{
    r->is_read = true;
    atomic_store(&r->loads, false);
    atomic_store(&r->replays, true);
    fl_lane_begin_replay(r->lane, fl_now_ms());
}

static fleet_status replay_some(fl_lane_runner *r, bool *more)
{
    int64_t end_ms = fl_now_ms() + REPLAY_MS;
    fl_journal_record record;
    uint64_t total;

    *more = r->reader != NULL;
    while (*more && !fl_lane_replay_waits(r->lane) && fl_now_ms() < end_ms) {
        uint64_t bytes;

        FL_TRY(fl_lane_name_server(r->lane,
                                   fl_journal_next(r->reader, &record, more)));
        if (*more)
            FL_TRY(fl_lane_replay(r->lane, &record, fl_now_ms()));
        fl_journal_reader_progress(r->reader, &bytes, &total);
        atomic_store(&r->read, r->past + bytes);
        r->records += *more;
        if (*more)
            r->last_kind = record.kind;
    }
    return FLEET_OK;
}

/* It has its snapshot. */
fleet_status fl_runner_log_behind(fl_lane_runner *r)
{
    if (r->last_kind != FL_LANE_RECORD_WHOLE)
        return fl_lane_name_server(
            r->lane,
            fl_fail(FLEET_ECORRUPT, "the snapshot of its log has no end"));
    r->past = bytes_of(r->reader);
    fl_journal_reader_close(r->reader);
    r->reader = r->behind;
    r->behind = NULL;
    return FLEET_OK;
}

/* It goes on writing where the process before has stopped. */
static fleet_status finish_reading(fl_lane_runner *r)
{
    const fl_server *s = r->server;
    fl_journal_end end = fl_journal_reader_end(r->reader);

    if (*end.cut)
        FL_WARN(&s->o.context->log, "server %d, lane %d: the log %s",
                s->o.index, r->number, end.cut);
    FL_TRY(begin_journal(r, end));
    fl_journal_reader_close(r->reader);
    r->reader = NULL;
    r->is_read = true;
    if (atomic_fetch_sub(&r->server->n_reading, 1) == 1)
        fl_server_ring(r->server);
    return FLEET_OK;
}

static void end_replay(fl_lane_runner *r)
{
    const fl_server *s = r->server;

    fl_lane_end_replay(r->lane, FLEET_OK, NULL, fl_now_ms());
    atomic_store(&r->replays, false);
    if (r->gone_view)
        return;
    FL_INFO(&s->o.context->log,
            "server %d, lane %d is back, at update %" PRId64 ": %" PRIu64
            " records of its log (%.1f MB) were applied in %.2f s",
            s->o.index, r->number, fl_lane_version(r->lane), r->records,
            (double)r->total * 1e-6,
            (double)(fl_now_ms() - s->began_ms) / 1000);
}

static fleet_status go_on(fl_lane_runner *r)
{
    bool more = true;

    if (r->is_read || fl_lane_replay_waits(r->lane))
        return FLEET_OK;
    FL_TRY(replay_some(r, &more));
    if (more || fl_lane_replay_waits(r->lane))
        return FLEET_OK;
    return r->behind ? fl_runner_log_behind(r) : finish_reading(r);
}

void fl_runner_replay(fl_lane_runner *r)
{
    const fl_error *error = fl_lane_error(r->lane);
    fleet_status status;

    if (!atomic_load(&r->replays) || r->gave_up)
        return;
    status = error->code != FLEET_OK ? fl_error_raise(error) : go_on(r);
    if (status != FLEET_OK)
        give_up(r, status);
    else if (atomic_load(&r->server->n_reading) == 0)
        end_replay(r);
}

bool fl_runner_reads(const fl_lane_runner *r)
{
    return atomic_load(&r->replays) && !r->gave_up && !r->is_read &&
           !fl_lane_replay_waits(r->lane);
}
