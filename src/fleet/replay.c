/* replay.c - fleet_replay_log(): lanes made again from their logs, one after
 * the other, each of which then writes its part of a checkpoint. */
#include <inttypes.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/checkpoint.h"
#include "fleet/replay_look.h"
#include "fleet/save_part.h"
#include "fleet/servers.h"

typedef struct replay {
    fleet *f;
    const fleet_replay_options *o;
    fleet_replay_result *result;
    fl_log_facts facts;   /* the same of all servers, but for lanes */
    uint32_t run;         /* of the job, that server 0 says; 0: not known yet */
    fl_server_replay *of; /* the server that is read */
    fl_replay_lane at;
    fl_replay_before before;
    int64_t first; /* updates that the lane had as its log began; -1: none */
    int64_t least; /* that any lane has come to; -1: none yet */
    bool ends;     /* the lane has come to what was asked for */
} replay;

/* --- what is said --------------------------------------------------------- */

static void say_line(const replay *r, const char *line)
{
    if (r->o->say)
        r->o->say(r->o->user, line);
    else
        FL_INFO(&r->f->context.log, "%s", line);
}

/* The first line is of that lane. */
static fleet_status say_lines(const replay *r, fl_text *text)
{
    char *line = text->chars, *end;
    fl_text first = {0};

    FL_TRY(text->status);
    end = strchr(line, '\n');
    if (end)
        *end = 0;
    fl_text_add(&first, "server %d, lane %d, %s", r->at.server, r->at.lane,
                line);
    say_line(r, fl_text_chars(&first));
    fl_text_done(&first);
    while (end && end[1]) {
        line = end + 1;
        end = strchr(line, '\n');
        if (end)
            *end = 0;
        say_line(r, line);
    }
    return FLEET_OK;
}

static fleet_status say_changes(const replay *r,
                                const fl_journal_record *record)
{
    fl_text text = {0};
    fleet_status status = fl_replay_whose(record, &text);

    fl_text_add(&text, "\n");
    if (status == FLEET_OK)
        status = fl_replay_changes(&r->before, &r->at, record, &text);
    if (status == FLEET_OK)
        status = say_lines(r, &text);
    fl_text_done(&text);
    return status;
}

static bool is_update(const fl_journal_record *record)
{
    return record->kind == FL_LANE_RECORD_UPDATE;
}

/* Behind the record. Which update it was: a load is behind one. */
static fleet_status find_nonfinite(replay *r, const fl_journal_record *record)
{
    bool updates = record && is_update(record);
    int64_t version = fl_server_replay_version(r->of);
    fl_text where = {0}, text = {0};
    fleet_status status =
        fl_replay_nonfinite(&r->at, updates ? record : NULL, &where);

    if (status == FLEET_OK && where.length > 0) {
        r->ends = true;
        if (r->result->nan_update == 0 || version < r->result->nan_update)
            r->result->nan_update = version > 0 ? version : 1;
        if (updates)
            status = fl_replay_whose(record, &text);
        else
            fl_text_add(&text, "what it began with or loaded");
        fl_text_add(&text, ": not finite: %s", fl_text_chars(&where));
        if (status == FLEET_OK)
            status = say_lines(r, &text);
    }
    fl_text_done(&where);
    fl_text_done(&text);
    return status;
}

/* --- a lane --------------------------------------------------------------- */

/* What may have changed all weights at once. */
static bool brings_all(const fl_journal_record *record)
{
    return record->kind == FL_LANE_RECORD_WHOLE ||
           record->kind == FL_LANE_RECORD_COMMAND;
}

static fleet_status apply_record(replay *r, const fl_journal_record *record)
{
    int64_t update = fl_server_replay_version(r->of) + 1;
    bool shows = is_update(record) && update == r->o->show_update;

    if (shows)
        FL_TRY(fl_replay_note(&r->before, &r->at, record));
    FL_TRY(fl_server_replay_apply(r->of, record));
    r->result->records++;
    if (is_update(record) && r->first < 0)
        r->first = update;
    if (shows)
        FL_TRY(say_changes(r, record));
    if (r->o->until_nan && (is_update(record) || brings_all(record)))
        FL_TRY(find_nonfinite(r, record));
    return FLEET_OK;
}

static fleet_status check_reached(const replay *r, int64_t asked)
{
    int64_t version = fl_server_replay_version(r->of);

    if (r->first < 0)
        return fl_fail(FLEET_EINVAL,
                       "update %" PRId64 ": the log of server %d, lane %d has "
                       "no updates behind %" PRId64,
                       asked, r->at.server, r->at.lane, version);
    return fl_fail(FLEET_EINVAL,
                   "update %" PRId64 ": the log of server %d, lane %d has "
                   "those from %" PRId64 " to %" PRId64
                   ": expected one of them",
                   asked, r->at.server, r->at.lane, r->first, version);
}

