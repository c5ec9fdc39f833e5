/* trail.c - a trail opened, and written. */
#include "ps/trail/trail_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

static fleet_status trail_failed(const char *what, const char *path)
{
    return fl_fail(FLEET_EIO, "the log %s cannot be %s: %s", path, what,
                   strerror(errno));
}

/* --- records -------------------------------------------------------------- */

static fleet_status put_record(fl_trail *t, fl_trail_kind kind,
                               const void *head, size_t head_size,
                               const void *data, size_t size)
{
    FL_TRY(fl_journal_put(t->journal, (uint16_t)kind,
                          (fl_journal_part[]){{head, head_size}, {data, size}},
                          2));
    return fl_journal_commit(t->journal);
}

static fleet_status write_life(fl_trail *t)
{
    const fl_life_record r = {t->nonce, t->life, (uint32_t)t->worker};

    return put_record(t, FL_NOTED_LIFE, &r, sizeof r, NULL, 0);
}

/* --- life ----------------------------------------------------------------- */

static fleet_status begin_journal(fl_trail *t)
{
    return fl_journal_writer_create(
        &t->journal, &(fl_journal_options){.folder = t->folder,
                                           .text = "worker",
                                           .first_file = t->end.file,
                                           .first_lsn = t->end.lsn,
                                           .level = t->level});
}

static fleet_status open_all(fl_trail *t, const fl_trail_options *o)
{
    bool flushes = o->level == FL_JOURNAL_SURVIVES_POWER;
    char name[24], what[24];

    snprintf(name, sizeof name, "worker-%d", o->worker);
    snprintf(what, sizeof what, "worker %d", o->worker);
    FL_TRY(fl_journal_folder_open(&t->home, o->folder, name, what));
    t->folder = t->home.folder;
    FL_TRY(fl_trail_slots_open(&t->pushes, t->folder, "push", flushes));
    FL_TRY(fl_trail_slots_open(&t->calls, t->folder, "call", flushes));
    FL_TRY(fl_trail_read(t));
    FL_TRY(begin_journal(t));
    if (t->nonce == 0)
        t->nonce = fl_nonce();
    t->life++;
    return write_life(t);
}

fleet_status fl_trail_open(fl_trail **trail, const fl_trail_options *o)
{
    fleet_status status;
    fl_trail *t;

    *trail = NULL;
    FL_TRY(FL_NEW(&t, sizeof *t));
    *t = (fl_trail){.home.lock = -1,
                    .worker = o->worker,
                    .level = o->level,
                    .log = o->log,
                    .pushes.fd = {-1, -1},
                    .calls.fd = {-1, -1}};
    status = open_all(t, o);
    if (status != FLEET_OK) {
        fl_trail_close(t);
        return status;
    }
    *trail = t;
    return FLEET_OK;
}

void fl_trail_close(fl_trail *t)
{
    if (!t)
        return;
    fl_trail_forget(t);
    fl_free(t->result);
    fl_journal_writer_destroy(t->journal);
    fl_trail_slots_close(&t->pushes);
    fl_trail_slots_close(&t->calls);
    fl_journal_folder_close(&t->home);
    fl_free(t);
}

void fl_trail_set_host(fl_trail *t, const fl_trail_host *host)
{
    t->host = *host;
}

const char *fl_trail_folder(const fl_trail *t)
{
    return t->folder;
}

uint64_t fl_trail_nonce(const fl_trail *t)
{
    return t->nonce;
}

uint32_t fl_trail_life(const fl_trail *t)
{
    return t->life;
}

/* --- the run -------------------------------------------------------------- */

static fleet_status remove_file(const fl_trail *t, uint32_t file)
{
    char *path = fl_journal_path(t->folder, file);
    fleet_status status = path ? FLEET_OK : FLEET_ENOMEM;

    if (path && fl_disk_remove(AT_FDCWD, path, 0) != 0 && errno != ENOENT)
        status = trail_failed("removed", path);
    fl_free(path);
    return status;
}

static bool has_file(const fl_trail *t, uint32_t file)
{
    char *path = fl_journal_path(t->folder, file);
    bool has = path && fl_file_exists(path);

    fl_free(path);
    return has;
}

/* The files before the one that is written. Readers take the oldest one for the
 * first, and a gap for damage: so the oldest one goes first. */
static fleet_status remove_files(const fl_trail *t)
{
    uint32_t first = t->end.file;

    while (first > 1 && has_file(t, first - 1))
        first--;
    for (; first < t->end.file; first++)
        FL_TRY(remove_file(t, first));
    return FLEET_OK;
}

/* In this order: a process that dies meanwhile leaves a trail without a run. */
static fleet_status begin_anew(fl_trail *t)
{
    if (t->run != 0)
        FL_INFO(t->log,
                "worker %d: the log %s is of another run of the job: it begins "
                "anew",
                t->worker, t->folder);
    fl_trail_forget(t);
    t->early = false;
    FL_TRY(fl_trail_slots_clear(&t->pushes));
    FL_TRY(fl_trail_slots_clear(&t->calls));
    return remove_files(t);
}

fleet_status fl_trail_enter(fl_trail *t, uint32_t run)
{
    const fl_trail_run r = {.run = run};

    if (t->run == run)
        return FLEET_OK;
    FL_TRY(begin_anew(t));
    t->run = run;
    return put_record(t, FL_NOTED_RUN, &r, sizeof r, NULL, 0);
}

/* --- passes --------------------------------------------------------------- */

static fleet_status begin_pass(fl_trail *t, uint64_t step, uint64_t reduced)
{
    char *text = t->host.describe ? t->host.describe(t->host.arg) : NULL;
    fl_pass_record r = {t->pass + 1, step, reduced};
    fleet_status status;

    if (t->host.describe && !text)
        return FLEET_ENOMEM;
    status = put_record(t, FL_NOTED_PASS, &r, sizeof r, text,
                        text ? strlen(text) : 0);
    fl_free(text);
    FL_TRY(status);
    t->pass++;
    t->in_pass = true;
    return FLEET_OK;
}

static size_t mark_of(const fl_trail *t, bool over, char mark[FL_MOST_MARK])
{
    return t->host.mark ? t->host.mark(t->host.arg, over, mark) : 0;
}

fleet_status fl_trail_push(fl_trail *t, uint64_t step, uint64_t reduced,
                           const fl_trail_packets *lane, int n_lane)
{
    fl_trail_slots *s = &t->pushes;
    char mark[FL_MOST_MARK];
    fl_push_slot head = {.step = step,
                         .reduced = reduced,
                         .n_lane = (uint32_t)n_lane,
                         .mark_size = (uint32_t)mark_of(t, false, mark)};

    if (!t->in_pass)
        FL_TRY(begin_pass(t, step - 1, reduced));
    head.pass = t->pass;
    FL_TRY(fl_trail_slots_begin(s));
    FL_TRY(fl_trail_slots_put(s, &head, sizeof head));
    FL_TRY(fl_trail_slots_put(s, mark, head.mark_size));
    FL_TRY(fl_trail_put_packets(s, lane, n_lane));
    return fl_trail_slots_write(s);
}

fleet_status fl_trail_pass_is_over(fl_trail *t, uint64_t step, uint64_t reduced)
{
    char mark[FL_MOST_MARK];
    size_t size = mark_of(t, true, mark);
    fl_pass_record r = {.step = step, .reduced = reduced};

    if (!t->in_pass)
        FL_TRY(begin_pass(t, step, reduced));
    r.number = t->pass;
    FL_TRY(put_record(t, FL_NOTED_PASS_OVER, &r, sizeof r, mark, size));
    t->in_pass = false;
    return FLEET_OK;
}

/* --- calls ---------------------------------------------------------------- */

/* Within a pass: the program does not make it again. */
static fleet_status write_call(fl_trail *t, const fl_trail_call *c)
{
    const fl_call_slot head = {.step = c->step,
                               .reduced = c->reduced,
                               .pass = t->pass,
                               .reduces = c->reduces,
                               .flags = c->flags,
                               .op = c->op,
                               .n = (uint32_t)c->n,
                               .text_size =
                                   c->text ? (uint32_t)strlen(c->text) : 0,
                               .has_text = c->text != NULL};
    fl_trail_slots *s = &t->calls;

    FL_TRY(fl_trail_slots_begin(s));
    FL_TRY(fl_trail_slots_put(s, &head, sizeof head));
    FL_TRY(fl_trail_slots_put(s, c->text, head.text_size));
    FL_TRY(fl_trail_slots_put(s, c->x, (size_t)c->n * sizeof *c->x));
    return fl_trail_slots_write(s);
}

fleet_status fl_trail_call_begins(fl_trail *t, const fl_trail_call *c)
{
    if (t->in_pass)
        return write_call(t, c);
    if (t->early && (c->step > t->start_step || c->reduced > t->start_reduced))
        return fl_fail(FLEET_ESTATE,
                       "worker %d was started again, and its program makes "
                       "more calls before its first training pass than it did "
                       "the first time: those that servers take part in must "
                       "be the same",
                       t->worker);
    return FLEET_OK;
}

fleet_status fl_trail_reduced(fl_trail *t, uint64_t number, const double *x,
                              int n)
{
    return t->in_pass ? FLEET_OK
                      : put_record(t, FL_NOTED_REDUCED, &number, sizeof number,
                                   x, (size_t)n * sizeof *x);
}

fleet_status fl_trail_command_done(fl_trail *t, uint64_t step,
                                   char *const *answer, int n_lane)
{
    fleet_status status = FLEET_OK;
    size_t used = 0, capacity = 0;
    char *all = NULL;

    if (t->in_pass)
        return FLEET_OK;
    for (int i = 0; i < n_lane && status == FLEET_OK; i++) {
        const char *text = answer && answer[i] ? answer[i] : "";
        size_t size = strlen(text) + 1;

        status = fl_grow(&all, &capacity, used + size, 1);
        if (status == FLEET_OK)
            memcpy(all + used, text, size);
        used += size;
    }
    if (status == FLEET_OK)
        status = put_record(t, FL_NOTED_COMMAND, &step, sizeof step, all, used);
    fl_free(all);
    return status;
}

fleet_status fl_trail_save_begins(fl_trail *t, uint64_t step, const char *text)
{
    return t->in_pass ? FLEET_OK
                      : put_record(t, FL_NOTED_SAVE, &step, sizeof step, text,
                                   strlen(text));
}

fleet_status fl_trail_save_is_over(fl_trail *t, uint64_t step,
                                   fleet_status status)
{
    const uint32_t code = (uint32_t)status;

    return t->in_pass ? FLEET_OK
                      : put_record(t, FL_NOTED_SAVED, &step, sizeof step, &code,
                                   sizeof code);
}

fleet_status fl_trail_leaves(fl_trail *t, uint64_t step)
{
    return put_record(t, FL_NOTED_LEAVES, &step, sizeof step, NULL, 0);
}

fleet_status fl_trail_has_left(fl_trail *t)
{
    return put_record(t, FL_NOTED_HAS_LEFT, NULL, 0, NULL, 0);
}

fleet_status fl_trail_end(fl_trail *t)
{
    const fl_trail_run none = {0};

    return put_record(t, FL_NOTED_RUN, &none, sizeof none, NULL, 0);
}