/* The lane is as one of its updates has left it: the last one before a snapshot
 * may be what is asked for, too. */
static bool is_version(const fl_journal_record *record)
{
    return is_update(record) || record->kind == FL_LANE_RECORD_WHOLE;
}

/* Then none is asked for that comes after it. 0 is no update, though a snapshot
 * may be as of none. */
static bool is_last(const replay *r)
{
    int64_t version = fl_server_replay_version(r->of);

    return version > 0 &&
           (version == r->o->to_update || version == r->result->nan_update);
}

static fleet_status replay_lane(replay *r, int lane)
{
    fl_journal_record record;
    int64_t to = r->o->to_update, version;
    bool more = true;

    r->first = -1;
    r->ends = false;
    FL_TRY(fl_server_replay_begin(r->of, lane, &r->at));
    if (r->o->until_nan)
        FL_TRY(find_nonfinite(r, NULL));
    while (more && !r->ends) {
        FL_TRY(fl_server_replay_next(r->of, &record, &more));
        if (more)
            FL_TRY(apply_record(r, &record));
        r->ends = r->ends || (more && is_version(&record) && is_last(r));
    }
    version = fl_server_replay_version(r->of);
    if (to > 0 && !r->ends)
        return check_reached(r, to);
    if (r->o->show_update > 0 && !r->o->until_nan &&
        (r->first < 0 || r->o->show_update < r->first ||
         r->o->show_update > version))
        return check_reached(r, r->o->show_update);
    if (version > r->result->update)
        r->result->update = version;
    if (r->least < 0 || version < r->least)
        r->least = version;
    return FLEET_OK;
}

/* --- all of them ---------------------------------------------------------- */

/* Of lanes' parts of the checkpoint. */
typedef struct replay_save {
    const fl_save *save;
    const char *request; /* what worker 0 would tell lanes */
    fl_json *list;
} replay_save;

/* How unknown rows begin may be a load's: the manifest says it of the handle's
 * tables. */
static void take_fillers(const replay *r, const fl_save *save)
{
    for (int i = 0; i < save->n_table; i++)
        save->table[i]->filler =
            fl_store_rows(r->at.store, save->table[i]->name)->filler;
}

static fleet_status write_lane(const replay *r, const replay_save *s)
{
    char *answer = NULL;
    fleet_status status =
        fl_save_part_of_lane(r->f, r->at.store, r->at.own, r->at.server,
                             r->at.lane, FL_COMMAND_SAVE, s->request, &answer);

    if (status == FLEET_OK)
        status = fl_save_part_answer(s->save, answer, s->list);
    if (status == FLEET_OK)
        take_fillers(r, s->save);
    fl_free(answer);
    return status;
}

/* Behind a lane, whose server knows its run by then. */
static fleet_status check_run(replay *r)
{
    uint32_t run = fl_server_replay_run(r->of);

    if (r->run == 0)
        r->run = run;
    return run == 0 || run == r->run
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "the log of server %d is of another job than that of "
                         "server 0, or of another run of it: expected the logs "
                         "of one job",
                         r->at.server);
}

/* Lanes of a job that was killed end where they were. */
static fleet_status check_together(const replay *r, const replay_save *s)
{
    return !s || !r->facts.sync || r->least == r->result->update
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "the logs end at updates from %" PRId64 " to %" PRId64
                         ": expected to_update %" PRId64
                         " or less, which all lanes have made",
                         r->least, r->result->update, r->least);
}

static fleet_status replay_server(replay *r, const replay_save *s)
{
    const int n_lane = fl_server_replay_facts(r->of)->n_lane;

    for (int i = 0; i < n_lane; i++) {
        FL_TRY(replay_lane(r, i));
        FL_TRY(check_run(r));
        FL_TRY(check_together(r, s));
        if (s)
            FL_TRY(write_lane(r, s));
    }
    return FLEET_OK;
}

static const char *order_of(const fl_log_facts *facts)
{
    return facts->sync ? "sync" : "async";
}

/* Before the first of them is made again, which takes its time. */
static fleet_status check_logs(replay *r)
{
    const fl_log_facts *all = &r->facts;
    fl_log_facts one;

    FL_TRY(fl_log_facts_read(r->o->log, 0, &r->facts));
    for (int i = 1; i < all->n_server; i++) {
        FL_TRY(fl_log_facts_read(r->o->log, i, &one));
        if (one.n_server != all->n_server || one.n_worker != all->n_worker ||
            one.sync != all->sync)
            return fl_fail(FLEET_EINVAL,
                           "the log of server %d is of a job with %d servers "
                           "and %d workers in %s, that of server 0 of one with "
                           "%d and %d in %s: expected the logs of one job",
                           i, one.n_server, one.n_worker, order_of(&one),
                           all->n_server, all->n_worker, order_of(all));
    }
    return FLEET_OK;
}

static fleet_status replay_all(replay *r, const replay_save *s)
{
    fl_server_options o = fl_servers_options(r->f);

    o.ranks = false;
    o.log = (fl_server_log_options){.folder = r->o->log};
    r->least = -1;
    for (o.index = 0; o.index < r->facts.n_server; o.index++) {
        fleet_status status;

        FL_TRY(fl_server_replay_open(&r->of, &o));
        status = replay_server(r, s);
        fl_server_replay_close(r->of);
        r->of = NULL;
        FL_TRY(status);
    }
    return FLEET_OK;
}

/* --- a checkpoint --------------------------------------------------------- */

static fleet_status write_parts(void *arg, const fl_save *save,
                                const char *folder, fl_json *list)
{
    replay_save s = {.save = save, .list = list};
    char *request;
    fleet_status status;

    FL_TRY(fl_save_part_request(save, folder, &request));
    s.request = request;
    status = replay_all(arg, &s);
    fl_free(request);
    return status;
}

/* The handle's tables stay as they are. A server's store is in no save but
 * this, whose lanes are at hand. */
static fleet_status write_all(replay *r, fl_save *s)
{
    const fl_map *tables = &r->f->store->tables;
    const bool joins = r->f->store->joins;
    fl_filler *own = fl_alloc_array(tables->n + 1, sizeof *own);
    fleet_status status;

    if (!own)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < tables->n; i++)
        own[i] = ((const fl_rows *)tables->entry[i].value)->filler;
    r->f->store->joins = false;
    status = fl_checkpoint_write(r->f, s, NULL, NULL, r->o->save);
    r->f->store->joins = joins;
    for (size_t i = 0; i < tables->n; i++)
        ((fl_rows *)tables->entry[i].value)->filler = own[i];
    fl_free(own);
    return status;
}

static fleet_status write_checkpoint(replay *r)
{
    fl_save_elsewhere elsewhere = {.write = write_parts, .arg = r};
    fl_save s = {.states = true, .what = "checkpoint", .elsewhere = &elsewhere};
    fleet_status status = FLEET_ENOMEM;

    FL_TRY(FL_NEW(&elsewhere.rows,
                  (r->f->store->tables.n + 1) * sizeof *elsewhere.rows));
    elsewhere.cuts = fl_json_array();
    if (elsewhere.cuts)
        status = write_all(r, &s);
    fl_json_free(elsewhere.cuts);
    fl_free(elsewhere.rows);
    return status;
}

static fleet_status check_options(const fleet *f, const fleet_replay_options *o)
{
    FL_TRY(fl_handle_check(f, "fleet_replay_log"));
    if (!o || !o->log || !*o->log)
        return fl_fail(FLEET_EINVAL, "fleet_replay_log: expected a `log`, the "
                                     "folder of the job's logs");
    if (o->to_update < 0 || o->show_update < 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_replay_log: update %" PRId64
                       ": they are numbered from 1",
                       o->to_update < 0 ? o->to_update : o->show_update);
    if (o->save && o->until_nan)
        return fl_fail(FLEET_EINVAL,
                       "fleet_replay_log: until_nan finds an update, and a "
                       "checkpoint is of to_update: expected one of them");
    if (!f->trained)
        return fl_fail(FLEET_ESTATE, "fleet_replay_log: call fleet_minimize() "
                                     "before");
    return FLEET_OK;
}

fleet_status fleet_replay_log(fleet *f, const fleet_replay_options *o,
                              fleet_replay_result *result)
{
    fleet_replay_result unheard;
    replay r = {.f = f, .o = o, .result = result ? result : &unheard};
    fleet_status status;

    *r.result = (fleet_replay_result){0};
    FL_TRY(check_options(f, o));
    FL_TRY(fl_add_programs(f));
    FL_TRY(check_logs(&r));
    status = o->save ? write_checkpoint(&r) : replay_all(&r, NULL);
    fl_server_replay_close(r.of);
    fl_replay_before_done(&r.before);
    return status;
}
